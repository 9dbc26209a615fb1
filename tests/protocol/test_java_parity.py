"""Bytes against Apache Kafka's own message classes, for every message, version and direction.

Kafka 4.4 writes and reads its versions, 3.9 the ones that 4.0 removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from klamm.protocol.apis import API, request_class, response_class
from klamm.protocol.errors import ErrorCode
from klamm.protocol.headers import RequestHeader, ResponseHeader
from klamm.protocol.schema import Message
from tests.support.definitions import NEWEST, OLD, Definition, definition_of, definitions
from tests.support.jars import JarSet
from tests.support.java_messages import JavaMessages, to_json
from tests.support.samples import SHAPES, sample

pytestmark = pytest.mark.java

CLASSES = [make(key) for key in API for make in (request_class, response_class)] + [RequestHeader, ResponseHeader]


class Kafkas:
    """Both versions of Kafka, started when they are first needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[JarSet, JavaMessages] = {}

    def of(self, project: JarSet) -> JavaMessages:
        if project not in self._running:
            self._running[project] = self._stack.enter_context(JavaMessages(project))
        return self._running[project]

    def speaking(self, cls: type[Message], version: int) -> tuple[JavaMessages, Definition]:
        definition = definition_of(cls.__name__, version)
        assert definition is not None
        newest = definitions(NEWEST).get(cls.__name__) is definition
        return self.of(NEWEST if newest else OLD), definition


@pytest.fixture(scope="module")
def kafkas() -> Iterator[Kafkas]:
    with ExitStack() as stack:
        yield Kafkas(stack)


def encode(message: Message, version: int) -> bytes:
    return bytes(type(message).encode[version](message, bytearray()))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_bytes_are_kafkas_in_every_version(cls: type[Message], kafkas: Kafkas) -> None:
    for version in range(cls.versions[0], cls.versions[1] + 1):
        kafka, definition = kafkas.speaking(cls, version)
        for name, shape in SHAPES.items():
            where = f"{cls.__name__} v{version} {name}"
            message = sample(cls, version, shape)
            data = encode(message, version)
            assert data == kafka.write(cls.__name__, version, to_json(definition, version, message)), where
            assert kafka.echo(cls.__name__, version, data) == data, where
            assert cls.decode[version](memoryview(data)) == (message, len(data)), where


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_defaults_are_kafkas_in_every_version(cls: type[Message], kafkas: Kafkas) -> None:
    for version in range(cls.versions[0], cls.versions[1] + 1):
        kafka, _ = kafkas.speaking(cls, version)
        data = kafka.default(cls.__name__, version)
        assert encode(cls(), version) == data, f"{cls.__name__} v{version}"
        assert cls.decode[version](memoryview(data)) == (cls(), len(data)), f"{cls.__name__} v{version}"


def test_error_codes_are_kafkas(kafkas: Kafkas) -> None:
    ours = [(code.value, code.name, code.retriable) for code in ErrorCode]
    assert ours == kafkas.of(NEWEST).errors()
    assert len(ours) == 138
