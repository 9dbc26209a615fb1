"""Configs as DescribeConfigs shows them: value, source, synonyms, type, and whether it may be changed.

Secrets have no value here. A key unknown to this broker is treated as a secret, as in Kafka, for it may be one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.config.broker_config import BrokerConfig, ConfigSource, expand_aliases, parse_broker_value, topic_values
from klamm.config.broker_keys import BROKER_KEYS, LISTENER_PREFIX, TOPIC_ALIASES, without_listener
from klamm.config.definitions import ConfigError, ConfigKey, Source, Value, to_text
from klamm.config.group_keys import GROUP_KEYS
from klamm.config.known import DYNAMIC_ONLY
from klamm.config.topic_keys import TOPIC_KEYS


class ConfigEntry(NamedTuple):
    """One line of the response. `type` is 0 for a key of unknown type; `synonyms` begins with the source in effect."""

    name: str
    value: str | None
    source: Source
    synonyms: tuple[ConfigSource, ...]
    type: int
    doc: str | None
    sensitive: bool
    read_only: bool

    @property
    def is_default(self) -> bool:
        return self.source is Source.DEFAULT


def describe_broker(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return the config of one broker, sorted by name; `names` limits it, `None` is all."""
    all_names = sorted({*BROKER_KEYS, *config.originals, *config.dynamic_default, *config.dynamic_broker})
    return [_broker_entry(config, name) for name in all_names if names is None or name in names]


def describe_cluster_default(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Return the dynamic config that all brokers share (the resource with the empty name): only its own values."""
    found = []
    for name in sorted(config.dynamic_default):
        if names is None or name in names:
            entry = _broker_entry(config, name)
            shared = tuple(place for place in entry.synonyms if place.source is Source.DYNAMIC_DEFAULT_BROKER)
            text = None if entry.sensitive else config.dynamic_default[name]
            found.append(
                _entry(
                    name, BROKER_KEYS.get(name), text, Source.DYNAMIC_DEFAULT_BROKER, shared, read_only=entry.read_only
                )
            )
    return found


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Return the config of one topic with these overrides, sorted by name."""
    texts = expand_aliases(overrides, TOPIC_ALIASES)
    values = topic_values(config, overrides)
    found = []
    for name, row in sorted(TOPIC_KEYS.items()):
        if (names is not None and name not in names) or name.startswith("internal."):
            continue
        text = to_text(row.parse(texts[name]) if name in texts else values[name])
        places = tuple(_own_places(config, row.fallbacks[0][0])) if row.fallbacks else ()
        if name in texts:
            places = (ConfigSource(name, text, Source.TOPIC), *places)
        source = places[0].source if places else Source.DEFAULT
        found.append(_entry(name, row, text, source, places, read_only=False))
    return found


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Return the config of one group with these overrides, sorted by name."""
    found = []
    for name, row in sorted(GROUP_KEYS.items()):
        if names is not None and name not in names:
            continue
        behind = row.fallbacks[0][0] if row.fallbacks else name
        places = tuple(_own_places(config, behind)) or (ConfigSource(name, to_text(row.default), Source.DEFAULT),)
        text = to_text(_inherited(config, name))
        if name in overrides:
            text = to_text(row.parse(overrides[name]))
            places = (ConfigSource(name, text, Source.GROUP), *places)
        found.append(_entry(name, row, text, places[0].source, places, read_only=False))
    return found


def check_group(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise `ConfigError` unless a group may have these overrides: known keys, within the broker's limits."""
    values = {}
    for name, text in overrides.items():
        row = GROUP_KEYS.get(name)
        if row is None:
            raise ConfigError(f"Unknown group config name: {name}")
        values[name] = value = row.parse(text)
        kind, _, rest = name.partition(".")
        low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
        if low in config and high in config and isinstance(value, int):
            least, most = config.integer(low), config.integer(high)
            if not least <= value <= most:
                raise ConfigError(f"{name} must be in the range {least} to {most} inclusive.")
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session in values or heartbeat in values:
            first, second = (values.get(name, _inherited(config, name)) for name in (session, heartbeat))
            assert isinstance(first, int) and isinstance(second, int)
            if first <= second:
                raise ConfigError(f"{session} must be greater than {heartbeat}")


def _inherited(config: BrokerConfig, name: str) -> Value:
    """Return the value for a group that does not set the key."""
    behind = f"group.{name}"
    return config[behind] if behind in config else GROUP_KEYS[name].default


def check_dynamic(name: str, text: str | None, *, per_broker: bool) -> None:
    """Raise `ConfigError` when a broker's `name` cannot be set (or, with no text, removed) at run time."""
    row = BROKER_KEYS.get(without_listener(name))
    if row is None:
        if name in DYNAMIC_ONLY and text is not None:
            parse_broker_value(name, text)
        return
    if row.dynamic == "read-only":
        raise ConfigError(f"Cannot update these configs dynamically: Set({name})")
    if row.name.startswith("ssl.") and not name.startswith(LISTENER_PREFIX):
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"Set({name})"
        )
    if row.dynamic == "per-broker" and not per_broker:
        raise ConfigError(
            f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
        )
    if text is not None:
        value = row.parse(text)
        if row.refuse and value != row.default and value not in row.accepts:
            raise ConfigError(f"Invalid value {row.shown(text)} for configuration {name}: {row.refuse}")


def _broker_entry(config: BrokerConfig, name: str) -> ConfigEntry:
    row = BROKER_KEYS.get(without_listener(name))
    places = _own_places(config, name)
    source = places[0].source if places else Source.DEFAULT
    read_only = (row.dynamic == "read-only") if row is not None else name not in DYNAMIC_ONLY
    text = to_text(config.raw[name]) if name in config.raw else None
    return _entry(name, row, text, source, tuple(places), read_only=read_only)


def _own_places(config: BrokerConfig, name: str) -> list[ConfigSource]:
    """Return the sources of `name` from the first that sets it itself.

    As in Kafka, a value that comes only from a fallback (from hours, say) is described as a default without synonyms.
    """
    places = config.sources(name)
    while places and places[0].name != name:
        places.pop(0)
    return places


def _entry(
    name: str,
    row: ConfigKey | None,
    text: str | None,
    source: Source,
    places: tuple[ConfigSource, ...],
    *,
    read_only: bool,
) -> ConfigEntry:
    sensitive = row.sensitive if row is not None else name not in DYNAMIC_ONLY
    if sensitive:
        text = None
        places = tuple(ConfigSource(place.name, None, place.source) for place in places)
    kind = int(row.type) if row is not None else 0
    return ConfigEntry(name, text, source, places, kind, row.doc if row is not None else None, sensitive, read_only)
