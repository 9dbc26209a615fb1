"""The config of a broker: Kafka's keys with their defaults and limits, and the sources of their values.

`load` reads files, environment and overrides into a `BrokerConfig`; `topic_values` lays a topic's own values over it;
`describe` shows either as DescribeConfigs does. The only I/O is reading config.
"""

from __future__ import annotations

from klamm.config.broker_config import BrokerConfig, topic_values, validate_topic
from klamm.config.broker_keys import BROKER_KEYS
from klamm.config.definitions import ConfigError, ConfigKey, Source, Type
from klamm.config.describe import (
    ConfigEntry,
    check_dynamic,
    check_group,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from klamm.config.group_keys import GROUP_KEYS
from klamm.config.listener_config import ListenerConfig, listener_config
from klamm.config.listeners import Listener
from klamm.config.load import load, notes
from klamm.config.topic_keys import TOPIC_KEYS

__all__ = [
    "BROKER_KEYS",
    "GROUP_KEYS",
    "TOPIC_KEYS",
    "BrokerConfig",
    "ConfigEntry",
    "ConfigError",
    "ConfigKey",
    "Listener",
    "ListenerConfig",
    "Source",
    "Type",
    "check_dynamic",
    "check_group",
    "describe_broker",
    "describe_cluster_default",
    "describe_group",
    "describe_topic",
    "listener_config",
    "load",
    "notes",
    "topic_values",
    "validate_topic",
]
