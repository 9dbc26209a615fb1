"""The resolved config of one broker: an immutable stack of layers with typed values.

Layers, strongest first: dynamic for this broker, dynamic for all brokers, static (file, environment, overrides),
defaults. Texts are kept as given beside the typed values, as DescribeConfigs shows both the value and where it comes
from. Nothing here reads files; `load` does. A changed dynamic config makes a new object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from klamm.config.broker_keys import ALIASES, BROKER_KEYS, LISTENER_PREFIX, TOPIC_ALIASES, without_listener
from klamm.config.definitions import ConfigError, ConfigKey, Source, Type, Value, to_text
from klamm.config.known import DYNAMIC_ONLY
from klamm.config.listeners import check_advertised, open_listeners, parse_listeners, parse_protocol_map
from klamm.config.topic_keys import TOPIC_KEYS
from klamm.config.validators import Range

# The names of assignors, and their classes, which were used in server.properties before Kafka 4.
GROUP_ASSIGNORS: Final = {
    **{name: name for name in ("uniform", "range")},
    **{f"org.apache.kafka.coordinator.group.assignor.{name.title()}Assignor": name for name in ("uniform", "range")},
}
_DEFAULTS: Final[dict[str, Value]] = {name: row.default for name, row in BROKER_KEYS.items()}

CODEC_COUNT = 5  # none, gzip, snappy, lz4, zstd


class ConfigSource(NamedTuple):
    """One place that gives a key a value: the name it is set under there, the text, and the kind of place."""

    name: str
    text: str | None
    source: Source


class BrokerConfig:
    """The config in effect: `config["log.segment.bytes"]` is a typed value; `log.retention.ms` includes its fallbacks.

    `listeners` are those to open; `advertised_listeners` is empty when `advertised.listeners` is not set (then
    clients get the address they dialled). `controller_listeners` are left closed. Raises `ConfigError` for any
    bad value.
    """

    def __init__(
        self,
        originals: Mapping[str, str],
        *,
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        self.originals: Final[dict[str, str]] = dict(originals)
        self.dynamic_default: Final[dict[str, str]] = dict(dynamic_default or {})
        self.dynamic_broker: Final[dict[str, str]] = dict(dynamic_broker or {})
        self._layers: Final = (
            (Source.DYNAMIC_BROKER, expand_aliases(self.dynamic_broker, ALIASES)),
            (Source.DYNAMIC_DEFAULT_BROKER, expand_aliases(self.dynamic_default, ALIASES)),
            (Source.STATIC_BROKER, expand_aliases(self.originals, ALIASES)),
        )
        self.raw: Final[dict[str, Value]] = _DEFAULTS.copy()
        for _, texts in reversed(self._layers):
            for name, text in texts.items():
                self.raw[name] = parse_broker_value(name, text)
        self._values: Final = self.raw.copy()
        self._resolve_fallbacks()
        self._resolve_identity()
        self._resolve_listeners()
        self._check_between_keys()

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def integer(self, name: str) -> int:
        """Return a number that is never None, as an `int` for the type checker."""
        value = self._values[name]
        assert isinstance(value, int), (name, value)
        return value

    def text(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), (name, value)
        return value

    def flag(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), (name, value)
        return value

    def sources(self, name: str) -> list[ConfigSource]:
        """List every source of a value for `name`, the one in effect first, with the keys it falls back to."""
        names = synonyms(name)
        found = [
            ConfigSource(known, texts[known], source)
            for source, texts in self._layers
            for known in names
            if known in texts
        ]
        for known in names:
            row = BROKER_KEYS.get(known)
            if row is not None and row.default is not None:
                found.append(ConfigSource(known, to_text(row.default), Source.DEFAULT))
        return found

    def is_set(self, name: str) -> bool:
        """Return whether some layer gives `name` (itself, not a fallback) a value."""
        return any(name in texts for _, texts in self._layers)

    def with_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """Return this config with other dynamic values: of all brokers and of this one."""
        return BrokerConfig(self.originals, dynamic_default=default, dynamic_broker=broker)

    def _resolve_fallbacks(self) -> None:
        for name, row in BROKER_KEYS.items():
            if not row.fallbacks or self.raw[name] is not None:
                continue
            for other, factor in row.fallbacks:
                value = self.raw[other]
                if value is not None:
                    self._values[name] = cast(int, value) * factor
                    break
        if cast(int, self._values["log.retention.ms"]) < 0:
            self._values["log.retention.ms"] = -1

    def _resolve_identity(self) -> None:
        node, broker = self.raw["node.id"], self.raw["broker.id"]
        if not self.is_set("node.id") and isinstance(broker, int) and broker >= 0:
            self._values["node.id"] = broker
        elif self.is_set("node.id") and self.is_set("broker.id") and node != broker and broker != -1:
            raise ConfigError(f"node.id={node} and broker.id={broker} must be equal; leave broker.id out")
        self._values["broker.id"] = self._values["node.id"]
        self.node_id = self.integer("node.id")
        directories = self.raw["log.dirs"] or self.raw["log.dir"]
        self._values["log.dirs"] = directories
        self.log_dirs = [Path(directory) for directory in cast(list[str], directories)]
        roles = cast(list[str], self.raw["process.roles"])
        if "broker" not in roles:
            raise ConfigError(f"process.roles={','.join(roles)}: Klamm is a broker; add broker")

    def _resolve_listeners(self) -> None:
        protocols = parse_protocol_map(self.text("listener.security.protocol.map"))
        controllers = [name.upper() for name in cast(list[str], self.raw["controller.listener.names"])]
        found = parse_listeners("listeners", cast(list[str], self.raw["listeners"]), protocols, controllers)
        self.listeners = open_listeners(found, controllers)
        self.controller_listeners = [listener for listener in found if listener.name in controllers]
        given = self.raw["advertised.listeners"]
        advertised = parse_listeners("advertised.listeners", cast(list[str], given or []), protocols, controllers)
        self.advertised_listeners = check_advertised(advertised, self.listeners, controllers)
        between = self.raw["inter.broker.listener.name"]
        if isinstance(between, str) and between.upper() not in {listener.name for listener in self.listeners}:
            names = ", ".join(listener.name for listener in self.listeners)
            raise ConfigError(f"inter.broker.listener.name={between} is not among listeners ({names})")
        if between is not None and self.is_set("security.inter.broker.protocol"):
            raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set")

    def _check_between_keys(self) -> None:
        """Check Kafka's limits that involve more than one key."""
        retention_ms = self.integer("log.retention.ms")
        queued_bytes, request_bytes = self.integer("queued.max.request.bytes"), self.integer("socket.request.max.bytes")
        rules = (
            (retention_ms >= 1 or retention_ms == -1, "log.retention.ms must be -1 (unlimited) or at least 1"),
            (self.integer("log.roll.ms") >= 1, "log.roll.ms must be at least 1"),
            (self.integer("log.roll.jitter.ms") >= 0, "log.roll.jitter.ms must be at least 0"),
            (
                queued_bytes <= 0 or queued_bytes >= request_bytes,
                f"queued.max.request.bytes={queued_bytes} must be at least socket.request.max.bytes={request_bytes}",
            ),
        )
        self._check_groups()
        for holds, problem in rules:
            if not holds:
                raise ConfigError(problem)
        overrides = self.text("max.connections.per.ip.overrides")
        for pair in filter(None, (item.strip() for item in overrides.split(","))):
            host, colon, count = pair.rpartition(":")
            if not (colon and host.strip() and count.strip().isdecimal()):
                raise ConfigError(f"max.connections.per.ip.overrides: {pair!r} is not host:count")

    def _check_groups(self) -> None:
        for name in ("session.timeout.ms", "heartbeat.interval.ms"):
            least, most = (self.integer(f"group.consumer.{bound}.{name}") for bound in ("min", "max"))
            value = self.integer(f"group.consumer.{name}")
            if not least <= value <= most:
                raise ConfigError(f"group.consumer.{name}={value} must be in [{least}, {most}]")
        if self.integer("group.consumer.heartbeat.interval.ms") >= self.integer("group.consumer.session.timeout.ms"):
            raise ConfigError("group.consumer.heartbeat.interval.ms must be below group.consumer.session.timeout.ms")
        if "classic" not in cast(list[str], self._values["group.coordinator.rebalance.protocols"]):
            raise ConfigError("group.coordinator.rebalance.protocols must have classic: it cannot be turned off")
        codec = self.integer("offsets.topic.compression.codec")
        if not 0 <= codec < CODEC_COUNT:
            raise ConfigError(f"offsets.topic.compression.codec={codec} must be in [0, {CODEC_COUNT - 1}]")
        assignors = cast(list[str], self._values["group.consumer.assignors"])
        unknown = [name for name in assignors if name not in GROUP_ASSIGNORS]
        if unknown or not assignors:
            raise ConfigError(f"group.consumer.assignors={','.join(assignors)}: there are uniform and range, no others")


def expand_aliases(texts: Mapping[str, str], aliases: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Let each old name set its new names, unless those are set themselves."""
    if texts.keys().isdisjoint(aliases):
        return texts
    expanded = dict(texts)
    for old, new_names in aliases.items():
        if old in texts:
            for new in new_names:
                expanded.setdefault(new, texts[old])
    return expanded


def parse_broker_value(name: str, text: str) -> Value:
    """Return the typed value of a broker key, with or without a listener's prefix; of an unknown key, its text."""
    row = BROKER_KEYS.get(without_listener(name))
    if row is None:
        return ConfigKey(name, Type.LONG, None, "", Range(0)).parse(text) if name in DYNAMIC_ONLY else text
    value = row.parse(text)
    if row.refuse and value != row.default and value not in row.accepts:
        raise ConfigError(f"{name}={row.shown(text)}: {row.refuse}")
    return value


def synonyms(name: str) -> list[str]:
    """Return `name` and the keys it falls back to, strongest first; for a fallback, only those from itself on."""
    if name.startswith(LISTENER_PREFIX):
        return [name, without_listener(name)]
    row = BROKER_KEYS.get(name)
    return [name, *(other for other, _ in row.fallbacks)] if row is not None else [name]


def topic_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Return all topic keys as typed values: the topic's own, else the broker's, else the default."""
    texts = expand_aliases(overrides, TOPIC_ALIASES)
    values: dict[str, Value] = {}
    for name, row in TOPIC_KEYS.items():
        if name in texts:
            values[name] = row.parse(texts[name])
        else:
            values[name] = _broker_value(config, row)
    if values["internal.segment.bytes"] is not None:
        values["segment.bytes"] = values["internal.segment.bytes"]
    return values


def _broker_value(config: BrokerConfig, row: ConfigKey) -> Value:
    value = config[row.fallbacks[0][0]] if row.fallbacks else row.default
    return row.default if value is None else value


def validate_topic(overrides: Mapping[str, str], config: BrokerConfig | None = None) -> None:
    """Raise `ConfigError` when these overrides cannot be set on a topic.

    Limits between keys are checked against the values in effect in `config`, without it against the defaults.
    """
    for name in overrides:
        if name not in TOPIC_KEYS and name not in TOPIC_ALIASES:
            raise ConfigError(f"Unknown topic config name: {name}")
    texts = expand_aliases(overrides, TOPIC_ALIASES)
    values: dict[str, Value] = {name: row.default for name, row in TOPIC_KEYS.items()}
    if config is not None:
        values = topic_values(config, {})
    for name, text in texts.items():
        if name in TOPIC_KEYS:
            row = TOPIC_KEYS[name]
            values[name] = row.parse(text)
            if row.refuse and values[name] != row.default:
                raise ConfigError(f"Invalid value {text} for configuration {name}: {row.refuse}")
    least, most = cast(int, values["min.compaction.lag.ms"]), cast(int, values["max.compaction.lag.ms"])
    if least > most:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
