"""Configs as DescribeConfigs shows them."""

from __future__ import annotations

import pytest

from klamm.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    ConfigError,
    Source,
    Type,
    check_dynamic,
    describe_broker,
    describe_cluster_default,
    describe_topic,
    load,
)


def config(*overrides: str):
    return load(None, overrides, {})


def test_a_broker_shows_every_key_once_with_its_default():
    entries = describe_broker(config())
    assert [entry.name for entry in entries] == sorted(BROKER_KEYS)
    assert all(entry.is_default and entry.doc for entry in entries)


def test_a_topic_shows_every_public_key_once():
    entries = describe_topic(config(), {})
    assert [entry.name for entry in entries] == sorted(TOPIC_KEYS.keys() - {"internal.segment.bytes"})


def test_an_overridden_topic_key_lists_what_it_hides():
    (entry,) = describe_topic(
        config("log.retention.ms=7", "log.retention.hours=2"), {"retention.ms": "5"}, ["retention.ms"]
    )
    assert (entry.value, entry.source, entry.type, entry.read_only) == ("5", Source.TOPIC, Type.LONG, False)
    assert [(place.name, place.text, place.source) for place in entry.synonyms] == [
        ("retention.ms", "5", Source.TOPIC),
        ("log.retention.ms", "7", Source.STATIC_BROKER),
        ("log.retention.hours", "2", Source.STATIC_BROKER),
        ("log.retention.hours", "168", Source.DEFAULT),
    ]


def test_a_topic_key_from_the_brokers_file_says_so():
    (entry,) = describe_topic(config("log.retention.ms=7"), {}, {"retention.ms"})
    assert (entry.value, entry.source) == ("7", Source.STATIC_BROKER)


def test_a_topic_key_from_a_fallback_is_called_a_default_as_in_kafka():
    (entry,) = describe_topic(config("log.retention.hours=2"), {}, {"retention.ms"})
    assert (entry.value, entry.source, entry.synonyms) == ("7200000", Source.DEFAULT, ())


def test_secrets_and_unknown_keys_have_no_value():
    entries = describe_broker(config("ssl.key.password=hush", "some.key=hush"), ["ssl.key.password", "some.key"])
    assert [(entry.name, entry.value, entry.sensitive) for entry in entries] == [
        ("some.key", None, True),
        ("ssl.key.password", None, True),
    ]
    assert "hush" not in repr(entries)


def test_values_are_shown_as_java_shows_them():
    names = {
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.min.cleanable.ratio",
        "auto.create.topics.enable",
        "log.dirs",
    }
    shown = {entry.name: entry.value for entry in describe_broker(config("log.dirs=a , b"), names)}
    assert shown == {
        "auto.create.topics.enable": "true",
        "log.cleaner.io.max.bytes.per.second": "1.7976931348623157E308",
        "log.cleaner.min.cleanable.ratio": "0.5",
        "log.dirs": "a,b",
    }


def test_the_default_of_all_brokers_shows_only_what_is_set_there():
    changed = config("max.connections=5").with_dynamic({"max.connections": "9"}, {"message.max.bytes": "7"})
    (entry,) = describe_cluster_default(changed)
    assert (entry.name, entry.value, entry.source) == ("max.connections", "9", Source.DYNAMIC_DEFAULT_BROKER)
    assert [place.source for place in entry.synonyms] == [Source.DYNAMIC_DEFAULT_BROKER]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("node.id", "5", "Cannot update these configs dynamically"),
        ("listeners", "PLAINTEXT://:1", "Cannot update these configs dynamically"),
        ("max.connections", "-1", "Value must be at least 0"),
        ("leader.replication.throttled.rate", "-1", "Value must be at least 0"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "3MB", "Not a number of type LONG"),
    ],
)
def test_what_cannot_change_at_run_time_is_refused(name, text, problem):
    with pytest.raises(ConfigError, match=problem):
        check_dynamic(name, text, per_broker=True)


def test_what_can_change_at_run_time():
    check_dynamic("max.connections", "5", per_broker=False)
    check_dynamic("max.connections", None, per_broker=False)
    check_dynamic("listener.name.plaintext.max.connections", "5", per_broker=True)
    check_dynamic("leader.replication.throttled.rate", "5", per_broker=True)
