"""Apache Kafka's message classes, asked through one Java process per version of kafka-clients."""

from __future__ import annotations

import base64
import json
import subprocess
from types import TracebackType
from typing import Any, Self

from klamm.protocol.wire import uuid_to_text
from tests.support.definitions import Definition, snake_case
from tests.support.jars import JAVA, JarSet, classpath, java


class Refused(Exception):
    """Kafka has thrown an exception."""


class JavaMessages:
    """A running `Messages.java`; a context manager."""

    def __init__(self, project: JarSet) -> None:
        source = JAVA / "protocol" / "Messages.java"
        self._process = subprocess.Popen(
            [java(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classpath(project), str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=30)

    def _ask(self, *question: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"java has ended with {self._process.wait(timeout=30)}")
        status, _, answer = line.rstrip("\n").partition("\t")
        if status != "ok":
            raise Refused(answer)
        return answer

    def write(self, name: str, version: int, value: dict[str, Any]) -> bytes:
        """The bytes of the message that the JSON describes."""
        return bytes.fromhex(self._ask("write", name, str(version), json.dumps(value)))

    def echo(self, name: str, version: int, data: bytes) -> bytes:
        """The bytes read and written again."""
        return bytes.fromhex(self._ask("echo", name, str(version), data.hex()))

    def default(self, name: str, version: int) -> bytes:
        """The bytes of a message without any value set."""
        return bytes.fromhex(self._ask("default", name, str(version)))

    def errors(self) -> list[tuple[int, str, bool]]:
        """Code, name and whether it is retriable, of all error codes."""
        rows = [row.split() for row in self._ask("errors").split(",")]
        return [(int(code), name, retriable == "true") for code, name, retriable in rows]


def to_json(definition: Definition, version: int, message: Any) -> dict[str, Any]:
    """Return one of Klamm's messages in the JSON that Kafka's converters read, with only the fields of the version."""
    return _struct_to_json(definition, definition.fields, version, message)


def _struct_to_json(
    definition: Definition, fields: tuple[dict[str, Any], ...], version: int, message: Any
) -> dict[str, Any]:
    found = {}
    for field in fields:
        if definition.within(version, field["versions"]):
            name = field["name"]
            value = getattr(message, snake_case(name))
            found[name[0].lower() + name[1:]] = _value_to_json(definition, field, version, value)
    return found


def _value_to_json(definition: Definition, field: dict[str, Any], version: int, value: Any) -> Any:
    kind = field["type"].removeprefix("[]")
    if isinstance(value, list):
        return [_value_to_json(definition, field, version, item) for item in value]
    if value is None:
        return None
    if kind[0].isupper():
        fields = tuple(field["fields"]) if "fields" in field else definition.structs[kind]
        return _struct_to_json(definition, fields, version, value)
    if kind == "uuid":
        return uuid_to_text(value)
    if kind in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value
