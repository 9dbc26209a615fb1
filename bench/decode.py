"""Measure how fast record batches become columns, and Arrow: records/s and MB/s of one core, by codec and batch size.

    python -m bench decode [--value-bytes 100] [--megabytes 24] [--rounds 5] [--headers 2] [--plain]

Batches are in memory, in one buffer as large as a segment reader's. MB count the log's bytes, compressed or not; "raw
MB/s" counts the uncompressed records. Times are CPU times, the best of several rounds, so that a busy machine disturbs
little. `arrow` is the work of a Spark task: scan, CRC, decompression, columns, keys and values copied out (and headers,
if there are any). `columns` leaves out the copying, and `--plain` adds the decoder that is not vectorised.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from klamm.pipeline.arrow import record_batches
from klamm.protocol.records.batch import HEADER_BYTES, Header, Record, batches, encode_batch, records
from klamm.protocol.records.columnar import columns, padded, scan
from klamm.protocol.records.columnar.batch_headers import Bytes
from klamm.protocol.records.compression import Codec

COUNTS = (1, 10, 150, 10_000)
NOW_MS = 1_700_000_000_000
LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class Log:
    """`size` bytes of batches, then padding."""

    data: Bytes
    size: int
    count: int
    raw_bytes: int


def made(megabytes: int, count: int, value_bytes: int, codec: Codec, headers: tuple[Header, ...]) -> Log:
    """Return a log of one batch repeated, with values that compress to about a half, as JSON does."""
    source = random.Random(count)
    listed = [
        Record(i, NOW_MS + i // 10, b"key-%d" % (i % 1000), source.randbytes(value_bytes // 2).hex().encode(), headers)
        for i in range(count)
    ]
    batch = np.frombuffer(encode_batch(listed, codec=codec), np.uint8)
    raw_bytes = len(encode_batch(listed)) - HEADER_BYTES
    number = max((megabytes << 20) // (raw_bytes + HEADER_BYTES), 1)
    data = padded(number * len(batch))
    table = data[: number * len(batch)].reshape(number, -1)
    table[:] = batch
    table[:, :8] = (np.arange(number) * count).astype(">i8").view(np.uint8).reshape(number, 8)  # not in the CRC
    return Log(data, number * len(batch), number * count, number * raw_bytes)


def best_s(work: Callable[[], int], expected: int, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        found = work()
        best = min(best, time.process_time() - start)
        assert found == expected, f"{found} records of {expected}"
    return best


def to_columns(log: Log) -> int:
    return sum(len(part) for part in columns(log.data, scan(log.data, log.size)))


def to_arrow(log: Log, headers: bool) -> int:
    parts = columns(log.data, scan(log.data, log.size))
    return sum(batch.num_rows for batch in record_batches(parts, "topic", 0, headers=headers))


def plainly(log: Log) -> int:
    data = log.data[: log.size].tobytes()
    return sum(1 for position, head in batches(data) for _ in records(data, head, LIMIT, position))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--megabytes", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--headers", type=int, default=2, help="headers a record, where there are any")
    parser.add_argument("--plain", action="store_true")
    options = parser.parse_args()
    some = tuple((f"header-{i}", b"0123456789abcdef") for i in range(options.headers))
    print(f"values of {options.value_bytes} bytes; million records/s of one core, and MB/s as Arrow")
    print(f"{'codec':8}{'headers':>8}{'records':>9}{'columns':>9}{'arrow':>9}{'MB/s':>9}{'raw MB/s':>10}{'plain':>9}")
    for codec in Codec:
        for headers in ((), some):
            for count in COUNTS:
                log = made(options.megabytes, count, options.value_bytes, codec, headers)
                work: list[Callable[[Log], int]] = [to_columns, partial(to_arrow, headers=bool(headers))]
                work += [plainly] if options.plain else []
                best = [best_s(partial(one, log), log.count, options.rounds) for one in work]
                columns_, arrow, *plain = (f"{log.count / s / 1e6:9.2f}" for s in best)
                megabytes = f"{log.size / best[1] / 1e6:9.0f}{log.raw_bytes / best[1] / 1e6:10.0f}"
                what = f"{codec.name.lower():8}{len(headers):8}{count:9}"
                print(what, columns_, arrow, megabytes, *plain, sep="", flush=True)


if __name__ == "__main__":
    main()
