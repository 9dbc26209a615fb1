"""Run Klamm and Apache Kafka at once and load them in turns: for machines that change speed within minutes.

    python -m bench.turns [--rounds 7] [--seconds 1] [--against DIR]

With `--against`, another checkout of Klamm takes the place of Apache Kafka, to show the effect of a change.

The loads are the rows of `bench speed` that use the generator in `bench/load`, a second each, and the bare sendfile
loop. Prints medians over the rounds; writes nothing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from bench import loads, speed
from bench.measure import BROKERS, COLUMNS, Table, Target, create_topic, klamm
from tests.support.broker_process import BrokerProcess


@contextmanager
def checkout(tree: Path, directory: Path) -> Iterator[Target]:
    """Run the broker of another tree, with the packages of this one."""
    with BrokerProcess(directory / "other", prefix=("env", "-C", str(tree.resolve()))) as broker:
        yield Target("other", broker.host, broker.port, broker.pid)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one load")
    parser.add_argument("--against", type=Path, metavar="DIR", help="another checkout instead of Apache Kafka")
    options = parser.parse_args()
    if not loads.available(loads.LOAD):
        parser.error("make bench-tools builds the load generator, with Go")
    table = Table()
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="klamm-bench-")))
        targets = []
        for broker in BROKERS if options.against is None else (klamm, partial(checkout, options.against)):
            directory = temporary / str(len(targets))
            directory.mkdir()
            targets.append(stack.enter_context(broker(directory)))
        for target in targets:
            create_topic(target, "single", 1)
            create_topic(target, "large", 1)
            loads.java_producer(target, "large", 200_000, 1000)
            loads.produce(target, "single", 16, 2.0)
        for number in range(options.rounds):
            turn = targets if number % 2 == 0 else targets[::-1]
            for connections in speed.CONNECTIONS:
                for target in turn:
                    speed.requested(table, target, connections, options.seconds)
            for size, connections in speed.FETCHES:
                for target in turn:
                    speed.fetched(table, target, size, connections, options.seconds)
            speed.bare(table, temporary, options.seconds)
    columns = COLUMNS if options.against is None else {"klamm": "this tree", "other": str(options.against)}
    print(table.markdown(columns))


if __name__ == "__main__":
    main()
