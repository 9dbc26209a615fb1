"""The Java class paths of the tests, filled by `make jars` from the Maven files in tests/support/java/<set>/pom.xml.

Sets: `clients` (newest client and codecs), `clients-old` (3.9, for the API versions that 4.0 removed), `broker` (Apache
Kafka's own broker), `tools` (its command line tools), `streams` (Kafka Streams without RocksDB), `spark` (Spark's own
Kafka connector). A missing set is an error, never a skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

JAVA: Final = Path(__file__).parent / "java"

JarSet = Literal["clients", "clients-old", "broker", "tools", "streams", "spark"]


class JarsMissing(RuntimeError):
    """The set has not been fetched, or there is no Java."""


def jars(name: JarSet) -> list[Path]:
    """All jar files of one set, sorted by name."""
    found = sorted((JAVA / name / "target" / "jars").glob("*.jar"))
    if not found:
        raise JarsMissing(f"the jars of {name!r} are missing: run `make jars`")
    return found


def jar(name: JarSet, beginning: str) -> Path:
    """The one jar of a set with a file name that begins like this, such as `kafka-clients-`."""
    found = [path for path in jars(name) if path.name.startswith(beginning)]
    if len(found) != 1:
        raise JarsMissing(f"{len(found)} jars of {name!r} begin with {beginning!r}: run `make clean jars`")
    return found[0]


def classpath(name: JarSet, *more: Path) -> str:
    """The class path of one set for `java -cp`, with `more` directories or jars before it."""
    return os.pathsep.join([*(str(path) for path in more), *(str(path) for path in jars(name))])


def java() -> str:
    """The `java` command."""
    found = shutil.which("java")
    if found is None:
        raise JarsMissing("there is no java: install default-jdk-headless, or run `make jars`")
    return found


def run_java(
    name: JarSet,
    main: str | Path,
    *arguments: str,
    input_text: str = "",
    options: Sequence[str] = (),
    timeout_s: float = 120,
) -> str:
    """Run a class of the set, or one `.java` source file with the set on its class path; returns what it printed.

    Raises `AssertionError` with the error output when it fails.
    """
    command = [
        java(),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *options,
        "-cp",
        classpath(name),
        str(main),
        *arguments,
    ]
    done = subprocess.run(command, input=input_text, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{main} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout
