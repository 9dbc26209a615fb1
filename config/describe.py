"""Configs as DescribeConfigs shows them: value, source, synonyms, type, and whether it may be changed.

Secrets have no value here. A key that this broker does not know is taken for a secret, as in Kafka, for it may be one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.config.broker_config import BrokerConfig, ConfigSource, expand_aliases, topic_values
from klamm.config.broker_keys import BROKER_KEYS, TOPIC_ALIASES, without_listener
from klamm.config.definitions import ConfigError, ConfigKey, Source, Type, to_text
from klamm.config.known import DYNAMIC_ONLY
from klamm.config.topic_keys import TOPIC_KEYS


class ConfigEntry(NamedTuple):
    """One line of the answer. `type` is 0 for a key of unknown type; `synonyms` has the place in effect first."""

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
    """The config of one broker, by name; `names` limits it, `None` is all."""
    all_names = sorted({*BROKER_KEYS, *config.originals, *config.dynamic_default, *config.dynamic_broker})
    return [_broker_entry(config, name) for name in all_names if names is None or name in names]


def describe_cluster_default(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """The dynamic config that all brokers share (the resource with the empty name): only what is set there."""
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
    """The config of one topic with these overrides, by name."""
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


def check_dynamic(name: str, text: str | None, *, per_broker: bool) -> None:
    """Raise `ConfigError` when a broker's `name` cannot be set (or, with no text, removed) at run time."""
    row = BROKER_KEYS.get(without_listener(name))
    if row is None:
        if name in DYNAMIC_ONLY:
            _check_rate(name, text)
        return
    if row.dynamic == "read-only":
        raise ConfigError(f"Cannot update these configs dynamically: Set({name})")
    if row.dynamic == "per-broker" and not per_broker:
        raise ConfigError(
            f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
        )
    if text is not None:
        value = row.parse(text)
        if row.refuse and value != row.default:
            raise ConfigError(f"Invalid value {row.shown(text)} for configuration {name}: {row.refuse}")


def _check_rate(name: str, text: str | None) -> None:
    if text is not None:
        row = ConfigKey(name, Type.LONG, None, "")
        if (rate := row.parse(text)) is not None and isinstance(rate, int) and rate < 0:
            raise ConfigError(f"Invalid value {text} for configuration {name}: Value must be at least 0")


def _broker_entry(config: BrokerConfig, name: str) -> ConfigEntry:
    row = BROKER_KEYS.get(without_listener(name))
    places = _own_places(config, name)
    source = places[0].source if places else Source.DEFAULT
    read_only = (row.dynamic == "read-only") if row is not None else name not in DYNAMIC_ONLY
    text = to_text(config.raw[name]) if name in config.raw else None
    return _entry(name, row, text, source, tuple(places), read_only=read_only)


def _own_places(config: BrokerConfig, name: str) -> list[ConfigSource]:
    """The places of `name` from the first that sets itself on: as Kafka, a value that comes from a fallback alone (from
    hours, say) is described as a default without synonyms.
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
