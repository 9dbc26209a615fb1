"""Layers, fallbacks between keys, and the values of topics."""

from __future__ import annotations

import pytest

from klamm.config import ConfigError, Source, load, topic_values, validate_topic
from klamm.config.broker_config import BrokerConfig
from klamm.config.topic_keys import TOPIC_KEYS

HOUR_MS = 3_600_000


def config(*overrides: str):
    return load(None, overrides, {})


@pytest.mark.parametrize(
    ("overrides", "retention_ms"),
    [
        ([], 168 * HOUR_MS),
        (["log.retention.hours=2"], 2 * HOUR_MS),
        (["log.retention.hours=2", "log.retention.minutes=5"], 300_000),
        (["log.retention.hours=2", "log.retention.minutes=5", "log.retention.ms=7"], 7),
        (["log.retention.hours=-1"], -1),
        (["log.retention.ms=-7"], -1),
    ],
)
def test_retention_is_taken_from_the_finest_unit(overrides, retention_ms):
    changed = config(*overrides)
    assert changed["log.retention.ms"] == retention_ms
    assert topic_values(changed, {})["retention.ms"] == retention_ms


def test_roll_and_flush_times_fall_back():
    changed = config("log.roll.hours=3", "log.roll.jitter.hours=1", "log.flush.scheduler.interval.ms=9")
    values = topic_values(changed, {})
    assert [values[name] for name in ("segment.ms", "segment.jitter.ms", "flush.ms")] == [3 * HOUR_MS, HOUR_MS, 9]


@pytest.mark.parametrize("old", ["log.message.timestamp.difference.max.ms", "max.message.time.difference.ms"])
def test_the_old_timestamp_limit_sets_both_new_ones(old):
    values = topic_values(config(f"{old}=5"), {})
    assert (values["message.timestamp.before.max.ms"], values["message.timestamp.after.max.ms"]) == (5, 5)
    values = topic_values(config(f"{old}=5", "log.message.timestamp.after.max.ms=6"), {})
    assert (values["message.timestamp.before.max.ms"], values["message.timestamp.after.max.ms"]) == (5, 6)


def test_the_old_timestamp_limit_of_a_topic_sets_both_new_ones():
    overrides = {"message.timestamp.difference.max.ms": "5"}
    validate_topic(overrides)
    values = topic_values(config(), overrides)
    assert (values["message.timestamp.before.max.ms"], values["message.timestamp.after.max.ms"]) == (5, 5)


def test_a_topic_override_wins_over_the_broker():
    values = topic_values(
        config("log.segment.bytes=2000000"), {"segment.bytes": "3000000", "cleanup.policy": "compact,delete"}
    )
    assert values.keys() == TOPIC_KEYS.keys()
    assert values["segment.bytes"] == 3000000
    assert values["cleanup.policy"] == ["compact", "delete"]
    assert topic_values(config("log.segment.bytes=2000000"), {})["segment.bytes"] == 2000000


def test_the_internal_segment_size_goes_below_the_limit():
    assert topic_values(config(), {"internal.segment.bytes": "1024"})["segment.bytes"] == 1024


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"retention.ms": "-5"}, "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
        ({"retention.mss": "5"}, "Unknown topic config name: retention.mss"),
        ({"cleanup.policy": "delete,delete"}, "values must not be duplicated"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"}, "min.compaction.lag.ms"),
        ({"remote.storage.enable": "true"}, "remote storage does not exist here"),
    ],
)
def test_bad_topic_overrides_are_refused(overrides, problem):
    with pytest.raises(ConfigError, match=problem):
        validate_topic(overrides)


def test_limits_between_topic_keys_count_the_brokers_values():
    validate_topic({"max.compaction.lag.ms": "5"})
    with pytest.raises(ConfigError, match="conflict"):
        validate_topic({"max.compaction.lag.ms": "5"}, config("log.cleaner.min.compaction.lag.ms=9"))


def test_dynamic_values_of_this_broker_win_over_those_of_all():
    static = config("message.max.bytes=1")
    changed = static.with_dynamic({"message.max.bytes": "2", "max.connections": "9"}, {"message.max.bytes": "3"})
    assert (static["message.max.bytes"], changed["message.max.bytes"], changed["max.connections"]) == (1, 3, 9)
    assert [(place.text, place.source) for place in changed.sources("message.max.bytes")] == [
        ("3", Source.DYNAMIC_BROKER),
        ("2", Source.DYNAMIC_DEFAULT_BROKER),
        ("1", Source.STATIC_BROKER),
        ("1048588", Source.DEFAULT),
    ]
    assert changed.with_dynamic({}, {})["message.max.bytes"] == 1


def test_sources_list_the_keys_that_are_fallen_back_to():
    changed = config("log.retention.hours=2", "log.retention.minutes=3")
    assert [place.name for place in changed.sources("log.retention.ms")] == [
        "log.retention.minutes",
        "log.retention.hours",
        "log.retention.hours",
    ]


def test_log_dirs_wins_over_log_dir():
    assert [str(path) for path in config("log.dir=a", "log.dirs=b, c").log_dirs] == ["b", "c"]
    assert [str(path) for path in config("log.dir=a").log_dirs] == ["a"]


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("group.consumer.session.timeout.ms", "30000", r"must be in \[45000, 60000\]"),
        ("group.consumer.heartbeat.interval.ms", "70000", r"must be in \[5000, 15000\]"),
        ("group.coordinator.rebalance.protocols", "consumer", "must have classic"),
        ("offsets.topic.compression.codec", "9", r"must be in \[0, 4\]"),
    ],
)
def test_what_groups_could_not_work_with_is_refused_as_by_kafka(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BrokerConfig({name: value})
