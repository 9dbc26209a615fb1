"""Klamm's tables beside Apache Kafka's own definitions, taken from its jars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from klamm.config import rows_tls
from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.definitions import ConfigError, ConfigKey, Type, to_text
from klamm.config.known import KNOWN
from klamm.config.rows_cluster import OLD
from klamm.config.topic_keys import TOPIC_KEYS
from tests.support.jars import run_java

pytestmark = pytest.mark.java

HARNESS = Path(__file__).parent / "KafkaDefinitions.java"

# Why a default or limit is not Kafka's.
OTHER_DEFAULT = {
    "controller.listener.names": "optional: there is no KRaft quorum",
    "listeners": "only the loopback is opened by default",
    "log.dir": "a directory that survives a restart of the machine",
    "max.decompressed.message.bytes": "2 GiB would let a small request take all memory",
    "node.id": "a single node needs no file",
    "process.roles": "a single node needs no file",
}
# Changing these while the broker runs would need listeners that come and go, TLS, SASL, or Java classes.
READ_ONLY_HERE = {
    *(
        "listeners",
        "listener.security.protocol.map",
        "principal.builder.class",
        "config.providers",
        "cordoned.log.dirs",
    ),
    *("sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol"),
    *(row.name for row in rows_tls.ROWS if row.dynamic == "read-only"),
} - {
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.principal.mapping.rules",
    *(row.name for row in rows_tls.ROWS if row.name.startswith("klamm.")),
}
# Addresses of a KRaft quorum, which nobody reads here.
NOT_READ = {"controller.quorum.voters", "controller.quorum.bootstrap.servers"}
# Keys of our tables that are in no ConfigDef of Kafka 4.4: of its authorizer, and of older releases.
NOT_IN_KAFKA = {"super.users", "allow.everyone.if.no.acl.found", *(row.name for row in OLD)}


class Definition(NamedTuple):
    kind: str
    name: str
    type: str
    default: str
    limits: str
    importance: str
    internal: str
    mode: str
    synonyms: str


@pytest.fixture(scope="module")
def kafka() -> dict[tuple[str, str], Definition]:
    lines = run_java("broker", HARNESS).splitlines()
    definitions = [Definition(*line.split("\t")) for line in lines]
    return {(definition.kind, definition.name): definition for definition in definitions}


def ours() -> Iterator[tuple[str, ConfigKey]]:
    for row in BROKER_KEYS.values():
        if not row.name.startswith("klamm.") and row.name not in NOT_IN_KAFKA:
            yield "broker", row
    for row in TOPIC_KEYS.values():
        if not row.name.startswith("klamm."):
            yield "topic", row


def differences(kafka: dict[tuple[str, str], Definition], fact: str) -> list[str]:
    found = []
    for kind, row in ours():
        theirs = kafka[kind, row.name]
        pair = {
            "type": (row.type.name, theirs.type),
            "default": (
                "<null>" if row.default is None else to_text(row.default),
                theirs.default.removeprefix("class "),
            ),
            "limits": (
                "" if row.validator is None else str(row.validator),
                theirs.limits.replace("non-null string", ""),
            ),
            "importance": (row.importance, theirs.importance),
            "mode": (row.dynamic, theirs.mode or "cluster-wide"),
        }[fact]
        if pair[0] != pair[1] and not (fact == "limits" and row.name in NOT_READ):
            found.append(f"{kind} {row.name}: {pair[0]!r}, Kafka {pair[1]!r}")
    return found


def test_types_are_kafkas(kafka):
    assert differences(kafka, "type") == []


def test_importance_is_kafkas(kafka):
    assert differences(kafka, "importance") == []


def test_limits_are_kafkas(kafka):
    assert differences(kafka, "limits") == []


def test_defaults_are_kafkas_but_for_named_exceptions(kafka):
    assert {line.split()[1].rstrip(":") for line in differences(kafka, "default")} == OTHER_DEFAULT.keys()


def test_dynamic_modes_are_kafkas_but_for_named_exceptions(kafka):
    assert {line.split()[1].rstrip(":") for line in differences(kafka, "mode")} == READ_ONLY_HERE
    assert all(BROKER_KEYS[name].dynamic == "read-only" for name in READ_ONLY_HERE)


def test_every_key_of_kafka_is_known(kafka):
    broker = {name for kind, name in kafka if kind == "broker"}
    topic = {name for kind, name in kafka if kind == "topic"}
    assert broker - BROKER_KEYS.keys() == KNOWN
    assert topic == {name for name in TOPIC_KEYS if not name.startswith("klamm.")}
    assert {name for name in BROKER_KEYS if not name.startswith("klamm.")} - broker == NOT_IN_KAFKA


def test_topic_keys_take_their_defaults_from_kafkas_broker_keys(kafka):
    for name, row in ((row.name, row) for kind, row in ours() if kind == "topic"):
        given = ",".join(f"{broker_key}={factor}" for broker_key, factor in row.fallbacks)
        assert given == kafka["topic", name].synonyms, name


def candidates(row: ConfigKey) -> set[str]:
    """Texts at and around what the key takes, and much that it does not."""
    texts = {
        "",
        " ",
        "abc",
        "0",
        "1",
        "-1",
        "-2",
        " 5 ",
        "+7",
        "1_000",
        "0x10",
        "1.5",
        ".5",
        "5.",
        "1e3",
        "1e-9",
        "TRUE",
        "True",
    }
    texts |= {
        "false ",
        "yes",
        "a,b",
        "a , b",
        "a,,b",
        "a,",
        ",a",
        "a,a",
        "*",
        "0:1,1:2",
        "0:1:2",
        "none",
        "Infinity",
        "1d",
        "12345678.25",
    }
    for power in (8, 15, 31, 63, 64):
        texts |= {str(sign * (1 << power) + step) for sign in (1, -1) for step in (-1, 0, 1)}
    least, most = getattr(row.validator, "least", None), getattr(row.validator, "most", None)
    texts |= {str(bound + step) for bound in (least, most) if bound is not None for step in (-1, 0, 1)}
    words = getattr(row.validator, "words", ())
    texts |= {
        *words,
        ",".join(words),
        ",".join((*words, *words)),
        *(word.lower() for word in words),
        *(word.upper() for word in words),
    }
    return texts


def read_by_both(row: ConfigKey) -> bool:
    """A class must exist in Java, while its name is all we have."""
    return row.type is not Type.CLASS and row.name not in NOT_READ


def test_texts_are_read_and_shown_as_kafka_does():
    cases = [(kind, row, text) for kind, row in ours() if read_by_both(row) for text in sorted(candidates(row))]
    asked = "".join(f"{kind}\t{row.name}\t{text}\n" for kind, row, text in cases)
    answers = run_java("broker", HARNESS, "read", input_text=asked).splitlines()
    assert len(answers) == len(cases)
    wrong = []
    for (kind, row, text), answer in zip(cases, answers, strict=True):
        try:
            mine = f"ok\t{to_text(row.parse(text))}"
        except ConfigError:
            mine = "bad"
        if mine != answer:
            wrong.append(f"{kind} {row.name}={text!r}: {mine!r}, Kafka {answer!r}")
    assert wrong == []
