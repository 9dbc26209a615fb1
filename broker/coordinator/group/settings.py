"""Limits and settings of consumer groups, from the configs of the broker and of single groups.

A group's own config (``consumer.session.timeout.ms`` of resource type GROUP) overrides the broker's key with ``group.``
before it, within the broker's limits. As in Kafka, a value outside of the current limits counts as the nearest limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from klamm.broker.coordinator.group.consumer.limits import ConsumerLimits, GroupSettings
from klamm.config import GROUP_KEYS
from klamm.config.broker_config import GROUP_ASSIGNORS

if TYPE_CHECKING:
    from klamm.config.broker_config import BrokerConfig


def consumer_limits(config: BrokerConfig) -> ConsumerLimits:
    names = config["group.consumer.assignors"]
    assert isinstance(names, list)
    return ConsumerLimits(
        max_size=config.integer("group.consumer.max.size"),
        assignors=tuple(dict.fromkeys(GROUP_ASSIGNORS[name] for name in names)),
        migration=config.text("group.consumer.migration.policy").lower(),
        classic_max_size=config.integer("group.max.size"),
    )


def group_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> GroupSettings:
    def value(name: str, broker_name: str, least: str, most: str) -> int:
        text = overrides.get(name)
        number = GROUP_KEYS[name].parse(text) if text is not None else config.integer(broker_name)
        assert isinstance(number, int)
        return max(config.integer(least), min(number, config.integer(most)))

    return GroupSettings(
        session_timeout_ms=value(
            "consumer.session.timeout.ms",
            "group.consumer.session.timeout.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
        heartbeat_interval_ms=value(
            "consumer.heartbeat.interval.ms",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
        assignment_interval_ms=value(
            "consumer.assignment.interval.ms",
            "group.consumer.assignment.interval.ms",
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.max.assignment.interval.ms",
        ),
    )
