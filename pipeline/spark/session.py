"""A Spark session for jobs on one machine, or whatever `spark-submit` or the environment has configured.

Spark on loopback, no user interface, UTC, Arrow on, and the workers run the Python that the driver runs.
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
    """The running session, or a new one with the data source `klamm` registered. `master` such as `local[4]`.

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
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # errors are told by who catches them

    from klamm.pipeline.spark.source import KlammDataSource

    spark.dataSource.register(KlammDataSource)
    return spark


@contextmanager
def unwrapped() -> Iterator[None]:
    """Around actions of Spark: what a task, or a planner, raised as a PipelineError is raised again as that.

    Spark hands over the text of a Python traceback, inside the text of its own error, whose last line is ours.
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
    """The PipelineError that an error of Spark tells of, such as the `exception()` of a streaming query."""
    if error is None or isinstance(error, PipelineError):
        return error
    if (raised := _RAISED.search(str(error))) is None:
        return None
    kind = getattr(errors, raised[1], PipelineError)
    return kind(raised[2]) if issubclass(kind, PipelineError) else None


def settings(given: list[str]) -> dict[str, str]:
    """Of `--conf key=value` options. Raises BadOption."""
    found = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key.startswith("spark."):
            raise BadOption(f"--conf {text}: it has the form spark.some.key=value")
        found[key] = value
    return found
