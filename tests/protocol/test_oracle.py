"""Every declaration against Kafka's own message definitions, field by field and version by version.

The newest kafka-clients jar speaks for its versions, the old one for those that Kafka 4.0 removed.
"""

from __future__ import annotations

import dataclasses

import pytest

from klamm.protocol.apis import API, ApiKey, request_class, response_class
from klamm.protocol.headers import RequestHeader, ResponseHeader
from klamm.protocol.schema import Message
from tests.support.definitions import (
    NEWEST,
    OLD,
    Definition,
    FieldLayout,
    declared_layout,
    definition_of,
    definitions,
    is_flexible,
    layout,
)
from tests.support.jars import JarSet

pytestmark = pytest.mark.java

# Version 0 of the share group APIs was early access and never meant to be spoken.
EARLY_ACCESS = {76, 77, 78, 79}

CLASSES: list[tuple[str, type[Message]]] = [
    *((f"{API[key].name}Request", request_class(key)) for key in API),
    *((f"{API[key].name}Response", response_class(key)) for key in API),
    ("RequestHeader", RequestHeader),
    ("ResponseHeader", ResponseHeader),
]


def broker_definitions(project: JarSet) -> dict[int, Definition]:
    return {
        definition.api_key: definition
        for definition in definitions(project).values()
        if definition.kind == "request" and "broker" in definition.listeners and definition.api_key is not None
    }


def published_versions(name: str, api_key: int | None) -> tuple[int, int]:
    """First and last version over both jars."""
    newest = definitions(NEWEST)[name].valid
    old = definitions(OLD).get(name)
    first, last = newest
    if old is not None and api_key not in EARLY_ACCESS and old.valid[0] <= old.valid[1]:
        first = min(first, old.valid[0])
    return first, last


def test_the_apis_are_exactly_those_of_a_kafka_broker() -> None:
    expected = broker_definitions(NEWEST)
    assert len(expected) == 79
    assert {key: info.name + "Request" for key, info in API.items()} == {k: d.name for k, d in expected.items()}
    assert {key.value for key in ApiKey} == set(API)


@pytest.mark.parametrize("key", sorted(API))
def test_api_row(key: int) -> None:
    info = API[key]
    definition = broker_definitions(NEWEST)[key]
    assert (info.min_version, info.max_version) == published_versions(definition.name, key)
    first_flexible, _ = definition.flexible
    assert info.first_flexible_version == (first_flexible if definition.flexible != (1, 0) else None)
    assert info.latest_version_unstable == definition.latest_version_unstable
    assert info.module == ApiKey(key).name.lower()


@pytest.mark.parametrize(("name", "cls"), CLASSES, ids=lambda value: value if isinstance(value, str) else "")
def test_message_is_declared_as_kafka_defines_it(name: str, cls: type[Message]) -> None:
    newest = definitions(NEWEST)[name]
    assert cls.__name__ == name
    assert (cls.kind, cls.api_key) == (newest.kind, newest.api_key)
    assert cls.versions == published_versions(name, cls.api_key)
    for version in range(cls.versions[0], cls.versions[1] + 1):
        definition = definition_of(name, version)
        assert definition is not None, f"{name} v{version} is in neither jar"
        assert is_flexible(cls, version) == is_flexible(definition, version), f"{name} v{version}"
        ours, kafkas = declared_layout(cls, version), layout(definition, version)
        compare(ours, kafkas, cls, f"{name} v{version}", removed=definition is not newest)


def compare(
    ours: tuple[FieldLayout, ...], kafkas: tuple[FieldLayout, ...], cls: type[Message], where: str, *, removed: bool
) -> None:
    """The same fields in the same order. A field that the version does not have may be known to one side only."""
    present = [field.name for field in ours if field.present]
    assert present == [field.name for field in kafkas if field.present], where
    by_name = {field.name: field for field in ours}
    for kafka in kafkas:
        inner = f"{where}: {kafka.name}"
        if kafka.name not in by_name:
            assert kafka.versions[1] < cls.versions[0], f"{inner} is not declared"
            continue
        our = dataclasses.replace(by_name[kafka.name], fields=())
        moot = kafka.present or kafka.versions != our.versions
        if moot and (removed or cls is RequestHeader):
            # Whether a field may be dropped says nothing where it is there, and changes with the field's versions; 3.9
            # says that the header's client_id is ignorable in v0, which 4.4 has lost with the version.
            our = dataclasses.replace(our, ignorable=kafka.ignorable)
        if our.type in (cls.__name__ + kafka.type, cls.kind.capitalize() + kafka.type):
            # Request and response have different structs of one name.
            our = dataclasses.replace(our, type=kafka.type)
        assert our == dataclasses.replace(kafka, fields=()), inner
        compare(by_name[kafka.name].fields, kafka.fields, cls, inner, removed=removed)
