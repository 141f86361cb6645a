"""A broker from start to stop; `assembly` puts it together.

    start   bind the listeners (ports are known) → open the metadata tree, load the image → load the logs → register →
            lead and follow partitions → accept connections
    stop    let others lead → take no more connections → let requests finish → leave the tree → flush and close the
            logs, marked clean

Nothing is served before everything is loaded, so a client never sees half a broker. Only who leads, where another
broker is the controller, comes over a connection; until then this broker is fenced and leads nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.assembly import BrokerOptions, assemble
from barnabas.broker.clock import seconds_since_start
from barnabas.broker.controller import incarnation
from barnabas.broker.controller.controlled_shutdown import shut_down_controlled
from barnabas.broker.lifecycle import BrokerState
from barnabas.broker.new_store import check_before_making
from barnabas.broker.serving.limits import per_address, server_limits
from barnabas.machines.controller.image import Endpoint
from barnabas.metadata.znodes import Registration
from barnabas.model.environment import FAULTS_SOCKET

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.metrics.listener import MetricsListener
    from barnabas.broker.settings import Changed
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.model.config.broker import BrokerConfig
    from barnabas.model.config.listeners import Listener
    from barnabas.net.server import Server
    from barnabas.storage.manager import LogManager

logger = logging.getLogger(__name__)

OPEN_FILES: Final = 10_240
"""What to ask for where no limit is set: macOS grants no more."""
FEATURES: Final = {"group.version": (0, 1), "share.version": (0, 2), "transaction.version": (0, 2)}
"""Levels that this broker supports of what a cluster agrees on.

group.version 1 is the protocol whose coordinator assigns; share.version 1 are share groups, and 2 their
dead letters; with transaction.version 2 each transaction has its epoch.
"""
UNFENCED_SECONDS: Final = 30.0
"""How long a start waits for the controller to unfence this broker."""
PER_IP_OVERRIDES: Final = "max.connections.per.ip.overrides"
GRACE: Final = 5.0
"""Seconds that requests under way have to finish when the broker stops."""


class ReadyInfo(NamedTuple):
    """What a broker says of itself when it is ready."""

    listeners: tuple[Listener, ...]
    log_dirs: tuple[Path, ...]
    summary: str
    seconds: float
    """Since the process began."""
    metrics_port: int | None = None
    """Where figures are told, if they are."""


class App:
    """One broker in one process."""

    def __init__(
        self,
        config: BrokerConfig,
        options: BrokerOptions | None = None,
        on_duplicate: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._assembly = assemble(config, options, on_duplicate)
        self.broker = self._assembly.broker
        self._server: Server | None = None
        self.state = BrokerState.NOT_RUNNING
        self._metrics: MetricsListener | None = None

    async def start(self) -> ReadyInfo:
        """Bring everything up; raises StartupError or ConfigError when that cannot be."""
        broker, config, assembly = self.broker, self._config, self._assembly
        self.state = BrokerState.STARTING
        self._server = assembly.options.make_server(
            assembly.serve, server_limits(config), broker.executor, broker.quotas.delay_connection
        )
        if broker.certificates is not None:
            await broker.certificates.load()
        metrics_port = await self._start_metrics()
        bound = self._listen(self._server)
        broker.quotas.subscribe(self._server.unmute)
        if assembly.options.opens_configured_store:
            await asyncio.to_thread(check_before_making, config, assembly.options.files)
        image = await broker.membership.open()
        broker.settings.check_start()
        self.state = BrokerState.RECOVERY
        await self._load_logs(image)
        self.state = BrokerState.STARTING
        broker.settings.subscribe(self._on_settings)
        if broker.certificates is not None:
            broker.certificates.start()
        assembly.inter_broker.start()
        registration = _registration(config, bound)
        await broker.membership.start(registration, self._take_over(registration), self._server.addresses())
        await broker.replicas.settled()
        assembly.housekeeping.start()
        assembly.cleaning.start()
        if broker.telemetry is not None:
            broker.telemetry.start()
        if assembly.faults is not None:
            await assembly.faults.listen(self._server.connections)
        self._server.accept()
        self.state = BrokerState.RUNNING
        await self._wait_until_unfenced()
        return ReadyInfo(
            tuple(each._replace(port=bound[each.name]) for each in config.listeners),
            config.log_dirs,
            f"{len(image.topics)} topics, {len(broker.logs.logs())} partitions",
            seconds_since_start(),
            metrics_port,
        )

    def _listen(self, server: Server) -> dict[str, int]:
        """Open the listeners; gives their ports. Raises StartupError."""
        certificates, logins = self.broker.certificates, self._assembly.logins
        bound = {}
        for each in self._config.listeners:
            tls = None if certificates is None else certificates.listener(each)
            bound[each.name] = server.listen(each.name, each.host, each.port, tls)
            if each.uses_sasl and logins is not None:
                server.greet(each.name, logins.begin)
        return bound

    async def _start_metrics(self) -> int | None:
        """Tell figures and health from now on, where that is wanted; returns the port."""
        if self._assembly.request_times is None:
            return None
        from barnabas.broker.metrics.listener import MetricsListener  # here: most brokers are started without

        self._metrics = MetricsListener(self._assembly, lambda: self.state, lambda: self._server)
        return await self._metrics.start()

    async def _load_logs(self, image: ClusterImage) -> None:
        broker, config = self.broker, self._config
        configs = {topic: broker.settings.log_config(topic) for topic in image.topics}
        await asyncio.to_thread(
            broker.logs.load, broker_id=config.node_id, cluster_id=image.cluster_id, configs=configs
        )
        _warn_of_strays(image, broker.logs)
        logger.info(
            "The cluster's metadata is in %s",
            f"ZooKeeper, {config.zookeeper}" if config.zookeeper else config.metadata_store,
        )

    def _take_over(self, registration: Registration) -> uuid.UUID | None:
        """The last run's id, instead of which this run's is kept; beside an SQLite file the dead are known as such."""
        if self._config.zookeeper is None or registration.incarnation_id is None:
            return None
        directory, files = self._config.log_dirs[0], self._assembly.options.files
        previous = incarnation.read(files, directory)
        incarnation.write(files, directory, registration.incarnation_id)
        return previous

    async def _wait_until_unfenced(self) -> None:
        """Wait until the controller has sent this broker everything; the controller itself is unfenced already."""
        try:
            async with asyncio.timeout(UNFENCED_SECONDS):
                await self.broker.membership.fence.unfenced()
        except TimeoutError:
            logger.warning(
                "This broker is still fenced after %g s, because no controller has sent it the whole metadata image. "
                "It leads nothing and goes on waiting.",
                UNFENCED_SECONDS,
            )
        await self.broker.replicas.settled()

    def _on_settings(self, changed: Changed) -> None:
        if PER_IP_OVERRIDES in changed.keys:  # the names of hosts are looked up, which may take a while
            looked_up = self.broker.executor.submit(per_address, self.broker.settings.text(PER_IP_OVERRIDES))
            loop = asyncio.get_running_loop()
            looked_up.add_done_callback(lambda _: loop.call_soon_threadsafe(self._change_limits))
        else:
            self._change_limits()

    def _change_limits(self) -> None:
        if self._server is not None:
            self._server.change_limits(server_limits(self.broker.settings))

    async def stop(self) -> None:
        """Take everything down, in an order that loses nothing."""
        broker, assembly = self.broker, self._assembly
        if self._server is not None:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await shut_down_controlled(broker)
        self.state = BrokerState.SHUTTING_DOWN
        await assembly.housekeeping.stop()
        await assembly.cleaning.stop()
        if broker.telemetry is not None:
            await broker.telemetry.stop()
        if assembly.faults is not None:
            await assembly.faults.close()
        if self._server is not None:
            self._server.stop_listening()
            broker.replicas.wake_all()
            await broker.shares.stop()
            await broker.groups.stop()
            broker.share_coordinators.runtime.resign()
            await broker.transactions.stop()
            await self._server.close(GRACE)
        await assembly.dispatcher.finish(GRACE)
        await broker.groups.runtime.loaded()
        await broker.share_coordinators.runtime.loaded()
        await broker.replicas.settled()
        if broker.certificates is not None:
            await broker.certificates.stop()
        await assembly.inter_broker.stop()
        await broker.membership.stop()
        await asyncio.to_thread(broker.logs.close)
        if self._metrics is not None:
            await self._metrics.stop()
        self.state = BrokerState.NOT_RUNNING
        broker.validation_pool.close()
        broker.executor.shutdown()


def run(config: BrokerConfig, on_ready: Callable[[ReadyInfo], None], options: BrokerOptions | None = None) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the process's exit code.

    Raises StartupError or ConfigError when it cannot start, DuplicateBroker when another broker has taken its id.
    """
    chosen = replace(options or BrokerOptions(), faults_socket=_faults_socket())
    _raise_file_limit()

    async def main() -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signal_number, stopping.set)
        app = App(config, chosen, on_duplicate=stopping.set)
        try:
            on_ready(await app.start())
            await stopping.wait()
            logger.info("This broker stops.")
            if app.broker.membership.duplicate is not None:
                raise app.broker.membership.duplicate
        finally:
            await app.stop()

    chosen.run_event_loop(main())
    return 0


def _faults_socket() -> Path | None:
    """Where faults can be set, if whoever started this broker wants to."""
    path = os.environ.pop(FAULTS_SOCKET, "")
    return Path(path) if path else None


def _raise_file_limit() -> None:
    """Use as many descriptors as the system allows without asking anyone, as the JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # the system may allow less than its limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _warn_of_strays(image: ClusterImage, logs: LogManager) -> None:
    strays = [log.directory for log in logs.logs() if image.partition(*log.tp) is None]
    if strays:
        logger.warning(
            "%d logs belong to no topic, the first is %s: `barnabas metadata import` brings topics.",
            len(strays),
            strays[0],
        )


def _registration(config: BrokerConfig, bound: dict[str, int]) -> Registration:
    endpoints = {
        each.name: Endpoint(each.host or socket.gethostname(), each.port or bound[each.name], each.protocol)
        for each in config.advertised
    }
    return Registration(
        broker_id=config.node_id,
        endpoints=endpoints,
        rack=config.text_or_none("broker.rack"),
        incarnation_id=uuid.uuid4(),
        features=FEATURES,
    )
