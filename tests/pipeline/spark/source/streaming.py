"""Streams into Parquet, a directory for each micro-batch, so that a batch that is repeated replaces itself.

As a script it runs the queries of all formats until each is within its third micro-batch, and kills its process:

    python streaming.py ADDRESS DIRECTORY JARS
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMATS: Final = ("klamm", "kafka")
TOPIC: Final = "air"
KILLED_IN: Final = 2


def started(
    spark: SparkSession, form: str, address: str, directory: Path, before: Callable[[int], None] = lambda batch: None
) -> StreamingQuery:
    """A query of the available rows, with a checkpoint; `before` and after each batch is written."""
    frame = (
        spark.readStream.format(form)
        .option("kafka.bootstrap.servers", address)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", "120")
        .load()
    )

    def write(batch: DataFrame, number: int) -> None:
        before(number)
        batch.coalesce(1).write.mode("overwrite").parquet(str(directory / form / f"batch={number}"))

    return (
        frame.writeStream.foreachBatch(write)
        .trigger(availableNow=True)
        .option("checkpointLocation", str(directory / f"{form}.checkpoint"))
        .start()
    )


def main(address: str, directory: Path, jars: str) -> None:
    """Never returns."""
    from klamm.pipeline.spark.session import session

    conf = {"spark.jars": jars, "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "1"}
    spark = session("killed", "local[2]", conf)
    barrier = threading.Barrier(len(FORMATS))

    def before(batch: int) -> None:
        if batch == KILLED_IN and barrier.wait(120) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for query in [started(spark, form, address, directory, before) for form in FORMATS]:
        query.awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
