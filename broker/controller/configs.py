"""Dynamic configs of topics, brokers and groups: changes by requests, and the effective values.

Errors follow Apache Kafka 4: a wrong key or value of a topic is INVALID_CONFIG, one of a broker INVALID_REQUEST. Each
resource of a request succeeds or fails alone. The config of a topic is checked as a whole, so limits between keys hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from klamm.broker.controller.locations import check_locations
from klamm.broker.controller.topics import NewTopic, check_name
from klamm.broker.metadata import codec, paths
from klamm.broker.metadata.image import OFFSETS_TOPIC, TRANSACTION_TOPIC, MetadataImage
from klamm.broker.metadata.store import Create, Operation, Set
from klamm.broker.security.secret_box import SecretBox, Unsealable
from klamm.config import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigError,
    ConfigKey,
    Type,
    check_dynamic,
    check_group,
    topic_values,
    validate_topic,
)
from klamm.config.broker_keys import without_listener
from klamm.config.known import DYNAMIC_ONLY, KNOWN, KNOWN_OLD
from klamm.protocol.errors import InvalidConfig, InvalidRequest, KafkaError, UnknownTopicOrPartition
from klamm.protocol.wire import MAX_STRING_BYTES, fits_string

log = logging.getLogger(__name__)

CLUSTER_WIDE = ""  # the name of the resource for all brokers


class ResourceType(IntEnum):
    """The kind of resource that a config belongs to; Kafka's ``ConfigResource.Type``."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Op(IntEnum):
    """The operation on one key, as in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class KeyUpdate:
    """One key; the value of DELETE is not looked at. The repr leaves the value out: it may be a secret."""

    name: str
    op: int
    value: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ConfigUpdate:
    """Changed keys of one resource. With ``replace_all`` all other keys go back to the default."""

    resource_type: ResourceType
    name: str
    keys: Sequence[KeyUpdate]
    replace_all: bool = False


class ConfigPlanner:
    """The ``operations`` and the next ``image`` of several updates."""

    def __init__(
        self,
        image: MetadataImage,
        static: BrokerConfig,
        node_id: int,
        exists: Callable[[str], bool],
        secrets: SecretBox,
    ) -> None:
        self.image = image
        self.operations: list[Operation] = []
        self._static = static
        self._node_id = node_id
        self._exists = exists
        self._secrets = secrets

    def update(self, update: ConfigUpdate) -> KafkaError | None:
        """Plan one update. Return the error if it is not allowed."""
        try:
            if not fits_string(update.name):
                raise InvalidRequest("the name of the resource is too long")
            if update.resource_type == ResourceType.TOPIC:
                self._update_topic(update)
            elif update.resource_type == ResourceType.BROKER:
                self._update_broker(update)
            elif update.resource_type == ResourceType.GROUP:
                self._update_group(update)
            else:
                raise InvalidRequest(f"resource type {int(update.resource_type)} has no configs that can be changed")
        except KafkaError as error:
            return error.without_frames()
        return None

    def _update_topic(self, update: ConfigUpdate) -> None:
        name = update.name
        if not name:
            raise InvalidRequest("there are no configs that hold for all topics")
        check_name(name)
        if name not in self.image.topics:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        current = self.image.topic_config(name)
        config = effective(self._static, self.image, self._node_id)
        new = apply(update, current, TOPIC_KEYS, topic_values(config, current))
        check_topic(new, config)
        if new != current:
            self._store(paths.topic_config(name), new)
            self.image = self.image.with_topic_configs({name: new})

    def _update_broker(self, update: ConfigUpdate) -> None:
        name = update.name
        current = self.image.broker_config(name)
        config = effective(self._static, self.image, self._node_id)
        new = apply(update, current, BROKER_KEYS, {key: config[key] for key in BROKER_KEYS})
        check_broker(new, cluster_wide=name == CLUSTER_WIDE)
        image = self.image.with_broker_configs({name: new})
        try:
            check_locations(self._static, new)
            _with_dynamic(self._static, image, self._node_id)
        except ConfigError as error:
            raise InvalidRequest(str(error)) from None
        if new != current:
            try:
                self._store(paths.broker_config(name), self._secrets.sealed(name, new))
            except Unsealable as error:
                raise InvalidRequest(str(error)) from None
            self.image = image

    def _update_group(self, update: ConfigUpdate) -> None:
        name = update.name
        if not name:
            raise InvalidRequest("there are no configs that hold for all groups")
        current = self.image.group_config(name)
        config = effective(self._static, self.image, self._node_id)
        new = apply(update, current, GROUP_KEYS, {})
        check_sizes(new)
        try:
            check_group(new, config)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None
        if new != current:
            self._store(paths.group_config(name), new)
            self.image = self.image.with_group_configs({name: new})

    def _store(self, path: str, config: Mapping[str, str]) -> None:
        value = codec.config_value(config)
        if self._exists(path) or any(isinstance(done, Create) and done.path == path for done in self.operations):
            self.operations.append(Set(path, value))
        else:
            self.operations.append(Create(path, value, make_parents=True))


def apply(
    update: ConfigUpdate, current: Mapping[str, str], rows: Mapping[str, ConfigKey], values: Mapping[str, object]
) -> dict[str, str]:
    """Return the config after the update. ``values`` are the effective ones, the base of APPEND and SUBTRACT."""
    new = {} if update.replace_all else dict(current)
    for key in update.keys:
        name, text = key.name, key.value
        if key.op == Op.DELETE:
            new.pop(name, None)
            continue
        if text is None:
            raise InvalidRequest(f"config {name} must have a value")
        if key.op == Op.SET:
            new[name] = text
        elif key.op in (Op.APPEND, Op.SUBTRACT):
            row = rows.get(name)
            if row is None or row.type is not Type.LIST:
                raise InvalidConfig(f"config {name} cannot be {Op(key.op).name}ed: it is no list")
            new[name] = _changed_list(key, new.get(name), values.get(name))
        else:
            raise InvalidRequest(f"config {name}: there is no operation {key.op}")
    return new


def _changed_list(key: KeyUpdate, text: str | None, value: object) -> str:
    assert key.value is not None
    items = _items(text) if text is not None else list(value) if isinstance(value, list) else []
    given = _items(key.value)
    if key.op == Op.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def check_topic(overrides: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise InvalidConfig unless a topic may have these overrides."""
    check_sizes(overrides)
    try:
        validate_topic(overrides, config)
    except ConfigError as error:
        raise InvalidConfig(str(error)) from None


def check_sizes(config: Mapping[str, str]) -> None:
    """Raise InvalidConfig for a name or value too long for a string: no response could describe it."""
    for name, text in config.items():
        if not (fits_string(name) and fits_string(text)):
            raise InvalidConfig(f"config {name[:100]}: name and value may have {MAX_STRING_BYTES} bytes of UTF-8 each")


def check_broker(config: Mapping[str, str], *, cluster_wide: bool) -> None:
    """Raise InvalidRequest if a key cannot change while the broker runs, or not for all brokers at once.

    Unknown keys are stored, as Kafka does for the plugins that read them.
    """
    check_sizes(config)
    for name, text in config.items():
        bare = without_listener(name)
        if bare not in BROKER_KEYS and bare not in DYNAMIC_ONLY and (bare in KNOWN or bare in KNOWN_OLD):
            raise InvalidRequest(f"Cannot update these configs dynamically: Set({name})")
        try:
            check_dynamic(name, text, per_broker=not cluster_wide)
        except ConfigError as error:
            raise InvalidRequest(str(error)) from None


def effective(static: BrokerConfig, image: MetadataImage, node_id: int) -> BrokerConfig:
    """Return the broker's config with the dynamic one applied. If stored values have become invalid, log an error and
    ignore the dynamic config.
    """
    try:
        return _with_dynamic(static, image, node_id)
    except ConfigError as error:
        log.error("the dynamic broker config is not used: %s", error)
        return static


def _with_dynamic(static: BrokerConfig, image: MetadataImage, node_id: int) -> BrokerConfig:
    default, own = image.broker_config(CLUSTER_WIDE), image.broker_config(str(node_id))
    return static.with_dynamic(default, own) if default or own else static


# -- topics that the broker creates automatically ---------------------------------------------------------------

_INTERNAL: Mapping[str, tuple[str, str, str, tuple[tuple[str, str], ...]]] = {
    OFFSETS_TOPIC: (
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        (("cleanup.policy", "compact"), ("compression.type", "producer")),
    ),
    TRANSACTION_TOPIC: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        (
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            ("unclean.leader.election.enable", "false"),
        ),
    ),
}


def automatic_topic(name: str, config: BrokerConfig) -> NewTopic:
    """Return the topic for automatic creation; internal topics have keys of their own."""
    internal = _INTERNAL.get(name)
    if internal is None:
        return NewTopic(name, clamp=True)
    partitions, factor, segment_bytes, fixed = internal
    configs = [*fixed, ("segment.bytes", str(config.integer(segment_bytes)))]
    if name == TRANSACTION_TOPIC:
        configs.append(("min.insync.replicas", str(config.integer("transaction.state.log.min.isr"))))
    return NewTopic(name, config.integer(partitions), config.integer(factor), configs=tuple(configs), clamp=True)
