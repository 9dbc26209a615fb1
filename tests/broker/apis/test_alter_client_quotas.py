"""DescribeClientQuotas and AlterClientQuotas: set quotas are described, and a refused request changes nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from klamm.protocol.messages import alter_client_quotas as alter
from klamm.protocol.messages import describe_client_quotas as describe
from tests.support.embedded import EmbeddedBroker

EXACT, DEFAULT, ANY = range(3)
Parts = dict[str, str | None]
CLIENT_QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"]


def entry(parts: Parts | list[tuple[str, str | None]], *ops: tuple[str, float | None]) -> alter.EntryData:
    pairs = parts.items() if isinstance(parts, dict) else parts
    return alter.EntryData(
        entity=[alter.EntityData(entity_type=kind, entity_name=name) for kind, name in pairs],
        ops=[alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def change(broker: EmbeddedBroker, *entries: alter.EntryData, validate_only: bool = False, version: int = 1) -> Any:
    request = alter.AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [row.error_code for row in broker.call(request, version).entries]


def ask(
    broker: EmbeddedBroker, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1
) -> Any:
    return broker.call(
        describe.DescribeClientQuotasRequest(
            components=[
                describe.ComponentData(entity_type=kind, match_type=match, match=name)
                for kind, match, name in components
            ],
            strict=strict,
        ),
        version,
    )


def found(response: Any) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    assert response.error_code == 0
    return {
        tuple((part.entity_type, part.entity_name) for part in row.entity): {v.key: v.value for v in row.values}
        for row in response.entries
    }


@pytest.mark.parametrize("version", [0, 1])
def test_set_described_and_removed(broker: EmbeddedBroker, version: int) -> None:
    user = entry({"user": "alice"}, ("producer_byte_rate", 1000.0), ("request_percentage", 12.5))
    assert change(broker, user, entry({"ip": "10.0.0.1"}, ("connection_creation_rate", 5.0)), version=version) == [0, 0]
    expected = {
        (("user", "alice"),): {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
    }
    assert found(ask(broker, version=version)) == expected
    removal = entry({"user": "alice"}, ("producer_byte_rate", None), ("consumer_byte_rate", None))
    assert change(broker, removal, version=version) == [0], "a quota that is not set may be removed"
    assert found(ask(broker, ("user", ANY, None)))[("user", "alice"),] == {"request_percentage": 12.5}
    assert change(broker, entry({"user": "alice"}, ("request_percentage", None))) == [0]
    assert found(ask(broker, ("user", ANY, None))) == {}


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    names = ["/a/b", "a=b,c", "ü %2F", "<default>", "x" * 30_000]
    with EmbeddedBroker(tmp_path) as broker:
        entries = [entry({"user": name, "client-id": None}, ("consumer_byte_rate", 7.0)) for name in names]
        entries.append(entry({"user": None}, *((key, 1.0) for key in CLIENT_QUOTAS)))
        assert change(broker, *entries) == [0] * 6
        assert change(broker, entry({"user": "a=b,c", "client-id": None}, ("consumer_byte_rate", None))) == [0]
        before = found(ask(broker))
    assert len(before) == 5
    with EmbeddedBroker(tmp_path) as broker:
        assert found(ask(broker)) == before
        assert change(broker, entry({"user": "/a/b", "client-id": None}, ("consumer_byte_rate", 8.0))) == [0]
        assert found(ask(broker, ("user", EXACT, "/a/b"))) == {
            (("client-id", None), ("user", "/a/b")): {"consumer_byte_rate": 8.0}
        }


GOOD = ("producer_byte_rate", 5.0)


@pytest.mark.parametrize(
    "bad",
    [
        entry({"user": "a"}, ("producer_byte_rate", 1.5)),
        entry({"user": "a"}, ("producer_byte_rate", -1.0)),
        entry({"user": "a"}, ("request_percentage", math.nan)),
        entry({"user": "a"}, ("request_percentage", math.inf)),
        entry({"user": "a"}, ("request_percentage", 1e-300)),
        entry({"user": "a"}, ("producer_byte_rate", 1e-300)),
        entry({"user": "a"}, ("controller_mutation_rate", 1e308)),
        entry({"user": "a"}, ("producer_byte_rate", 1e308)),
        entry({"ip": "10.0.0.1"}, ("connection_creation_rate", 2.0**31)),
        entry({"user": "a"}, ("connection_creation_rate", 5.0)),
        entry({"ip": "10.0.0.1"}, GOOD),
        entry({"user": "a"}, ("nothing", 5.0)),
        entry({"user": "a"}, ("producer_byte_rate", 5.0), ("producer_byte_rate", 6.0)),
        entry({"user": ""}, GOOD),
        entry({"group": "a"}, GOOD),
        entry({}, GOOD),
        entry([("user", "a"), ("user", "b")], GOOD),
        entry({"ip": "10.0.0.1", "user": "a"}, ("connection_creation_rate", 5.0)),
        entry({"ip": "no host.invalid"}, ("connection_creation_rate", 5.0)),
        entry({"user": "a"}, GOOD, ("consumer_byte_rate", -1.0)),
    ],
    ids=str,
)
def test_what_is_refused_changes_nothing(broker: EmbeddedBroker, bad: alter.EntryData) -> None:
    assert change(broker, bad, entry({"user": "good"}, GOOD)) == [42, 0], "each entity for itself"
    assert set(found(ask(broker))) == {(("user", "good"),)}


def test_zero_is_refused_and_so_is_an_entity_twice(broker: EmbeddedBroker) -> None:
    zero = alter.EntryData(
        entity=[alter.EntityData(entity_type="user", entity_name="a")],
        ops=[alter.OpData(key="producer_byte_rate", value=0.0, remove=False)],
    )
    assert change(broker, zero) == [42]
    twice = entry({"user": "a", "client-id": "c"}, GOOD), entry({"client-id": "c", "user": "a"}, GOOD)
    assert change(broker, *twice) == [42, 42]
    assert found(ask(broker)) == {}


def test_validate_only(broker: EmbeddedBroker) -> None:
    assert change(broker, entry({"user": "a"}, GOOD), entry({"user": ""}, GOOD), validate_only=True) == [0, 42]
    assert found(ask(broker)) == {}


def test_filters(broker: EmbeddedBroker) -> None:
    entities: list[Parts] = [
        {"user": "a"}, {"user": None}, {"client-id": "c"}, {"client-id": None}, {"user": "a", "client-id": "c"},
        {"user": "a", "client-id": None}, {"user": None, "client-id": "c"}, {"ip": None},
    ]  # fmt: skip
    rows = [
        entry(parts, ("connection_creation_rate" if "ip" in parts else "producer_byte_rate", 5.0)) for parts in entities
    ]
    assert change(broker, *rows) == [0] * 8

    def matches(*components: tuple[str, int, str | None], strict: bool = False) -> list[Parts]:
        return [dict(parts) for parts in found(ask(broker, *components, strict=strict))]

    def same(left: list[Parts], right: list[Parts]) -> bool:
        return len(left) == len(right) and all(row in right for row in left)

    assert same(matches(), entities)
    assert matches(strict=True) == []
    assert same(matches(("user", EXACT, "a")), [entities[0], entities[4], entities[5]])
    assert matches(("user", EXACT, "a"), strict=True) == [entities[0]]
    assert same(matches(("user", DEFAULT, None)), [entities[1], entities[6]])
    assert same(matches(("client-id", ANY, None)), [entities[2], entities[4], entities[6]])
    assert same(matches(("user", ANY, None), ("client-id", ANY, None), strict=True), [entities[4]])
    assert matches(("ip", DEFAULT, None)) == [entities[7]]
    assert matches(("user", EXACT, "nobody")) == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", ANY, None), ("user", DEFAULT, None)], 42),
        ([("", ANY, None)], 42),
        ([("user", 3, None)], 42),
        ([("user", EXACT, None)], 42),
        ([("user", DEFAULT, "a")], 42),
        ([("user", ANY, "a")], 42),
        ([("ip", ANY, None), ("user", ANY, None)], 42),
        ([("group", ANY, None)], 35),
    ],
)
def test_what_may_not_be_asked(
    broker: EmbeddedBroker, components: list[tuple[str, int, str | None]], code: int
) -> None:
    response = ask(broker, *components)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message
