"""A machine with a broker on it: it is started, killed, cut off from power, and started again."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.app import App
from barnabas.broker.assembly import BrokerOptions
from barnabas.model.config.broker import BrokerConfig
from barnabas.storage.cleaner.manager import CleanerManager
from barnabas.storage.cleaner.process import InThisProcess
from barnabas.storage.file_pool import FilePool
from barnabas.storage.manager import LogManager
from tests.simulation.whole.clock import MachineClock
from tests.simulation.whole.disks import Disk
from tests.simulation.whole.executor import LoopExecutor
from tests.simulation.whole.leaders import watch_leaders
from tests.simulation.whole.loop import Process
from tests.simulation.whole.network import host_of
from tests.simulation.whole.queues.shift import broker_settings
from tests.simulation.whole.server import SimServer
from tests.simulation.whole.store import TREE, MemoryStore
from tests.support.compaction import LIMITS

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.files import FileSystem
    from tests.simulation.whole.world import World

PORT: Final = 9092
DIRECTORIES: Final = ("data", "more")
AGAIN: Final = 2.0
"""Seconds after which a broker that could not start is started again, as a service would be."""


class FewPins(FilePool):
    """A pool that keeps the files of few logs open while nothing is appended, as with many partitions."""

    def __init__(self, files: FileSystem, limit: int) -> None:
        super().__init__(files, limit)
        self._max_pins = max(1, self._limit // 2)


class Machine:
    """One machine, its disk, and the broker that runs on it, if one does."""

    def __init__(self, world: World, number: int, folder: Path) -> None:
        self.world = world
        self.number = number
        self.name = f"b{number}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self.disk = Disk(self.folder)
        self.directories = [self.folder / name for name in DIRECTORIES[: world.plan.directories]]
        """Where the broker has its logs."""
        for directory in self.directories:
            self.disk.make_dir(str(directory))
        self.disk.sync_dir(str(self.folder))
        self.clock = MachineClock(world.loop)
        self.slowness = 1.0
        self.process: Process | None = None
        self.app: App | None = None
        self.starts = 0
        self.disk_failed = False
        """Whether the disk has failed since the broker was started: it uses a failed directory no more."""
        self.is_stopping = False
        """Whether it was told to stop, and will leave the cluster."""

    @property
    def is_up(self) -> bool:
        """Whether a broker runs here, ready or not."""
        return self.process is not None and self.process.alive

    @property
    def is_in_cluster(self) -> bool:
        """Whether the controller knows of the broker that runs here now."""
        return self.is_up and self.app is not None and not self.app.broker.membership.fence.is_fenced

    @property
    def is_in_touch(self) -> bool:
        """Whether the broker is in the cluster and will stay there if nothing else happens."""
        process, world = self.process, self.world
        return (
            self.is_in_cluster
            and not self.is_stopping
            and process is not None
            and not process.stopped
            and world.network.is_open(self.name, TREE)
            and world.network.is_open(TREE, self.name)
            and any(each.process is process and not each.over for each in world.tree.sessions.values())
        )

    def log_directory(self, topic: str, partition: int) -> Path:
        """Where the records of a partition are.

        A directory in which its log was only begun, as the disk was full, stays empty until the next start.
        """
        found = [directory / f"{topic}-{partition}" for directory in self.directories]
        return max(found, key=lambda path: sum(file.stat().st_size for file in path.glob("*.log")))

    @property
    def address(self) -> tuple[str, int]:
        """Where clients connect."""
        return host_of(self.name), PORT

    def held_files(self) -> list[str]:
        """Files that the broker holds open for somebody who reads them, or has forgotten: none, once nobody reads."""
        if self.app is None:
            return []
        broker_logs = self.app.broker.logs
        logs = broker_logs.logs()
        forgotten = self.disk.open_count - broker_logs.pool.open_count - len(self.directories)  # which are locked
        files = [segment.file for log in logs if log.is_open for segment in log.segments]
        lost = [f"{self.name} has {forgotten} files open that nobody uses"] if forgotten > 0 else []
        return lost + [
            f"{self.name} holds {file.path.removeprefix(str(self.folder))} open for readers that are gone"
            for file in files
            if file._leases
        ]

    @property
    def needs_restart(self) -> bool:
        """Whether a log directory failed, or could not be loaded: it is used again after a restart."""
        stores = [] if self.app is None else self.app.broker.logs._directories.values()
        return self.disk_failed or any(store.doubtful for store in stores)

    def start(self) -> None:
        """Turn the machine on and start its broker."""
        assert not self.is_up
        world = self.world
        world.log.say(f"{self.name} starts")
        world.network.power_on(self.name)
        process = self.process = Process(self.name)
        process.on_death.append(lambda: world.network.process_died(process))
        self.disk.revive()
        self.disk.on_crash = lambda: self._crashed(process)
        self.disk.on_loop_sync = lambda where: world.log.violate(f"the event loop waits for the disk: {where}")
        self.starts += 1
        self.app = None
        self.disk_failed = self.disk.failing_syncs or self.disk.failing_writes or self.disk.failing_reads
        world.loop.start_in(process, self._run(process))

    async def _run(self, process: Process) -> None:
        world = self.world
        try:
            self.app = App(self._config(), self._options(), on_duplicate=lambda: self._ends(process, "its id is taken"))
            watch_leaders(self.app, world.log, self.name)
            await self.app.start()
        except Exception as error:
            self._ends(process, f"it cannot start: {type(error).__name__}: {error}")
            return
        world.log.say(f"{self.name} is ready")
        if world.plan.keyed:
            await self._clean(self.app)

    async def _clean(self, app: App) -> None:
        """Compact logs as the cleaner's threads do, one log at a time."""
        manager = CleanerManager(app.broker.logs, self.clock)
        worker = InThisProcess(self.disk)
        executor = LoopExecutor(self.world.loop, self.world.chance, lambda: self.slowness)
        while True:
            await asyncio.sleep(self.world.chance.uniform(0.2, 2.0))
            await self.world.loop.run_in_executor(executor, manager.clean_next, worker, LIMITS)

    def _ends(self, process: Process, why: str) -> None:
        """The process ends by itself and is started again."""
        if self.process is process and process.alive:
            self.world.log.say(f"{self.name} ends: {why.replace(str(self.folder), '')}")
            self.world.loop.end(process)
            self.disk.kill()
            self.world.loop.in_world(AGAIN, self._start_again, process)

    def _start_again(self, process: Process) -> None:
        if self.process is process:
            self.start()

    def _crashed(self, process: Process) -> None:
        """The disk said that the machine stops in the middle of a write."""
        if self.process is process and process.alive:
            self.world.log.say(f"{self.name} stops in the middle of a write")
            self.world.loop.end(process)

    def kill(self) -> None:
        """kill -9: what was written stays written."""
        if self.process is not None:
            self.world.loop.end(self.process)
            self.disk.dead = True
            self.disk.kill()

    def power_loss(self, seed: int) -> None:
        """The power is gone: so are bytes that were not synced."""
        if self.process is not None:
            self.world.network.power_off(self.name)
            self.world.loop.end(self.process)
            self.disk.dead = True
            self.disk.power_loss(seed)

    async def stop(self) -> None:
        """SIGTERM."""
        process, app = self.process, self.app
        if process is None or app is None or not process.alive:
            return
        task = self.world.loop.start_in(process, app.stop())
        self.is_stopping = True
        try:
            await asyncio.wait([task], timeout=60)
        finally:  # who cannot wait any longer kills it
            self.is_stopping = False
            if self.process is process and process.alive:
                self.world.log.say(f"{self.name} is stopped")
                self.kill()

    def _options(self) -> BrokerOptions:
        world = self.world

        def executor(threads: int, name: str) -> LoopExecutor:
            inline = name in ("barnabas-recovery", "barnabas-close")
            late = world.plan.late
            return LoopExecutor(world.loop, world.chance, lambda: self.slowness, inline=inline, late=late)

        def server(*parts: Any) -> SimServer:
            return SimServer(world.network, *parts)

        return BrokerOptions(
            clock=self.clock,
            files=self.disk,
            make_logs=partial(LogManager, max_open_files=world.plan.open_files, make_pool=FewPins),
            open_store=lambda _: MemoryStore(world.tree),
            make_executor=executor,
            make_server=server,
        )

    def _config(self) -> BrokerConfig:
        host, port = self.address
        return BrokerConfig.load(
            {
                "broker.id": str(self.number),
                "log.dirs": ",".join(map(str, self.directories)),
                "listeners": f"PLAINTEXT://{host}:{port}",
                "zookeeper.connect": "zk:2181",
                "zookeeper.session.timeout.ms": "6000",
                "log.cleaner.enable": "false",
                "auto.create.topics.enable": "false",
                "default.replication.factor": "3",
                "min.insync.replicas": "2",
                "offsets.topic.num.partitions": "2",
                "offsets.topic.replication.factor": "3",
                "transaction.state.log.num.partitions": "2",
                "transaction.state.log.replication.factor": "3",
                "transaction.state.log.min.isr": "2",
                "group.initial.rebalance.delay.ms": "0",
                "replica.lag.time.max.ms": "6000",
                "replica.fetch.wait.max.ms": "1000",
                "replica.high.watermark.checkpoint.interval.ms": "3000",
                "log.cleaner.min.cleanable.ratio": "0.01",
                "num.recovery.threads.per.data.dir": "1",
                **(broker_settings(self.world) if self.world.plan.workers else {}),
                **self.world.plan.settings,
            }
        )
