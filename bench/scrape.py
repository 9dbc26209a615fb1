"""Measure the cost of a metrics scrape for producers: the latency of one connection, with and without scraping.

    python -m bench scrape [--partitions 10000] [--rounds 3] [--quick]

One record per request over one connection, to a broker that also has this many partitions; alternately undisturbed and
scraped every second by another process, as Prometheus would. Figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.loads import one_record
from bench.measure import Target, create_topic, medians, text
from tests.support.broker_process import BrokerProcess

PARTITIONS_PER_TOPIC = 1000
INTERVAL_S = 1.0

SCRAPER = """
import sys, time, urllib.request
url, interval = sys.argv[1], float(sys.argv[2])
while True:
    begin = time.monotonic()
    with urllib.request.urlopen(url) as response:
        response.read()
    time.sleep(max(0.0, begin + interval - time.monotonic()))
"""


@contextmanager
def scraped(url: str) -> Iterator[None]:
    """Scrape from a process of its own, so that only the broker pays."""
    process = subprocess.Popen([sys.executable, "-c", SCRAPER, url, str(INTERVAL_S)])
    try:
        yield
        assert process.poll() is None, "the scraper has failed"
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="The latency of produce while the metrics are scraped.")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, a tenth of the partitions and of the time")
    options = parser.parse_args()
    partitions, rounds, seconds = options.partitions, options.rounds, 10.0
    if options.quick:
        partitions, rounds, seconds = partitions // 10, 1, 2.0
    alone: list[dict[str, float]] = []
    beside: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="klamm-bench-") as temporary,
        BrokerProcess(Path(temporary) / "klamm") as broker,
    ):
        target = Target("klamm", broker.host, broker.port, broker.pid)
        for first in range(0, partitions, PARTITIONS_PER_TOPIC):
            create_topic(target, f"many-{first}", min(PARTITIONS_PER_TOPIC, partitions - first))
        create_topic(target, "single", 1)
        one_record(target, "single", 1, 1.0)  # warm
        for _ in range(rounds):
            alone.append(one_record(target, "single", 1, seconds))
            with scraped(broker.metrics_url):
                beside.append(one_record(target, "single", 1, seconds))
        begin = time.perf_counter()
        with urllib.request.urlopen(broker.metrics_url) as response:
            size = len(response.read())
        elapsed_ms = (time.perf_counter() - begin) * 1e3
    print(f"{partitions} partitions, one connection, {rounds} round(s) of {seconds:g} s")
    print(f"  not scraped:          {text(medians(alone))}")
    print(f"  scraped every second: {text(medians(beside))}")
    print(f"  one scrape: {size / 1e6:.1f} MB in {elapsed_ms:.0f} ms")


if __name__ == "__main__":
    main()
