"""A small Java program of the tests that answers a JSON line with a JSON line, over one set of jars.

    with JavaProcess("tools", JAVA / "commands" / "Commands.java") as java:
        java.ask({"class": "...", "arguments": [...], "input": ""})

A JVM is slow to start and quick to answer: the programs serve any number of questions.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.jars import JarSet, classpath, java

END_TIMEOUT_S: Final = 30.0


class JavaProcess:
    """A running program, ended by the end of its input; a context manager."""

    def __init__(self, jar_set: JarSet, source: Path, *, heap: str = "256m") -> None:
        command = [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Xmx{heap}"]
        self._process = subprocess.Popen(
            [*command, "-cp", classpath(jar_set), str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"java has ended with {self._process.wait(END_TIMEOUT_S)}")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._process.communicate(timeout=END_TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()
