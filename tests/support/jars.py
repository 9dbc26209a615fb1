"""The Java jars that tests hold Klamm against, as Maven (`make jars`) has put them beside the poms.

A missing jar is an error, never a skipped test.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

JAVA_SOURCES = Path(__file__).parent / "java"
NEWEST, OLD = "clients", "clients-old"  # kafka-clients 4.4.0, and 3.9.2 for the versions that 4.0 removed


class MissingJar(Exception):
    """What the tests need is not there."""


def jars(project: str) -> list[Path]:
    """All jars of a pom's project, for a class path."""
    found = sorted((JAVA_SOURCES / project / "target" / "jars").glob("*.jar"))
    if not found:
        raise MissingJar(f"no jars in tests/support/java/{project}/target/jars: run `make jars`")
    return found


def jar(project: str, artifact: str) -> Path:
    """The one jar of an artifact."""
    found = [path for path in jars(project) if path.name.rpartition("-")[0] == artifact]
    if len(found) != 1:
        raise MissingJar(f"{project} has {len(found)} jars of {artifact}: run `make jars`")
    return found[0]


def class_path(project: str, *more: Path) -> str:
    """The class path of a project."""
    return os.pathsep.join(str(path) for path in [*more, *jars(project)])


def java() -> str:
    """The java command, of JAVA_HOME or the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise MissingJar("there is no java command")
    return found
