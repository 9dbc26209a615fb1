"""Measure the cost of a batch: `validate` with each check of records, `encode_batch`, and reading, by codec and size.

    python bench/records.py [--value-bytes 100] [--seconds 0.3]

Prints microseconds of CPU per batch and per record, the best of five rounds, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import random
import time
import timeit
from collections.abc import Callable
from unittest.mock import patch

from klamm.protocol.records.batch import Record, encode_batch, read_header, records
from klamm.protocol.records.check import check_records, plain_batch, portable_check_records
from klamm.protocol.records.compression import Codec
from klamm.protocol.records.down_convert import down_convert
from klamm.protocol.records.validate import AppendRules, validate

COUNTS = (1, 10, 100, 5000)
NOW_MS = 1_700_000_000_000
LIMIT = 1 << 30


def made(count: int, value_bytes: int) -> list[Record]:
    """Return records with a value that compresses to about a half, as JSON does."""
    source = random.Random(count)
    return [
        Record(i, NOW_MS + i // 10, None, source.randbytes(value_bytes // 2).hex().encode()[:value_bytes])
        for i in range(count)
    ]


def best_us(work: Callable[[], object], seconds: float) -> float:
    number = 1
    while (once := timeit.timeit(work, timer=time.process_time, number=number)) < seconds / 20:
        number *= 4
    rounds = max(1, int(number * seconds / 5 / once))
    return min(timeit.repeat(work, timer=time.process_time, number=rounds, repeat=5)) / rounds * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()
    rules = AppendRules(max_message_bytes=LIMIT)
    print(f"values of {options.value_bytes} bytes; us a batch (us a record)")
    columns = "".join(f"{name:>20}" for name in ("validate", "portable", "encode", "read", "to magic 1"))
    print(f"{'codec':8}{'records':>8}{'bytes':>9}{columns}")
    for codec in Codec:
        for count in COUNTS:
            listed = made(count, options.value_bytes)
            batch = encode_batch(listed, codec=codec)
            view = memoryview(batch)
            header = read_header(batch)
            works: list[Callable[[], object]] = [
                lambda view=view: validate(view, rules, produce_version=9, now_ms=NOW_MS),  # type: ignore[misc]
                lambda listed=listed, codec=codec: encode_batch(listed, codec=codec),  # type: ignore[misc]
                lambda batch=batch, header=header: list(records(batch, header, LIMIT)),  # type: ignore[misc]
            ]
            if codec != Codec.ZSTD:
                works.append(lambda batch=batch: down_convert(batch, 1))  # type: ignore[misc]
            costs = []
            for check, plain in ((check_records, plain_batch), (portable_check_records, lambda _: None)):
                with patch.multiple("klamm.protocol.records.validate", check_records=check, plain_batch=plain):
                    costs.append(best_us(works[0], options.seconds))
            costs += [best_us(work, options.seconds) for work in works[1:]]
            columns = "".join(f"{f'{cost:.1f} ({cost / count:.2f})':>20}" for cost in costs)
            print(f"{codec.name.lower():8}{count:8}{len(batch):9}{columns}")


if __name__ == "__main__":
    main()
