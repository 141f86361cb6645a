"""A broker from start to stop.

    start   bind the listeners (ports are known) → open the metadata tree, load the image → load the logs → register →
            lead and follow partitions → accept connections
    stop    let others lead → take no more connections → let requests finish → leave the tree → flush and close the
            logs, marked clean

Nothing is served before everything is loaded, so a client never sees half a broker. Only what to lead, where another
broker is the controller, is told over a connection; until then this broker leads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import secrets
import signal
import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.broker import incarnation
from barnabas.broker.cleaning import Cleaning
from barnabas.broker.clock import SystemClock, seconds_since_start
from barnabas.broker.cluster import Cluster
from barnabas.broker.context import Broker
from barnabas.broker.controller import Controller
from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.groups import Groups
from barnabas.broker.housekeeping import Housekeeping
from barnabas.broker.opening import Opening
from barnabas.broker.producer_ids import ProducerIdSource
from barnabas.broker.replicas import ReplicaManager
from barnabas.broker.settings import Settings
from barnabas.broker.transactions import Transactions
from barnabas.machines.controller.image import ClusterImage, Endpoint
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.machines.fetch_session import FetchSessionCache
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.sqlite import SqliteStore, files_of
from barnabas.metadata.znodes import Registration
from barnabas.model.errors import StartupError
from barnabas.model.log_config import UNLIMITED, LogConfig
from barnabas.net.server import Limits, Server
from barnabas.protocol.faults import SOCKET_VARIABLE
from barnabas.storage.manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.faults import Faults
    from barnabas.broker.faults.interceptor import Serve
    from barnabas.broker.settings import Changed
    from barnabas.metadata.store import MetadataStore
    from barnabas.model.config.broker import BrokerConfig
    from barnabas.model.config.listeners import Listener
    from barnabas.model.config.values import Values

logger = logging.getLogger(__name__)

SESSION_EVICTION_MS: Final = 120_000
"""How long a fetch session is safe from eviction; fixed in Kafka too."""
OPEN_FILES: Final = 10_240
"""What to ask for where no limit is set: macOS grants no more."""
CONNECTIONS_SHARE: Final = 0.7
"""Of the limit of open files; the rest is for logs and for the broker itself."""
FEATURES: Final = {"group.version": (0, 1), "transaction.version": (0, 2)}
"""Levels that this broker supports of what a cluster agrees on.

group.version 1 is the protocol whose coordinator assigns; with transaction.version 2 each transaction has its epoch.
"""
STANDING: Final = 30.0
"""Seconds that a start waits for the controller's news."""
SETTLING: Final = 2.0
"""Seconds after which a ZooKeeper has noticed that a session timed out."""
GRACE: Final = 5.0
"""Seconds that requests under way have to finish when the broker stops."""


@dataclass(frozen=True, slots=True)
class ReadyInfo:
    """What a broker says of itself when it is ready."""

    listeners: tuple[Listener, ...]
    log_dirs: tuple[Path, ...]
    summary: str
    seconds: float
    """Since the process began."""


class App:
    """One broker in one process."""

    def __init__(self, config: BrokerConfig, faults_socket: Path | None = None) -> None:
        number = config.number
        self._config = config
        self._faults_socket = faults_socket
        self._faults: Faults | None = None
        self._executor = ThreadPoolExecutor(number("num.io.threads"), "disk")
        self._opening = Opening(_waiting_bytes(config))
        metadata = MetadataCache()
        settings = Settings(config, metadata)
        clock = SystemClock()
        logs = LogManager(
            config.log_dirs,
            clock=clock,
            default_config=LogConfig(retention_ms=UNLIMITED),  # for logs that belong to no topic: they are left alone
            recovery_threads=number("num.recovery.threads.per.data.dir"),
            producer_id_expiration_ms=number("producer.id.expiration.ms"),
        )
        controller = Controller(
            lambda: _store(config),
            metadata,
            clock,
            defaults=TopicDefaults(
                number("num.partitions"),
                number("default.replication.factor"),
                unclean_elections=config.flag("unclean.leader.election.enable"),
            ),
            patience=0.0 if config.zookeeper is None else number("zookeeper.session.timeout.ms") / 1000 + SETTLING,
        )
        producer_ids = ProducerIdSource(controller.allocate_producer_ids)
        replicas = ReplicaManager(config.node_id, logs, settings, metadata, self._executor)
        cluster = Cluster(
            config.node_id,
            controller=controller,
            replicas=replicas,
            metadata=metadata,
            settings=settings,
            clock=clock,
            executor=self._executor,
        )
        groups = Groups(replicas=replicas, metadata=metadata, settings=settings, clock=clock, executor=self._executor)
        self.broker = Broker(
            broker_id=config.node_id,
            settings=settings,
            clock=clock,
            logs=logs,
            replicas=replicas,
            metadata=metadata,
            controller=controller,
            producer_ids=producer_ids,
            fetch_sessions=FetchSessionCache(
                slots=number("max.incremental.fetch.session.cache.slots"),
                eviction_ms=SESSION_EVICTION_MS,
                new_id=lambda: secrets.randbelow(2**31 - 1) + 1,
            ),
            groups=groups,
            transactions=Transactions(
                config.node_id,
                replicas=replicas,
                metadata=metadata,
                settings=settings,
                groups=groups,
                peers=cluster.peers,
                producer_ids=producer_ids,
                clock=clock,
                executor=self._executor,
            ),
            cluster=cluster,
            executor=self._executor,
            opening=self._opening,
        )
        self._dispatcher = Dispatcher(self.broker)
        self._housekeeping = Housekeeping(self.broker)
        self._cleaning = Cleaning(self.broker)
        self._server: Server | None = None

    async def start(self) -> ReadyInfo:
        """Bring everything up; raises StartupError or ConfigError when that cannot be."""
        broker, config = self.broker, self._config
        self._server = Server(self._seam(), _limits(config), self._executor)
        bound = {each.name: self._server.listen(each.name, each.host, each.port) for each in config.listeners}
        image = await broker.controller.open()
        configs = {topic: broker.settings.log_config(topic) for topic in image.topics}
        await asyncio.to_thread(
            broker.logs.load, broker_id=config.node_id, cluster_id=image.cluster_id, configs=configs
        )
        _name_strays(image, broker.logs)
        logger.info(
            "the cluster's metadata is in %s",
            f"ZooKeeper, {config.zookeeper}" if config.zookeeper else config.metadata_store,
        )
        broker.metadata.subscribe(broker.replicas.on_change)
        broker.settings.subscribe(broker.replicas.on_settings)
        broker.settings.subscribe(self._on_settings)
        broker.cluster.start()
        registration = _registration(config, bound)
        await broker.controller.start(registration, self._take_over(registration), self._server.addresses())
        await broker.replicas.settled()
        self._housekeeping.start()
        self._cleaning.start()
        if self._faults is not None:
            await self._faults.listen(self._server.connections)
        self._server.accept()
        await self._stand()
        return ReadyInfo(
            tuple(each._replace(port=bound[each.name]) for each in config.listeners),
            config.log_dirs,
            f"{len(image.topics)} topics, {len(broker.logs.logs())} partitions",
            seconds_since_start(),
        )

    def _take_over(self, registration: Registration) -> uuid.UUID | None:
        """The last run's id, instead of which this run's is kept; beside an SQLite file the dead are known as such."""
        if self._config.zookeeper is None or registration.incarnation_id is None:
            return None
        directory = self._config.log_dirs[0]
        previous = incarnation.read(directory)
        incarnation.write(directory, registration.incarnation_id)
        return previous

    async def _stand(self) -> None:
        """Wait until the controller has told this broker everything; in office it knows already."""
        try:
            async with asyncio.timeout(STANDING):
                await self.broker.controller.standing.stood()
        except TimeoutError:
            logger.warning("no controller has told this broker what to lead yet: it goes on waiting")
        await self.broker.replicas.settled()

    def _seam(self) -> Serve:
        """What serves requests: the dispatcher, or in a broker for tests what stands before it."""
        if self._faults_socket is None:
            return self._dispatcher.serve
        from barnabas.broker.faults import Faults

        self._faults = Faults(self.broker, self._dispatcher.serve, self._faults_socket)
        return self._faults.serve

    def _on_settings(self, changed: Changed) -> None:
        if self._server is not None:
            self._server.limits = _limits(self.broker.settings)

    async def stop(self) -> None:
        """Take everything down, in an order that loses nothing."""
        broker = self.broker
        if self._server is not None:
            await broker.cluster.leave()
        await self._housekeeping.stop()
        await self._cleaning.stop()
        if self._faults is not None:
            await self._faults.close()
        if self._server is not None:
            self._server.stop_listening()
            broker.replicas.wake_all()
            broker.groups.runtime.resign()
            await broker.transactions.stop()
            await self._server.close(GRACE)
        await self._dispatcher.finish(GRACE)
        await broker.groups.runtime.loaded()
        await broker.replicas.settled()
        await broker.cluster.stop()
        await broker.controller.stop()
        await asyncio.to_thread(broker.logs.close)
        self._opening.close()
        self._executor.shutdown()


def run(config: BrokerConfig, on_ready: Callable[[ReadyInfo], None]) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the process's exit code.

    Raises StartupError or ConfigError when it cannot start, DuplicateBroker when another broker has taken its id.
    """
    import uvloop

    _raise_file_limit()

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stopping.set)
        app = App(config, _faults_socket())
        controller = app.broker.controller
        controller.on_ousted = stopping.set
        try:
            on_ready(await app.start())
            await stopping.wait()
            logger.info("stopping")
            if controller.ousted is not None:
                raise controller.ousted
        finally:
            await app.stop()

    uvloop.run(main())
    return 0


def _faults_socket() -> Path | None:
    """Where faults can be set, if whoever started this broker wants to."""
    path = os.environ.pop(SOCKET_VARIABLE, "")
    return Path(path) if path else None


def _raise_file_limit() -> None:
    """Use as many descriptors as the system allows without asking anyone, as the JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # the system may allow less than its limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _name_strays(image: ClusterImage, logs: LogManager) -> None:
    strays = [log.directory for log in logs.logs() if image.partition(*log.tp) is None]
    if strays:
        logger.warning(
            "%d logs belong to no topic, the first is %s: `barnabas metadata import` brings topics",
            len(strays),
            strays[0],
        )


def _waiting_bytes(values: Values) -> int:
    """The most bytes of requests that wait for their batches to be opened."""
    set_by_user = values.number("queued.max.request.bytes")
    return set_by_user if set_by_user > 0 else 2 * values.number("socket.request.max.bytes")


def _limits(values: Values) -> Limits:
    number = values.number
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = number("max.connections")
    if descriptors != resource.RLIM_INFINITY:
        most = min(most, int(descriptors * CONNECTIONS_SHARE))
    return Limits(
        request_max_bytes=number("socket.request.max.bytes"),
        queued_max_request_bytes=number("queued.max.request.bytes"),
        send_buffer_bytes=number("socket.send.buffer.bytes"),
        receive_buffer_bytes=number("socket.receive.buffer.bytes"),
        listen_backlog=number("socket.listen.backlog.size"),
        max_connections=most,
        max_connections_per_ip=number("max.connections.per.ip"),
        idle_ms=number("connections.max.idle.ms"),
    )


def _store(config: BrokerConfig) -> MetadataStore:
    if config.zookeeper is None:
        return SqliteStore(config.metadata_store)
    if config.metadata_store.exists():
        raise StartupError(
            f"there are two metadata trees: zookeeper.connect is {config.zookeeper}, and {config.metadata_store} is "
            f"there, too. To use the file, start with --set zookeeper.connect= (nothing behind it); to use ZooKeeper, "
            f"move {' and '.join(map(str, files_of(config.metadata_store)))} away"
        )
    from barnabas.metadata.zookeeper import Login, ZooKeeperStore

    username = config.text_or_none("zookeeper.auth.username")
    password = config.text_or_none("zookeeper.auth.password")
    session = config.number("zookeeper.session.timeout.ms")
    connection = config.number_or_none("zookeeper.connection.timeout.ms")
    return ZooKeeperStore(
        config.zookeeper,
        session_timeout=session / 1000,
        connect_timeout=(session if connection is None else connection) / 1000,
        login=Login(config.text("zookeeper.auth.scheme"), username, password) if username and password else None,
        private=config.flag("zookeeper.set.acl"),
    )


def _registration(config: BrokerConfig, bound: dict[str, int]) -> Registration:
    endpoints = {
        each.name: Endpoint(each.host or socket.gethostname(), each.port or bound[each.name])
        for each in config.advertised
    }
    return Registration(
        broker_id=config.node_id,
        endpoints=endpoints,
        rack=config.text_or_none("broker.rack"),
        incarnation_id=uuid.uuid4(),
        features=FEATURES,
    )
