"""`klamm-pipeline dlq`: dead letters listed, and replayed to the topics that they came from.

    klamm-pipeline dlq list --bootstrap-servers localhost:9092 --topic flights.dead
    klamm-pipeline dlq replay --bootstrap-servers localhost:9092 --topic flights.dead

`list` prints a line per letter (or JSON), `replay` sends the records back with their own headers, keys, timestamps and
partitions, in transactions that also hold its progress, so that no letter is replayed twice.

Exit status: 0 done, 1 stopped for the reason on stderr, 2 a wrong option.
"""

from __future__ import annotations

import argparse
import base64
import json
from typing import TYPE_CHECKING

from klamm.cli.program import EXIT_OK
from klamm.pipeline.errors import BadOption
from klamm.pipeline.jobs.arguments import positive
from klamm.pipeline.report import Report, add_report_arguments, reporting

if TYPE_CHECKING:
    from klamm.pipeline.jobs.replaying import Letter
    from klamm.pipeline.kafka.cluster import Cluster

NAME = "dlq"


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list", "replay"))
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", required=True, help="brokers of the cluster")
    parser.add_argument("--topic", metavar="NAME", required=True, help="the dead letter topic")
    parser.add_argument("--limit", metavar="N", type=positive, help="at most N letters")
    group = parser.add_argument_group("list")
    group.add_argument("--from-topic", metavar="NAME", help="only letters of records of that topic")
    group.add_argument("--pending", action="store_true", help="only letters that were not replayed yet")
    group.add_argument("--json", action="store_true", help="a line of JSON each, with key and value (base64)")
    group = parser.add_argument_group("replay")
    group.add_argument("--to", metavar="TOPIC", help="replay to this topic (default: the topic of each record)")
    group.add_argument("--dry-run", action="store_true", help="print what would be sent, change nothing")
    add_report_arguments(parser)


@reporting
def run(options: argparse.Namespace, report: Report) -> int:
    from klamm.pipeline.jobs.replaying import replay
    from klamm.pipeline.kafka.cluster import Cluster

    _check(options)
    with Cluster(options.bootstrap_servers) as cluster:
        if options.action == "list":
            _list(cluster, options)
        elif options.dry_run:
            _plan(cluster, options)
        else:
            with report.progress(NAME) as progress:
                done = replay(cluster, options.topic, to=options.to, limit=options.limit)
                progress.advance(done.letters)
            report.event("replayed", letters=done.letters, doubles=done.doubles, transactions=done.transactions)
            report.succeeded(NAME)
    return EXIT_OK


def _check(options: argparse.Namespace) -> None:
    of_list = {"--from-topic": options.from_topic, "--pending": options.pending, "--json": options.json}
    of_replay = {"--to": options.to, "--dry-run": options.dry_run}
    for name, given in (of_replay if options.action == "list" else of_list).items():
        if given:
            raise BadOption(f"{name} does not belong to dlq {options.action}")


def _list(cluster: Cluster, options: argparse.Namespace) -> None:
    from klamm.pipeline.jobs.replaying import letters, positions

    starts = positions(cluster, options.topic)
    left = options.limit
    for letter in letters(cluster, options.topic):
        is_pending = letter.offset >= starts[letter.place]
        if options.pending and not is_pending:
            continue
        if options.from_topic is not None and letter.reason.topic != options.from_topic:
            continue
        if left == 0:
            break
        left = None if left is None else left - 1
        state = "double" if letter.is_double else "pending" if is_pending else "replayed"
        print(_json(letter, state) if options.json else _line(letter, state))


def _plan(cluster: Cluster, options: argparse.Namespace) -> None:
    from klamm.pipeline.jobs.replaying import letters, positions, target_of

    starts = positions(cluster, options.topic)
    counts: dict[str, int] = {}
    total = 0
    for letter in letters(cluster, options.topic):
        if letter.offset < starts[letter.place] or (options.limit is not None and total >= options.limit):
            continue
        total += 1
        if not letter.is_double:
            target = target_of(letter, options.to)
            counts[target] = counts.get(target, 0) + 1
    for target, count in sorted(counts.items()):
        print(f"topic {target} records={count}")
    print(f"total letters={total} doubles={total - sum(counts.values())}")


def _line(letter: Letter, state: str) -> str:
    from klamm.pipeline.jobs.audit.comparison import moment

    reason = letter.reason
    where = f"{reason.topic}-{reason.partition} offset {reason.offset}" if reason.topic is not None else "unknown"
    when = moment(letter.timestamp_ms)
    message = reason.message.replace("\n", " ")
    return f"{letter.place} {letter.offset} {state} {when} {where} {reason.job} {reason.stage} {message}"


def _json(letter: Letter, state: str) -> str:
    reason = letter.reason
    return json.dumps(
        {
            "partition": letter.place.partition,
            "offset": letter.offset,
            "state": state,
            "timestamp_ms": letter.timestamp_ms,
            "from": {"topic": reason.topic, "partition": reason.partition, "offset": reason.offset},
            "job": reason.job,
            "stage": reason.stage,
            "reason": reason.message,
            "key": _base64(letter.key),
            "value": _base64(letter.value),
            "headers": [[name, _base64(value)] for name, value in letter.headers],
        }
    )


def _base64(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
