"""Common parts of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: resources, names, changes.

A broker's resource is named by its node id; the empty name stands for all brokers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from klamm.broker.apis import loggers
from klamm.broker.controller.configs import ConfigUpdate, KeyUpdate, Op, ResourceType
from klamm.broker.network.limits import OVERRIDES, look_up, names_in, parse_overrides
from klamm.config.broker_keys import without_listener
from klamm.protocol.apis import API
from klamm.protocol.errors import InvalidRequest, KafkaError

if TYPE_CHECKING:
    from klamm.broker.apis.dispatcher import RequestContext
    from klamm.broker.broker import Broker
    from klamm.broker.tls_listeners import TlsListeners

MAX_KEYS = 1000  # of one resource: fewer keys exist


@dataclass(frozen=True, slots=True)
class Alteration:
    """One resource of an alter request."""

    resource_type: int
    name: str
    keys: Sequence[KeyUpdate]
    """More than `MAX_KEYS` are refused, so one more than that is enough here."""


def tell_changes(
    broker: Broker, context: RequestContext, alterations: Sequence[Alteration], errors: Sequence[KafkaError | None]
) -> None:
    """Write the names of changed configs to the audit log. Their values may be secret."""
    if broker.audit is None:
        return
    connection, request = context.connection, API[context.api_key].name
    for alteration, error in zip(alterations, errors, strict=True):
        if error is None:
            kind = ResourceType(alteration.resource_type).name
            what = f"{kind} {alteration.name!r}: {', '.join(key.name for key in alteration.keys)}"
            broker.audit.changed(connection.principal, connection.peer[0], request, what)


def resource_type(code: int) -> ResourceType:
    """Return the type. Raises InvalidRequest for one without configs here."""
    try:
        found = ResourceType(code)
    except ValueError:
        raise InvalidRequest(f"unknown resource type {code}") from None
    if found not in (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.GROUP):
        raise InvalidRequest(f"unsupported resource type {found.name}")
    return found


def check_node(broker: Broker, name: str) -> None:
    """Raise InvalidRequest unless the name is this broker's node id."""
    try:
        node_id = int(name)
    except ValueError:
        raise InvalidRequest(f"a broker's resource is named by its node id, not {name!r}") from None
    if node_id != broker.node_id:
        raise InvalidRequest(f"this is broker {broker.node_id}; ask broker {node_id} for its own configs")


async def alter(
    broker: Broker, alterations: Sequence[Alteration], *, incremental: bool, validate_only: bool
) -> list[KafkaError | None]:
    """Change each resource independently. Return an error or None for each."""
    counts = Counter((alteration.resource_type, alteration.name) for alteration in alterations)
    errors: list[KafkaError | None] = []
    updates: list[ConfigUpdate] = []
    positions: list[int] = []
    prepared: dict[int, Callable[[], None]] = {}
    for position, alteration in enumerate(alterations):
        errors.append(None)
        try:
            if counts[alteration.resource_type, alteration.name] > 1:
                raise InvalidRequest("a resource is named more than once")
            update = _update(broker, alteration, incremental=incremental)
            await _check_names(update)
            if broker.tls is not None and _concerns_tls(update):
                prepared[position] = await _prepare_stores(broker.tls, broker, update)
            if update.resource_type == ResourceType.BROKER_LOGGER:
                loggers.alter(list(update.keys), validate_only=validate_only)
            else:
                updates.append(update)
                positions.append(position)
        except KafkaError as error:
            errors[position] = error
    if updates:
        outcomes = await broker.controller.update_configs(updates, validate_only)
        for position, outcome in zip(positions, outcomes, strict=True):
            errors[position] = outcome
            if outcome is None and position in prepared and not validate_only:
                prepared[position]()
    return errors


def _concerns_tls(update: ConfigUpdate) -> bool:
    """Whether keystores or truststores may be others after it; also when the same paths are set again."""
    is_own = update.resource_type == ResourceType.BROKER and update.name
    return bool(is_own) and (
        update.replace_all or any(without_listener(key.name).startswith("ssl.") for key in update.keys)
    )


async def _prepare_stores(tls: TlsListeners, broker: Broker, update: ConfigUpdate) -> Callable[[], None]:
    """Open and check what the listeners get; the result makes them use it. Raises InvalidRequest."""
    config = broker.controller.config_after(update)
    opened = await tls.prepare(config)
    return partial(tls.adopt, config, opened)


def _update(broker: Broker, alteration: Alteration, *, incremental: bool) -> ConfigUpdate:
    """Return a valid form of the requested change. Raises InvalidRequest."""
    kind, name = resource_type(alteration.resource_type), alteration.name
    if len(alteration.keys) > MAX_KEYS:
        raise InvalidRequest(f"more than {MAX_KEYS} config keys of one resource are not altered at once")
    repeated = [key for key, count in Counter(key.name for key in alteration.keys).items() if count > 1]
    if repeated:
        raise InvalidRequest(f"config keys are named more than once: {', '.join(repeated)}")
    missing = [key.name for key in alteration.keys if key.op != Op.DELETE and key.value is None]
    if missing:
        raise InvalidRequest(f"config keys must have a value: {', '.join(missing)}")
    if kind == ResourceType.BROKER_LOGGER:
        if not incremental:
            raise InvalidRequest("log levels are altered with IncrementalAlterConfigs only")
        check_node(broker, name)
    elif kind == ResourceType.BROKER and name:
        check_node(broker, name)
        name = str(broker.node_id)
    return ConfigUpdate(kind, name, alteration.keys, replace_all=not incremental)


async def _check_names(update: ConfigUpdate) -> None:
    """Refuse a limit for an unknown host, as Kafka does. A thread resolves the names. Raises InvalidRequest."""
    if update.resource_type != ResourceType.BROKER:
        return
    for key in update.keys:
        if key.name != OVERRIDES or key.op != Op.SET or not key.value:
            continue
        try:
            for name in names_in(parse_overrides(key.value)):
                await asyncio.get_running_loop().run_in_executor(None, look_up, name)
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
