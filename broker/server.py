"""The life of a broker process: start, serve, drain, close. Only this module and `wiring` assemble objects.

Start: lock the log dirs -> open the metadata -> open (after a crash: recover) the logs -> bind the listeners -> print
the ready line and accept. Stop, at SIGTERM or SIGINT: accept no more -> answer every request that was read -> flush and
close the logs -> write the marks of a clean shutdown -> release the locks. If something had to be interrupted for that
(`stop_signal`) there are no marks: it may have been half-way, so the next start checks the ends of the logs.

Exit codes: 0 after a signal; 2 for a config that cannot be served; 3 when the data directory or a configured port is
not available.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from klamm.broker.apis.dispatcher import Dispatcher
from klamm.broker.background.scheduler import Scheduler
from klamm.broker.controller.controller import Controller
from klamm.broker.controller.startup import WrongCluster
from klamm.broker.memory import freeze_collector, map_limit, tune_allocator
from klamm.broker.metadata import paths
from klamm.broker.metadata.image import BrokerImage, Endpoint, MetadataImage
from klamm.broker.metadata.sqlite_store import FILE_NAME, SqliteStore
from klamm.broker.metadata.store import StoreError
from klamm.broker.metrics import Metrics
from klamm.broker.metrics.http import DEFAULT_HOST, DEFAULT_PORT, HttpServer, access_of, parse_listener
from klamm.broker.metrics.interim_http import InterimHttp
from klamm.broker.network.limits import ListenerLimits, NetworkLimits, raise_descriptor_limit
from klamm.broker.network.network import Network
from klamm.broker.partitions.directory_assignments import DirectoryAssignments
from klamm.broker.partitions.partition_manager import PartitionManager
from klamm.broker.security.file_modes import NotPrivate, guard_log_dirs
from klamm.broker.security.process import protect_process
from klamm.broker.stop_signal import StopRequested, StopSignal
from klamm.broker.wiring import Threads, wire
from klamm.config.broker_config import BrokerConfig
from klamm.protocol.errors import KafkaError
from klamm.protocol.records import check
from klamm.storage.clock import Clock, SystemClock
from klamm.storage.filesystem import Filesystem, OsFilesystem
from klamm.storage.log_dir import LogDir, LogDirError
from klamm.storage.log_manager import LogManager
from klamm.storage.meta_properties import WrongOwner, known_cluster_id
from klamm.storage.open_files import limit_for_logs

if TYPE_CHECKING:
    from klamm.broker.broker import Broker
    from klamm.broker.security.sasl.settings import SaslSettings
    from klamm.broker.security.tokens import TokenKeys
    from klamm.broker.tls_listeners import TlsListeners

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_UNUSABLE = 3


class CannotStart(Exception):
    """The data directory or a port is not available; the message is one line."""


def run(config: BrokerConfig) -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code."""
    tune_allocator()
    protect_process(config)
    server = Server(config)
    stop = StopSignal()
    try:
        wide = guard_log_dirs(config)
        server.open()
    except (CannotStart, NotPrivate) as error:
        log.error("%s", error)
        server.leave()
        return EXIT_UNUSABLE
    except StopRequested:
        log.info("stopped while starting")
        server.leave()
        return EXIT_OK
    stop.interrupts = False
    for problem in wide:
        log.warning("%s", problem)
    return uvloop.run(server.serve(stop))


def tell_how_records_are_checked() -> None:
    if check.IS_COMPILED:
        log.info("the records of produced batches are checked by compiled code")
        return
    log.warning(
        "the records of produced batches are checked in pure Python, which takes fifty times as long. For compiled "
        "code install a C compiler and Python's headers (Debian: gcc libc6-dev python3-dev), and reinstall Klamm"
    )


class Server:
    """One broker process. Verbs in order: `open` (blocking, before the loop), `serve`; `leave` undoes `open`."""

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, filesystem: Filesystem | None = None) -> None:
        self.config = config
        self.clock: Clock = clock if clock is not None else SystemClock()
        self._filesystem: Filesystem = filesystem if filesystem is not None else OsFilesystem()
        self.metrics = Metrics()
        self._log_dirs: list[LogDir] = []
        self._controller: Controller | None = None
        self._partitions: PartitionManager | None = None
        self._threads = Threads()
        self._access = access_of(config.text("klamm.metrics.auth"))
        self._sasl = self._sasl_settings()
        self._tls = self._tls_listeners()

    def _sasl_settings(self) -> dict[str, SaslSettings]:
        """Return the settings of the listeners with logins. Raises ConfigError."""
        asking = [listener for listener in self.config.listeners if listener.uses_sasl]
        if not asking:
            return {}
        from klamm.broker.security.sasl.settings import read_settings

        return {listener.name: read_settings(self.config, listener, os.environ) for listener in asking}

    def _tls_listeners(self) -> TlsListeners | None:
        """Open the stores of the listeners with TLS, if there are any. Raises ConfigError."""
        if not any(listener.uses_tls for listener in self.config.listeners):
            return None
        from klamm.broker.tls_listeners import TlsListeners

        return TlsListeners(self.config, self.clock)

    # -- open ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock and read the data on disk. Blocks. Raises CannotStart."""
        config = self.config
        wanted = config.integer("klamm.max.open.log.files")
        filesystem = self._filesystem
        filesystem.open_files.limit = limit_for_logs(raise_descriptor_limit(), map_limit(), wanted)
        wanted_id = config["klamm.cluster.id"]
        try:
            cluster_id = str(wanted_id) if wanted_id is not None else known_cluster_id(filesystem, config.log_dirs)
        except WrongOwner as error:
            raise CannotStart(str(error)) from None
        for path in config.log_dirs:
            try:
                self._log_dirs.append(
                    LogDir.open(
                        path,
                        clock=self.clock,
                        filesystem=filesystem,
                        node_id=config.node_id,
                        cluster_id=cluster_id,
                        producer_expiration_ms=config.integer("producer.id.expiration.ms"),
                        reserve_bytes=config.integer("klamm.log.dir.reserve.bytes"),
                    )
                )
                self._log_dirs[-1].open_reserve()
                cluster_id = self._log_dirs[0].meta.cluster_id
            except LogDirError as error:
                raise CannotStart(str(error)) from None
        first = self._log_dirs[0]
        try:
            store_path = first.path / FILE_NAME
            store = SqliteStore(store_path)
            store.make_room = first.reserve.let_go
            self._import_kafka(store)
            self._controller = Controller(store, config, clock=self.clock)
            self._controller.start(clean=all(log_dir.was_clean for log_dir in self._log_dirs), cluster_id=cluster_id)
        except (StoreError, WrongCluster, LogDirError) as error:
            raise CannotStart(str(error)) from None
        logs = LogManager(self._log_dirs)
        self._partitions = PartitionManager(
            logs,
            self._controller.config,
            self.metrics,
            self._threads.disk,
            DirectoryAssignments(self._controller, logs),
        )
        try:
            self._partitions.load_logs(self._controller.image, self._interim_http)
        except LogDirError as error:
            raise CannotStart(str(error)) from None
        except KafkaError as error:
            raise CannotStart(f"{store_path}: {error.message}") from None

    def _import_kafka(self, store: SqliteStore) -> None:
        """Import Apache Kafka's topics from the log dirs, if the store is new and there are any."""
        if store.exists(paths.CLUSTER_ID) or not any(log_dir.partitions_on_disk() for log_dir in self._log_dirs):
            return
        from klamm.broker.tools.kafka_import import CannotImport, import_kafka  # rarely needed

        try:
            import_kafka(store, self.config, self._log_dirs, self._filesystem, os.urandom)
        except CannotImport as error:
            store.close()
            raise CannotStart(str(error)) from None

    def _interim_http(self) -> InterimHttp:
        listener = self.config.text("klamm.metrics.listener")
        return InterimHttp(self.metrics, listener, "recovering the logs", access=self._access)

    def close(self, *, marked: bool = True) -> None:
        """Flush and close everything; if `marked`, write the marks of a clean shutdown. Blocks."""
        assert self._controller is not None and self._partitions is not None, "open it first"
        self._partitions.logs.close(marked=marked)
        self._controller.close()
        self._threads.shut()

    def leave(self) -> None:
        """Release the locks; no client was served, so an earlier clean shutdown stays valid."""
        if self._controller is not None:
            self._controller.close()
        for log_dir in self._log_dirs:
            log_dir.leave()
        self._threads.shut()

    def crash(self) -> None:
        """Release the locks without any mark of a shutdown, so that the next start recovers. For tests."""
        if self._controller is not None:
            self._controller.close()
        for log_dir in self._log_dirs:
            log_dir.close(clean=False)
        self._threads.shut()

    # -- serve --------------------------------------------------------------------------------------------------

    async def serve(self, signals: StopSignal) -> int:
        """Bind, accept, wait for a signal, drain, close. Return the exit code."""
        stop = signals.watch(asyncio.get_running_loop())
        try:
            return await self._serve(stop, signals)
        finally:
            signals.unwatch()

    async def _serve(self, stop: asyncio.Event, signals: StopSignal) -> int:
        loop = asyncio.get_running_loop()
        try:
            broker = self.wire()
        except OSError as error:  # a file that the config names cannot be used
            log.error("%s", error)
            self.leave()
            return EXIT_UNUSABLE
        controller, partitions = broker.controller, broker.partitions
        dispatcher = Dispatcher(broker)
        network = Network(dispatcher, NetworkLimits.from_config(controller.config), clock=self.clock)

        def on_config(old: MetadataImage, new: MetadataImage) -> None:
            if new.broker_configs is not old.broker_configs:
                network.reconfigure(controller.config)
            if new.acls is not old.acls or new.client_quotas is not old.client_quotas:
                network.forget_known_requests()
            if new.client_quotas is not old.client_quotas:
                network.change_address_quotas(new.client_quotas)

        controller.add_listener(on_config)
        network.change_address_quotas(controller.image.client_quotas)
        http = HttpServer(
            self.metrics,
            healthy=self._problem,
            ready=lambda: "stopping" if stop.is_set() else None,
            access=self._access,
        )
        try:
            await controller.finish_deletions()
            addresses = self._bind(network, broker.token_keys)
            await controller.register(self._registration(addresses))
            metrics_url = await self._open_http(http)
        except (CannotStart, KafkaError) as error:  # a KafkaError: the metadata cannot be written
            log.error("%s", error.message if isinstance(error, KafkaError) else error)
            network.close()
            self.leave()
            return EXIT_UNUSABLE
        if self._tls is not None:
            self._tls.start(self._threads.disk, self.metrics, self.config.advertised_listeners)
        self.metrics.set_network(network)
        self.metrics.set_partition_source(partitions.sizes)
        self.metrics.start_lag_sampling(loop)
        scheduler = Scheduler(broker, self._threads.disk)
        scheduler.start()
        broker.groups.start()
        broker.transactions.start()
        for listener in network.listeners:
            listener.start()
        await broker.log_dir_mover.resume()
        tell_how_records_are_checked()
        print(
            f"klamm ready node={self.config.node_id} listeners={','.join(addresses)} metrics={metrics_url}", flush=True
        )
        freeze_collector()
        dispatcher.warm(loop)
        await stop.wait()
        log.info("stopping")
        broker.complete_delayed_fetches()
        if self._tls is not None:
            self._tls.close()
        for listener in network.listeners:
            if listener.gate is not None:
                listener.gate.stop()
        await network.drain(self.config.integer("klamm.shutdown.timeout.ms") / 1000)
        await scheduler.stop()
        await broker.log_dir_mover.stop()
        await broker.flusher.drain()
        await loop.run_in_executor(self._threads.disk, broker.scrubber.save)
        await http.close()
        if broker.audit is not None:
            await loop.run_in_executor(self._threads.disk, broker.audit.close)
        self.metrics.stop_lag_sampling()
        with contextlib.suppress(KafkaError):  # logged; the next start tries again
            await partitions.removed()
        await loop.run_in_executor(self._threads.disk, partial(self.close, marked=not signals.has_interrupted_the_loop))
        log.info("stopped")
        return EXIT_OK

    def wire(self) -> Broker:
        """Return a broker made from the parts that `open` has opened, subscribed to metadata changes."""
        assert self._controller is not None and self._partitions is not None, "open it first"
        broker = wire(self._controller, self._partitions, clock=self.clock, metrics=self.metrics, threads=self._threads)
        broker.tls = self._tls
        return broker

    def _problem(self) -> str | None:
        """Return the reason why this broker is not healthy; None when it is."""
        offline = [f"{log_dir.path}: {log_dir.offline_reason}" for log_dir in self._log_dirs if log_dir.offline_reason]
        return "; ".join(offline) or None

    def _bind(self, network: Network, token_keys: TokenKeys | None) -> list[str]:
        """Bind every listener; returns NAME://host:port of each with its real port."""
        assert self._controller is not None
        config, addresses = self._controller.config, []
        if self._tls is not None and config is not self.config:
            self._tls.use(config)
        for listener in self.config.listeners:
            limits = ListenerLimits.from_config(config, listener.name)
            try:
                bound = network.listen(listener.name, listener.host, listener.port, limits)
            except OSError as error:
                raise CannotStart(f"listeners: cannot listen on {listener}: {error.strerror or error}") from None
            if listener.name in self._sasl:
                from klamm.broker.logins import login_gate

                gate = login_gate(network, self._controller, self._sasl[listener.name], token_keys)
                network.ask_for_logins(bound, gate)
            if self._tls is not None:
                self._tls.bind(bound)
            host, port = bound.address
            addresses.append(f"{listener.name}://{f'[{host}]' if ':' in host else host}:{port}")
        return addresses

    def _registration(self, addresses: list[str]) -> BrokerImage:
        advertised = {listener.name: listener for listener in self.config.advertised_listeners}
        protocols = {listener.name: listener.protocol for listener in self.config.listeners}
        endpoints = []
        for address in addresses:
            name, _, rest = address.partition("://")
            host, _, port = rest.rpartition(":")
            if name in advertised:
                host, port = advertised[name].host, str(advertised[name].port)
            endpoints.append(Endpoint(name, host.strip("[]"), int(port), protocols[name]))
        rack = self.config["broker.rack"]
        return BrokerImage(self.config.node_id, tuple(endpoints), str(rack) if rack is not None else None)

    async def _open_http(self, http: HttpServer) -> str:
        """Serve metrics and health. Return the URL for the ready line, or none."""
        text = self.config.text("klamm.metrics.listener")
        try:
            wanted = parse_listener(text)
        except ValueError as error:
            raise CannotStart(str(error)) from None
        if wanted is None:
            return "none"
        is_default = wanted == (DEFAULT_HOST, DEFAULT_PORT) and not self.config.is_set("klamm.metrics.listener")
        try:
            host, port = await http.start(*wanted, may_move=is_default)
        except OSError as error:
            raise CannotStart(f"klamm.metrics.listener: cannot listen on {text}: {error.strerror or error}") from None
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
