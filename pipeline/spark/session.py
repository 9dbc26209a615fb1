"""The Spark session of a job: on one machine, or as `spark-submit` or the environment configure it.

Spark on loopback, no user interface, UTC, Arrow on, and the workers run the same Python as the driver.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from klamm.pipeline import errors
from klamm.pipeline.errors import BadOption, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",  # a quarter less work than over TCP
}

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOGGING: Final = f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"

_RAISED = re.compile(r"^klamm\.pipeline\.errors\.(\w+): (.+)$", re.MULTILINE)


def session(name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return the running session, or a new one with the data source `klamm`. `master` is such as `local[4]`.

    Raises PipelineError when pyspark or Java is missing.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise PipelineError(f"{error}: install it with: pip install 'klamm[pipeline]'") from None
    if not (shutil.which("java") or Path(os.environ.get("JAVA_HOME", ""), "bin", "java").is_file()):
        raise PipelineError("Spark needs Java 17 or newer: install one, or set JAVA_HOME")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(master or os.environ.get("SPARK_MASTER", "local[*]"))
    wanted = {**DEFAULTS, **(conf or {})}
    if "log4j2." not in wanted.get(JAVA_OPTIONS, ""):
        wanted[JAVA_OPTIONS] = f"{LOGGING} {wanted.get(JAVA_OPTIONS, '')}".strip()
    for key, value in wanted.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # the code that catches an error reports it

    from klamm.pipeline.spark.source import KlammDataSource

    spark.dataSource.register(KlammDataSource)
    return spark


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise a PipelineError of a task or a planner again as itself, around actions of Spark.

    Spark puts the text of a Python traceback into the text of its own error; its last line is ours.
    """
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        if (found := pipeline_error(error)) is None:
            raise
        raise found from None


def pipeline_error(error: BaseException | None) -> PipelineError | None:
    """Return the PipelineError inside an error of Spark, such as the `exception()` of a streaming query."""
    if error is None or isinstance(error, PipelineError):
        return error
    if (raised := _RAISED.search(str(error))) is None:
        return None
    kind = getattr(errors, raised[1], PipelineError)
    return kind(raised[2]) if issubclass(kind, PipelineError) else None


def settings(given: list[str]) -> dict[str, str]:
    """Parse `--conf key=value` options. Raises BadOption."""
    found = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key.startswith("spark."):
            raise BadOption(f"--conf {text}: it has the form spark.some.key=value")
        found[key] = value
    return found
