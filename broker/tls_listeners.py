"""The listeners with TLS of a node: their stores are opened at the start, and again when they change.

A change comes from a dynamic config, or from files that are others on the disk (looked at now and then, and at SIGHUP).
It is checked before it counts: a bad one leaves the listener with what it has. New connections get the new stores; open
ones go on with the old.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from klamm.broker.security.tls.changes import check_change
from klamm.broker.security.tls.endpoint import TlsEndpoint, open_endpoint
from klamm.broker.security.tls.settings import BadTlsSettings, TlsSettings, tls_settings
from klamm.broker.security.tls.store import BadStore
from klamm.config import ConfigError, listener_config
from klamm.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from klamm.broker.metrics import Metrics
    from klamm.broker.metrics.recording import Sample
    from klamm.broker.network.listener import Listener as NetworkListener
    from klamm.config import BrokerConfig
    from klamm.config.listeners import Listener
    from klamm.storage.clock import Clock

log = logging.getLogger(__name__)

ANYWHERE: Final = frozenset(("", "0.0.0.0", "::"))

T = TypeVar("T")

Stamp = tuple[tuple[int, int, int], ...]
"""Time of change, size and inode of each file of a listener."""


class Opened(NamedTuple):
    """The stores of a listener, and the files as they were just before they were read."""

    endpoint: TlsEndpoint
    stamp: Stamp


@dataclass(slots=True)
class TlsListener:
    """One of them. `bound` is there when it accepts connections."""

    listener: Listener
    now: Opened
    bound: NetworkListener | None = None
    refused: Stamp | None = None
    """The stamp of files that could not be used; they are not tried again until they change."""
    outcomes: dict[str, int] = field(default_factory=dict)

    def adopt(self, opened: Opened) -> None:
        self.now = opened
        if self.bound is not None:
            self.bound.tls = opened.endpoint


class TlsListeners:
    """Made before the loop runs; blocks, and raises ConfigError when a listener cannot be opened so."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._static = config
        self._clock = clock
        self._config = config
        self._timer: asyncio.TimerHandle | None = None
        self._executor: Executor | None = None
        self._looking: asyncio.Task[None] | None = None
        self._listeners: dict[str, TlsListener] = {}
        for listener in config.listeners:
            if listener.uses_tls:
                try:
                    self._listeners[listener.name] = TlsListener(listener, self._open(config, listener))
                except (BadTlsSettings, BadStore) as error:
                    raise ConfigError(f"{listener}: {error}") from None

    # -- start

    def use(self, config: BrokerConfig) -> None:
        """Take the dynamic config that was stored. What cannot be used is left out, with an error."""
        self._config = config
        for each in self._listeners.values():
            try:
                each.adopt(self._open(config, each.listener))
            except (BadTlsSettings, BadStore) as error:
                log.error("%s: the stores of the dynamic config are not used: %s", each.listener, error)

    def bind(self, bound: NetworkListener) -> None:
        """Have a listener that was bound shake hands, if it is one with TLS."""
        each = self._listeners.get(bound.name)
        if each is not None:
            each.bound = bound
            bound.use_tls(each.now.endpoint)

    def start(self, executor: Executor, metrics: Metrics, advertised: Sequence[Listener]) -> None:
        """Warn of what will trouble clients; from now on look at the files."""
        self._expose(metrics)
        self._warn({listener.name: listener.host for listener in advertised})
        self._watch(executor)

    def _warn(self, advertised: Mapping[str, str]) -> None:
        for name, each in self._listeners.items():
            own, listener = each.now.endpoint.material.own, each.listener
            for line in each.now.endpoint.settings.warnings:
                log.warning("%s: %s", listener, line)
            left_s = own.not_after - self._clock.wall_ms() / 1000
            if left_s <= 0:
                log.error("%s: the certificate %s has expired on %s", listener, own.subject_name, _date(own.not_after))
            host = advertised.get(name) or listener.host
            if host not in ANYWHERE and not own.is_for(host):
                log.warning(
                    "%s: clients dial %s, which is not among the names of the certificate %s (%s); they will refuse it",
                    listener, host, own.subject_name, _names(name for _, name in own.subject_alternative_names),
                )  # fmt: skip

    # -- changes by a dynamic config

    async def prepare(self, config: BrokerConfig) -> dict[str, Opened]:
        """Open and check what the listeners would have under `config`, where that is new. Raises InvalidRequest."""
        try:
            return await self._in_thread(self._reopen, config)
        except (BadTlsSettings, BadStore) as error:
            raise InvalidRequest(f"Validation of dynamic config update of SSLFactory failed: {error}") from None

    def adopt(self, config: BrokerConfig, opened: Mapping[str, Opened]) -> None:
        """Use the opened stores."""
        self._config = config
        for name, new in opened.items():
            self._replace(self._listeners[name], new)

    def _reopen(self, config: BrokerConfig) -> dict[str, Opened]:
        """Open what has changed: settings, or files. Blocks."""
        opened = {}
        for name, each in self._listeners.items():
            settings = self._settings(config, each.listener)
            old = each.now
            if settings == old.endpoint.settings and _stamp(settings) == old.stamp:
                continue
            new = self._open(config, each.listener)
            check_change(old.endpoint, new.endpoint, between_brokers=self._is_between_brokers(each.listener))
            opened[name] = new
        return opened

    # -- changes of files

    def _watch(self, executor: Executor) -> None:
        """Look at the files now and then, and at SIGHUP, until `close`."""
        self._executor = executor
        loop = asyncio.get_running_loop()
        with suppress(ValueError, RuntimeError):  # in a test, beside the main thread
            loop.add_signal_handler(signal.SIGHUP, self.look)
        self._look_later()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        if self._looking is not None:
            self._looking.cancel()

    def look(self) -> None:
        """Look at the files, unless somebody does so already."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def _look_later(self) -> None:
        interval_ms = self._config.integer("klamm.ssl.reload.interval.ms")
        if interval_ms:
            self._timer = asyncio.get_running_loop().call_later(interval_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self.look()
        self._look_later()

    async def _look(self) -> None:
        for each in self._listeners.values():
            settings = each.now.endpoint.settings
            stamp = await self._in_thread(_stamp, settings)
            if stamp in (each.now.stamp, each.refused):
                continue
            try:
                opened = await self._in_thread(self._reopen, self._config)
            except (BadTlsSettings, BadStore) as error:
                self._keep(each, stamp, error)
                continue
            self.adopt(self._config, opened)

    def _keep(self, each: TlsListener, stamp: Stamp, error: Exception) -> None:
        each.refused = stamp
        each.outcomes["refused"] = each.outcomes.get("refused", 0) + 1
        own = each.now.endpoint.material.own
        log.error(
            "%s: changed stores are not used, the certificate that expires on %s is kept: %s",
            each.listener, _date(own.not_after), error,
        )  # fmt: skip

    def _replace(self, each: TlsListener, new: Opened) -> None:
        each.adopt(new)
        each.refused = None
        each.outcomes["taken"] = each.outcomes.get("taken", 0) + 1
        own = new.endpoint.material.own
        log.info(
            "%s: new connections get the certificate %s, which expires on %s",
            each.listener,
            own.subject_name,
            _date(own.not_after),
        )

    # -- metrics

    def _expose(self, metrics: Metrics) -> None:
        metrics.gauges(
            "klamm_tls_certificate_expiry_seconds", "Time until the certificate of a listener expires.", self._expiries
        )
        metrics.counters(
            "klamm_tls_store_changes_total", "Changed keystores and truststores, taken or refused.", self._changes
        )

    def _expiries(self) -> Iterable[Sample]:
        now = self._clock.wall_ms() / 1000
        for name, each in self._listeners.items():
            yield f'{{listener="{name}"}}', each.now.endpoint.material.own.not_after - now

    def _changes(self) -> Iterable[Sample]:
        for name, each in self._listeners.items():
            for outcome, count in each.outcomes.items():
                yield f'{{listener="{name}",outcome="{outcome}"}}', count

    # -- helpers

    def _settings(self, config: BrokerConfig, listener: Listener) -> TlsSettings:
        return tls_settings(listener_config(config, listener.name), with_sasl=listener.uses_sasl)

    def _open(self, config: BrokerConfig, listener: Listener) -> Opened:
        settings = self._settings(config, listener)
        stamp = _stamp(settings)
        return Opened(open_endpoint(settings, _read_file), stamp)

    def _is_between_brokers(self, listener: Listener) -> bool:
        name = self._static["inter.broker.listener.name"]
        if name is not None:
            return str(name).upper() == listener.name
        return self._static["security.inter.broker.protocol"] == listener.protocol

    async def _in_thread(self, work: Callable[..., T], *what: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *what)


def _read_file(path: str) -> bytes:
    return Path(path).read_bytes()


def _stamp(settings: TlsSettings) -> Stamp:
    found = []
    for store in (settings.keystore, settings.truststore):
        if store is not None and store.location is not None:
            try:
                status = os.stat(store.location)
            except OSError:
                found.append((0, 0, 0))
                continue
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "it has none"
