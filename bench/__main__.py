"""`python -m bench [suite]`: run one suite of measurements.

`speed` (the default) holds the broker against Apache Kafka on this machine; `scrape` tells what scraping the metrics
costs, `durability` what an fsync before each acknowledgement costs, `recovery` how fast a start after a crash is,
`groups` what many groups at rest take, `transactions` how many there are in a second, `scale` what many of everything
take, `pauses` how long others wait for the heaviest requests and jobs, `pipeline` how fast Spark reads, `decode` how
fast batches become columns, `micro` what single steps cost; the others measure one layer alone.
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
    "transactions",
)
PARTS = {"pauses": ("pauses", "pauses_background")}
"""Suites that are more than one module."""


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
