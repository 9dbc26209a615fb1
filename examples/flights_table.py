"""Load the flights of `make demo` into a Delta table, query it with Spark SQL, and draw the result.

The rows are sent to the topic `flights` unless they are there. `klamm-pipeline load` loads the topic into a Delta table
(the values are JSON, so they become columns). The demo checks that the table has exactly the topic's records, queries
the mean delay by carrier and hour, and draws it into a PNG. A second run loads only new records.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from examples.flights import TOPIC, broker_at, console, create_topic, end_offsets, produce, read_rows
from klamm.pipeline.errors import PipelineError
from klamm.pipeline.spark.session import session
from klamm.pipeline.table import dataframe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELAYS = """
    SELECT value.carrier AS carrier,
           CAST(value.sched_dep_time AS int) DIV 100 AS hour,
           avg(TRY_CAST(value.dep_delay AS double)) AS delay,
           count(*) AS flights
    FROM flights
    GROUP BY 1, 2
    HAVING flights >= 50
    ORDER BY 1, 2
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="address of the broker (127.0.0.1:9092)")
    parser.add_argument(
        "--data", type=Path, default=Path("data"), help="log directory of a broker that the demo starts"
    )
    parser.add_argument("--table", type=Path, default=Path("build/flights"), help="folder of the Delta table")
    parser.add_argument("--plot", type=Path, default=Path("build/flights.png"), help="file of the plot")
    parser.add_argument("--rows", type=int, help="number of rows to send")
    options = parser.parse_args()
    rows = read_rows()[: options.rows]
    options.table.parent.mkdir(parents=True, exist_ok=True)
    with broker_at(options.bootstrap, options.data):
        create_topic(options.bootstrap)
        if sum(end_offsets(options.bootstrap).values()) < len(rows):
            produce(options.bootstrap, rows)
        sent = sum(end_offsets(options.bootstrap).values())
        load(options.bootstrap, options.table, list(rows[0]))
    spark = session("flights")
    try:
        flights = dataframe(spark, str(options.table))
        loaded = flights.select("partition", "offset").distinct().count()
        if not loaded == flights.count() == sent:
            console.print(
                f"[red]the topic has {sent:,} records, the table {flights.count():,}, {loaded:,} of them distinct"
            )
            return 1
        console.print(f"[green]{loaded:,} records in the table {options.table}: all of the topic, each once")
        draw(delays(spark, flights), options.plot)
    finally:
        spark.stop()
    console.print(f"delays by carrier and hour: {options.plot}")
    return 0


def load(address: str, table: Path, columns: list[str]) -> None:
    """Run the job from the command line."""
    with tempfile.NamedTemporaryFile("w", suffix=".ddl") as schema:
        schema.write(", ".join(f"{column} string" for column in columns))
        schema.flush()
        command = [str(Path(sys.executable).with_name("klamm-pipeline")), "load", "--bootstrap-servers", address]
        command += ["--topics", TOPIC, "--table", str(table), "--value", "json", "--value-schema", schema.name]
        console.print(" ".join(command[1:]), highlight=False)
        if subprocess.run(command, check=False).returncode:
            sys.exit("the load failed")


def delays(spark: SparkSession, flights: DataFrame) -> list[tuple[str, int, float]]:
    """Return (carrier, hour, mean delay in minutes), and print the worst."""
    flights.createOrReplaceTempView("flights")
    found = [(row.carrier, row.hour, row.delay) for row in spark.sql(DELAYS).collect()]
    if not found:
        raise PipelineError("too few flights for a plot: give more --rows")
    for carrier, hour, delay in sorted(found, key=lambda row: -row[2])[:5]:
        console.print(f"  {carrier} at {hour:02}h: {delay:.0f} minutes late on average")
    return found


def draw(found: list[tuple[str, int, float]], path: Path) -> None:
    """Draw a map of carriers and hours."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    carriers = sorted({carrier for carrier, _, _ in found}, reverse=True)
    hours = range(min(hour for _, hour, _ in found), max(hour for _, hour, _ in found) + 1)
    by_place = {(carrier, hour): delay for carrier, hour, delay in found}
    cells = [[by_place.get((carrier, hour), float("nan")) for hour in hours] for carrier in carriers]
    figure, axes = plt.subplots(figsize=(9, 0.35 * len(carriers) + 1.5), layout="constrained")
    image = axes.imshow(cells, aspect="auto", cmap="YlOrRd", vmin=0)
    axes.set_xticks(range(len(hours)), [f"{hour}" for hour in hours])
    axes.set_yticks(range(len(carriers)), carriers)
    axes.set_xlabel("scheduled hour of departure")
    axes.set_title("Mean delay of flights from New York, 2013", loc="left")
    figure.colorbar(image, label="minutes")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
