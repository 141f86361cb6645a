"""One world from its plan to its judgement."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.internal_topics import SHARE_GROUP_STATE
from barnabas.protocol.apis import ApiKey
from tests.history.queues.events import Place
from tests.simulation.whole import compacted, loose
from tests.simulation.whole.admins import Admin
from tests.simulation.whole.classic import ClassicMember
from tests.simulation.whole.client import Client, Unanswered
from tests.simulation.whole.committers import Committer
from tests.simulation.whole.compacted import KeyedProducer, KeyedReader
from tests.simulation.whole.consumers import READ_COMMITTED, READ_UNCOMMITTED, Consumer
from tests.simulation.whole.history import Log
from tests.simulation.whole.judge import judge
from tests.simulation.whole.loop import Process, VirtualLoop
from tests.simulation.whole.loose import LooseProducer
from tests.simulation.whole.machine import Machine
from tests.simulation.whole.members import Member
from tests.simulation.whole.nemesis import Nemesis
from tests.simulation.whole.network import Network
from tests.simulation.whole.producers import PipelinedProducer, Producer
from tests.simulation.whole.queues.shift import Shift
from tests.simulation.whole.replicas import damages, differences
from tests.simulation.whole.scanners import INTERNAL, Scanner
from tests.simulation.whole.store import MemoryTree
from tests.simulation.whole.transactors import Transactor

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from tests.history.checker import Record
    from tests.simulation.whole.plan import Plan

TOPIC: Final = "t"
HEALING_SECONDS: Final = 120.0
"""By when a cluster that nothing disturbs any more has every replica in sync, and has answered everybody."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a world."""

    seed: int
    violations: tuple[str, ...]
    digest: str
    events: int
    acknowledged: int
    seconds: float
    story: tuple[str, ...] = ()


class World:
    """Machines, clients, what is between them, and what goes wrong."""

    def __init__(self, plan: Plan, folder: Path, *, tell: bool) -> None:
        self.plan = plan
        self.chance = random.Random(f"world {plan.seed} {plan.luck}")
        self.loop = VirtualLoop(self.chance)
        self.log = Log(self.loop, tell=tell)
        self.network = Network(self.loop, self.chance, self.log.trace)
        self.network.folder = str(folder).encode()
        self.network.late = self.loop.late = plan.late
        self.network.pieces = plan.pieces
        self.tree = MemoryTree(self.network, self.chance)
        self.machines = [Machine(self, number, folder) for number in (1, 2, 3)]
        self.nemesis = Nemesis(self)
        self._running = True
        self.client_names: list[str] = []
        self._committed: dict[int, int] = {}
        self._committed_classic: dict[int, int] = {}
        self._members: list[Member] = []
        self._shift = Shift(self, TOPIC) if plan.workers else None
        self.log.clocks_jump = any(fault.kind in ("clock", "freeze") for fault in plan.faults)

    def run(self) -> Result:
        """Let it happen, and judge it."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._main())
        except Exception as error:
            self.log.violate(f"the world ended: {type(error).__name__}: {error}")
        else:
            for violation in judge(self.log):
                self.log.violate(violation)
        return Result(
            self.plan.seed,
            tuple(self.log.violations),
            self.log.digest,
            self.log.events,
            self.log.acknowledged,
            self.loop.time(),
            tuple(self.log.story),
        )

    def client(self) -> tuple[Process, Client]:
        """A new client on a machine of its own."""
        process = Process(f"c{len(self.client_names) + 1}")
        self.client_names.append(process.machine)
        chance = random.Random(f"{process.machine} of {self.plan.seed} {self.plan.luck}")
        addresses = [each.address for each in self.machines]
        return process, Client(process.machine, addresses, chance, hasty=self.plan.hasty)

    def _spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.loop.start_in(process, work)

    async def _main(self) -> None:
        for machine in self.machines:
            machine.start()
            await asyncio.sleep(self.chance.random())
        admin, client = self.client()
        await asyncio.wait_for(self._spawn(admin, self._create_topics(client)), 60)
        working = [self._producer() for _ in range(self.plan.producers)]
        working += [self._transactor() for _ in range(self.plan.transactors)]
        working += [self._committer() for _ in range(self.plan.committers)]
        working += [self._member() for _ in range(self.plan.members)]
        working += [self._classic() for _ in range(self.plan.classics)]
        working += [self._keyed() for _ in range(self.plan.keyed)]
        working += [self._loose() for _ in range(self.plan.loose)]
        working += [self._admin() for _ in range(self.plan.admins)]
        working += [self._scanner() for _ in range(self.plan.scanners)]
        following = [self._consumer() for _ in range(self.plan.consumers)]
        if self._shift is not None:
            self._shift.begin()
        nemesis = asyncio.create_task(self.nemesis.run())
        await asyncio.sleep(max(0.0, self.plan.seconds - self.loop.time()))
        nemesis.cancel()
        await asyncio.wait([nemesis])
        self.nemesis.heal()
        await self._settle([*working, *following])
        reader, client = self.client()
        self.log.final = await self.read(Consumer(client, self.log, TOPIC, self.plan.partitions), reader)
        self.log.say(f"{len(self.log.final)} records are there at the end")
        if self.plan.keyed:
            records = await self.read(KeyedReader(client, self.log, compacted.TOPIC, 1), reader)
            for line in compacted.judge_keys(self.log, records):
                self.log.violate(line)
        if self.plan.loose:
            records = await self.read(Consumer(client, self.log, loose.TOPIC, 1), reader)
            for line in loose.judge_loose(self.log, records):
                self.log.violate(line)
        if self._shift is not None:
            await self._shift.finish({Place(*place): value for *place, value in self.log.final})
        await self._compare_replicas()

    async def read(self, consumer: Consumer, process: Process) -> list[Record]:
        """Everything that a topic holds."""
        return await asyncio.wait_for(self._spawn(process, consumer.read_all()), HEALING_SECONDS)

    def _producer(self) -> asyncio.Task[None]:
        process, client = self.client()
        kind = PipelinedProducer if self.plan.pipelined else Producer
        return self._spawn(process, kind(client, self.log, TOPIC, self.plan.partitions, lambda: self._running).run())

    def _transactor(self) -> asyncio.Task[None]:
        process, client = self.client()
        version = self.chance.choice((1, 2))
        transactor = Transactor(client, self.log, TOPIC, self.plan.partitions, lambda: self._running, version)
        return self._spawn(process, transactor.run())

    def _committer(self) -> asyncio.Task[None]:
        process, client = self.client()
        committer = Committer(client, self.log, TOPIC, lambda: self._running, at_once=3 if self.plan.pipelined else 1)
        return self._spawn(process, committer.run())

    def _member(self) -> asyncio.Task[None]:
        process, client = self.client()
        member = Member(client, self.log, TOPIC, self.plan.partitions, self._committed, self._members)
        return self._spawn(process, member.run(lambda: self._running))

    def _classic(self) -> asyncio.Task[None]:
        process, client = self.client()
        member = ClassicMember(client, self.log, TOPIC, self.plan.partitions, self._committed_classic)
        return self._spawn(process, member.run(lambda: self._running))

    def _keyed(self) -> asyncio.Task[None]:
        process, client = self.client()
        return self._spawn(process, KeyedProducer(client, self.log, compacted.TOPIC, 1, lambda: self._running).run())

    def _loose(self) -> asyncio.Task[None]:
        process, client = self.client()
        return self._spawn(process, LooseProducer(client, self.log, loose.TOPIC, 1, lambda: self._running).run())

    def _admin(self) -> asyncio.Task[None]:
        process, client = self.client()
        admin = Admin(client, self.log, TOPIC, self.plan.partitions, lambda: self._running)
        if self.plan.workers:
            admin.coordinated = (*admin.coordinated, SHARE_GROUP_STATE)
        return self._spawn(process, admin.run())

    def _consumer(self) -> asyncio.Task[None]:
        process, client = self.client()
        has_open_records = self.plan.transactors or self.plan.seed % 2
        isolation_level = READ_COMMITTED if has_open_records else READ_UNCOMMITTED
        consumer = Consumer(client, self.log, TOPIC, self.plan.partitions, isolation_level)
        return self._spawn(process, consumer.follow(lambda: self._running))

    def _scanner(self) -> asyncio.Task[None]:
        process, client = self.client()
        scanner = Scanner(client, {TOPIC: self.plan.partitions, **INTERNAL}, lambda: self._running)
        return self._spawn(process, scanner.run())

    async def _settle(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until all replicas are in sync and all clients have what they waited for."""
        self.log.deletions = 0.0  # another one could let a replica begin anew that cannot where the last one left it
        deadline = self.loop.time() + HEALING_SECONDS
        while not self.nemesis.is_whole():
            if self.loop.time() > deadline:
                self.log.violate("some replica is not in sync long after everything was mended")
                break
            await asyncio.sleep(0.5)
        self.log.say("every replica is in sync")
        self._running = False
        if not tasks:  # as in a world that was made smaller
            return
        done, pending = await asyncio.wait(tasks, timeout=HEALING_SECONDS)
        if pending:
            self.log.violate(f"{len(pending)} clients still wait long after everything was mended")
        for task in done:
            if (error := task.exception()) is not None:
                self.log.violate(f"a client failed: {type(error).__name__}: {error}")

    async def _compare_replicas(self) -> None:
        """Replicas hold the same once followers have fetched what was committed last, and nobody holds files open."""
        deadline = self.loop.time() + HEALING_SECONDS
        while found := differences(self.tree.nodes, self.machines):
            if self.loop.time() > deadline:
                break
            await asyncio.sleep(1.0)
        if self.plan.loose:
            found += loose.judge_replicas(self.log, self.tree, self.machines)
        while (held := [line for machine in self.machines for line in machine.held_files()]) and (
            self.loop.time() <= deadline
        ):
            await asyncio.sleep(1.0)
        for line in (*found, *held, *damages(self.machines)):
            self.log.violate(line)

    async def _create_topics(self, client: Client) -> None:
        segment_bytes = {"internal.segment.bytes": str(self.plan.segment_bytes)}
        await self.create_topic(client, TOPIC, self.plan.partitions, segment_bytes)
        if self.plan.small_internal:
            await self._shrink_segments(client)
        if self.plan.keyed:
            await self.create_topic(client, compacted.TOPIC, 1, {"internal.segment.bytes": "600", **compacted.SETTINGS})
        if self._shift is not None:
            await self._shift.prepare(client)
        if self.plan.loose:
            loose.watch_elections(self.log, self.tree, self.loop.time)
            await self.create_topic(client, loose.TOPIC, 1, {**segment_bytes, **loose.SETTINGS})

    async def _shrink_segments(self, client: Client) -> None:
        """Have the internal topics made, and give them small segments."""
        for kind, name in enumerate(("__consumer_offsets", "__transaction_state")):
            setting = {"name": "internal.segment.bytes", "config_operation": 0, "value": "1024"}
            resource = {"resource_type": 2, "resource_name": name, "configs": [setting]}
            for _ in range(50):
                with contextlib.suppress(Unanswered):
                    await client.ask_any(ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=["x"])
                    answer = await client.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
                    if not answer.responses[0].error_code.value:
                        break
                await client.pause()

    async def create_topic(self, client: Client, name: str, partitions: int, configs: dict[str, str]) -> None:
        """Have a topic on all machines."""
        while True:
            try:
                answer = await client.ask_any(
                    ApiKey.CREATE_TOPICS,
                    7,
                    timeout=10_000,
                    topics=[
                        {
                            "name": name,
                            "num_partitions": partitions,
                            "replication_factor": len(self.machines),
                            "configs": [{"name": key, "value": value} for key, value in configs.items()],
                        }
                    ],
                )
            except Unanswered:
                await client.pause()
                continue
            self.log.say(f"topic {name}: {answer.topics[0].error_code.name}")
            if answer.topics[0].error_code.value in (0, 36):
                return
            await client.pause()
