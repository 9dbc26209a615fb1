"""Run one suite of measurements: `python -m bench [suite]`.

`speed` (the default) compares the broker with Apache Kafka on this machine, `tls` does so over TLS. `scrape` measures
the cost of scraping the metrics, `durability` that of an fsync before each acknowledgement, `recovery` the speed of a
start after a crash, `groups` the cost of many idle groups, `transactions` how many there are in a second, `scale` the
cost of many connections, partitions and readers, `pauses` how long other clients wait for the heaviest requests and
jobs, `pipeline` the speed of Spark's reads, `decode` that of decoding batches to columns, `micro` the cost of single
steps. The others measure one layer alone.
"""

from __future__ import annotations

import runpy
import sys

SUITES = (
    "speed",
    "groups",
    "instructions",
    "decode",
    "durability",
    "log",
    "micro",
    "network",
    "pauses",
    "pauses_background",
    "pipeline",
    "records",
    "recovery",
    "scale",
    "scrape",
    "storage",
    "tls",
    "transactions",
)
PARTS = {"pauses": ("pauses", "pauses_background")}
"""Suites of more than one module."""


def main() -> int:
    suite = sys.argv[1] if len(sys.argv) > 1 else "speed"
    if suite not in SUITES:
        print(f"SUITE={suite} is not one of {', '.join(SUITES)}", file=sys.stderr)
        return 2
    options = sys.argv[2:]
    for part in PARTS.get(suite, (suite,)):
        sys.argv = [f"bench.{part}", *options]
        runpy.run_module(f"bench.{part}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
