"""`klamm dump-log`: shows the contents of log files, with the options and the lines of Apache
Kafka's `kafka-dump-log`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from klamm.storage.tools.dump.decoders import RecordDecoder

DESCRIPTION: Final = """\
Show what log files hold: .log (batches and records), .index, .timeindex, .txnindex, .snapshot (producers),
leader-epoch-checkpoint, the offset checkpoints of a log dir, partition.metadata, meta.properties.

Options and lines are those of Apache Kafka's kafka-dump-log; files that it cannot print have lines of their own.
Problems are printed to stderr.

Exit code: 0 no problem; 1 problems; 2 a bad command line.

examples:
  klamm dump-log --files data/flights-0/00000000000000000000.log --print-data-log
  klamm dump-log --files "$(ls data/flights-0/*.{log,index,timeindex} | paste -sd,)" --verify-index-only
  klamm dump-log --files data/__consumer_offsets-7/00000000000000000000.log --offsets-decoder
"""

DECODERS: Final = ("string", "long", "integer", "hex")
DECODER_HELP: Final = f"how {{}} are shown: {', '.join(DECODERS)}, or the name of Kafka's class (string)"


def declare(parser: argparse.ArgumentParser) -> None:
    parser.usage = "klamm dump-log --files a.log,b.index [option ...]"
    parser.add_argument(
        "--files", type=_paths, required=True, metavar="a.log,b.index", help="files, separated by commas"
    )
    parser.add_argument(
        "--print-data-log", action="store_true", help="show keys and values, too; set by every decoder option"
    )
    parser.add_argument(
        "--deep-iteration", action="store_true", help="show records, not only batches; set by --print-data-log"
    )
    parser.add_argument(
        "--skip-record-metadata", action="store_true", help="show keys and values only, and no control records"
    )
    parser.add_argument("--max-bytes", type=_bytes, metavar="size", help="read at most so much of each log (all)")
    parser.add_argument(
        "--max-message-size", type=_bytes, default=5 * 1024 * 1024, metavar="size",
        help="the largest batch that an index may point to, in bytes (5242880)",
    )  # fmt: skip
    indexes = parser.add_mutually_exclusive_group()
    indexes.add_argument("--verify-index-only", action="store_true", help="check indexes without showing them")
    indexes.add_argument(
        "--index-sanity-check", action="store_true",
        help="check of indexes only what a start looks at to find out whether they need to be rebuilt",
    )  # fmt: skip
    decoders = parser.add_mutually_exclusive_group()
    for option, words in (
        ("--offsets-decoder", "__consumer_offsets: commits and groups"),
        ("--transaction-log-decoder", "__transaction_state: transactions"),
        ("--share-group-state-decoder", "__share_group_state: share groups"),
        ("--cluster-metadata-decoder", "__cluster_metadata: the metadata of a KRaft controller"),
    ):
        decoders.add_argument(option, action="store_true", help=f"read records as those of {words}")
    parser.add_argument("--key-decoder-class", metavar="name", help=DECODER_HELP.format("keys"))
    parser.add_argument("--value-decoder-class", metavar="name", help=DECODER_HELP.format("values"))


def run(options: argparse.Namespace) -> int:
    from klamm.storage.tools.dump.files import DumpOptions, dump_files
    from klamm.storage.tools.dump.index_files import IndexMode

    decode = _decoder(options)
    mode = IndexMode.SHOW
    if options.verify_index_only:
        mode = IndexMode.VERIFY
    elif options.index_sanity_check:
        mode = IndexMode.SANITY
    return dump_files(
        options.files,
        DumpOptions(
            print_data_log=options.print_data_log or _names_decoder(options),
            deep_iteration=options.deep_iteration,
            skip_record_metadata=options.skip_record_metadata,
            index_mode=mode,
            max_message_bytes=options.max_message_size,
            max_bytes=options.max_bytes,
            decode=decode,
        ),
        out=sys.stdout,
        errors=sys.stderr,
    )


def _names_decoder(options: argparse.Namespace) -> bool:
    return bool(
        options.offsets_decoder
        or options.transaction_log_decoder
        or options.share_group_state_decoder
        or options.cluster_metadata_decoder
        or options.key_decoder_class
        or options.value_decoder_class
    )


def _decoder(options: argparse.Namespace) -> RecordDecoder:
    """Return the decoder of the options. Raises ConfigError for an unknown name."""
    from klamm.config.definitions import ConfigError
    from klamm.storage.tools.dump import decoders

    if options.offsets_decoder:
        return decoders.offsets
    if options.transaction_log_decoder:
        return decoders.transactions
    if options.share_group_state_decoder:
        return decoders.share_state
    if options.cluster_metadata_decoder:
        return decoders.cluster_metadata
    found = []
    for option in ("key_decoder_class", "value_decoder_class"):
        name = getattr(options, option) or "string"
        if name not in decoders.BYTES_DECODERS:
            known = ", ".join(DECODERS)
            raise ConfigError(f"--{option.replace('_', '-')}: {name!r} is not known, only {known}")
        found.append(decoders.BYTES_DECODERS[name])
    return decoders.plain(*found)


def _paths(text: str) -> list[Path]:
    found = [Path(name.strip()) for name in text.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("no file is named")
    return found


def _bytes(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes, 1 or more")
    return int(text)
