"""Stories of a whole broker and its coordinators, alone in a world of the simulation (`tests/simulation/whole`).

The clients are those of the simulation: they try again what may pass, and the checker of histories judges what they
saw. Each story says who works while a call fails, and whether that call fails while the broker is started. The power is
lost only where every topic has flush.messages=1. The number of the call is the seed of its world, too, so that what
threads do at the same time happens in another order for each call; `--luck` takes other seeds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import shutil
import sys
import traceback
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.protocol.apis import ApiKey
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from barnabas.storage.check import check
from tests.failing_calls.files import FailingFiles
from tests.failing_calls.story import BrokenRule, Ending, Told
from tests.history.queues.events import Place
from tests.simulation.whole.admins import Admin
from tests.simulation.whole.clock import BEGAN_MS
from tests.simulation.whole.consumers import Consumer
from tests.simulation.whole.disks import Disk
from tests.simulation.whole.plan import Plan, QueuePlan
from tests.simulation.whole.runner import _folder, _log_into, _seed_chance, warm_up
from tests.simulation.whole.world import HEALING_SECONDS, TOPIC, World

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.failing_calls.story import Case
    from tests.simulation.whole.client import Client

SETTINGS: Final = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
QUEUE: Final = QueuePlan(lock_ms=1000, delivery_limit=2, updates_per_snapshot=3, has_letters=True)
SEGMENT_BYTES: Final = 300
"""Small, so that coordinators' logs begin new segments, too."""
QUEUE_SEGMENT_BYTES: Final = 1500
"""A snapshot of a share partition has to fit in."""
SECONDS: Final = 3.0
"""How long clients work before a call fails, while one does, and after that."""
UNTIL_SERVED: Final = 60.0
"""By when a broker is ready that was started, again if need be."""


class BrokerStory(NamedTuple):
    """Who works with the broker, and when a call fails."""

    producers: int = 0
    transactors: int = 0
    committers: int = 0
    members: int = 0
    classics: int = 0
    """Members of a classic group."""
    workers: int = 0
    """Of a queue whose messages are given up soon, and have dead letters."""
    deletes: bool = False
    synced: bool = False
    """Whether every topic has flush.messages=1, whatever the ending."""
    while_starting: bool = False
    from_the_first: bool = False
    """Whether a call may fail from the first request on, when logs and coordinators are made."""


STORIES: Final[Mapping[str, BrokerStory]] = {
    "produce with flush.messages": BrokerStory(producers=1, synced=True, from_the_first=True),
    "commit offsets": BrokerStory(committers=2),
    "commit and transact for the first time": BrokerStory(transactors=1, committers=1, from_the_first=True),
    "join and leave a group": BrokerStory(producers=1, members=2, classics=1),
    "transactions": BrokerStory(transactors=1),
    "queue with dead letters": BrokerStory(producers=1, workers=2),
    "delete topics": BrokerStory(producers=1, deletes=True),
    "load coordinators": BrokerStory(transactors=1, committers=1, members=1, while_starting=True),
    "load a queue": BrokerStory(producers=1, workers=2, while_starting=True),
}


class FailingDisk(FailingFiles, Disk):
    """The disk of a machine, of which one call fails."""

    loses_all = False
    """Whether a power loss takes everything that was not synced."""

    def power_loss(self, seed: int) -> None:
        """See FaultyFiles."""
        if self.loses_all:
            self.lose_unsynced()
        else:
            super().power_loss(seed)


class Deleter(Admin):
    """Creates topics and deletes them."""

    replication_factor = 1

    async def run(self) -> None:
        """Create and delete; at the end look whether the cluster is as it was decided."""
        while self._running():
            await self._create()
            if self._there:
                await self._delete(self._there.pop())
            await asyncio.sleep(0.2)
        for _ in range(int(HEALING_SECONDS)):
            if await self._look() == []:
                return
            await asyncio.sleep(0.5)
        self._log.violate("topics are not as it was decided")


class OneBroker(World):
    """One broker, its disk, and the clients of a story."""

    def __init__(self, story: BrokerStory, case: Case, folder: Path) -> None:
        synced = story.synced or case.ending.loses_power
        plan = Plan(
            seed=case.seed,
            seconds=0.0,
            producers=story.producers,
            consumers=1,
            transactors=story.transactors,
            committers=story.committers,
            members=story.members,
            classics=story.classics,
            workers=story.workers,
            queue=QUEUE,
            admins=0,
            partitions=1,
            faults=(),
            segment_bytes=SEGMENT_BYTES,
            settings={**SETTINGS, **({"log.flush.interval.messages": "1"} if synced else {})},
        )
        super().__init__(plan, folder, tell=True)
        self._story = story
        self._case = case
        self.machine = self.machines[0]
        self.machines = [self.machine]
        self.disk = self.machine.disk = FailingDisk(self.machine.folder)
        self.disk.make_dir(str(self.machine.folder / "data"))
        self.disk.sync_dir(str(self.machine.folder))

    async def _main(self) -> None:
        self.machine.start()
        admin, client = self.client()
        await asyncio.wait_for(self._spawn(admin, self._create_topics(client)), UNTIL_SERVED)
        if self._story.from_the_first:
            self.disk.arm(self._case.fault, self._case.number)
        tasks = self._clients_of_story()
        if self._shift is not None:
            self._shift.begin()
        await asyncio.sleep(SECONDS)
        self._use_small_segments()
        if self._story.while_starting:
            self.machine.kill()
            self.disk.arm(self._case.fault, self._case.number)
            self.machine.start()
            await self._ready()
        elif not self._story.from_the_first:
            self.disk.arm(self._case.fault, self._case.number)
            if self._story.members:
                tasks += [self._member(), self._classic()]
        await asyncio.sleep(SECONDS)
        await self._check_serving()
        self.disk.disarm()
        await self._end()
        await asyncio.sleep(SECONDS)
        await self._settle_clients(tasks)
        await self.machine.stop()
        for finding in check(self.machine.folder / "data").errors:
            self.log.violate(f"the checker finds {finding}")

    def _clients_of_story(self) -> list[asyncio.Task[Any]]:
        story = self._story
        tasks = [self._producer() for _ in range(story.producers)]
        tasks += [self._transactor() for _ in range(story.transactors)]
        tasks += [self._committer() for _ in range(story.committers)]
        tasks += [self._member() for _ in range(story.members)]
        tasks += [self._classic() for _ in range(story.classics)]
        if story.deletes:
            process, client = self.client()
            tasks.append(self._spawn(process, Deleter(client, self.log, TOPIC, 1, lambda: self._running).run()))
        return [*tasks, self._consumer()]

    def _use_small_segments(self) -> None:
        assert self.machine.app is not None
        size = QUEUE_SEGMENT_BYTES if self._story.workers else SEGMENT_BYTES
        for log in self.machine.app.broker.logs.logs():
            log.update_config(replace(log.config, segment_bytes=size))

    async def _check_serving(self) -> None:
        """A directory takes writes again when the cause is gone, unless nobody knows what is on the disk."""
        if self._failed() and not self.disk.may_need_restart:
            await asyncio.sleep(UNTIL_SERVED)
            if self._failed():
                self.log.violate("only a restart helps")

    def _failed(self) -> bool:
        return self.machine.app is not None and bool(self.machine.app.broker.logs.failed_directories)

    async def _end(self) -> None:
        ending = self._case.ending
        if ending is Ending.GO_ON and not self._failed():
            return
        self.log.say(ending.value)
        if ending is Ending.KILLED:
            self.machine.kill()
        elif ending.loses_power:
            self.disk.loses_all = ending is Ending.EVERYTHING_UNSYNCED
            self.machine.power_loss(self._case.number)
        else:
            await self.machine.stop()
        self.machine.start()
        await self._ready()

    async def _ready(self) -> None:
        async with asyncio.timeout(UNTIL_SERVED):
            while not self.machine.is_in_cluster:
                await asyncio.sleep(0.1)

    async def _settle_clients(self, tasks: list[asyncio.Task[Any]]) -> None:
        self._running = False
        done, pending = await asyncio.wait(tasks, timeout=HEALING_SECONDS)
        if pending:
            self.log.violate(f"{len(pending)} clients are still not served")
            return
        for task in done:
            if (error := task.exception()) is not None:
                self.log.violate(f"a client failed: {type(error).__name__}: {error}")
        reader, client = self.client()
        last = Consumer(client, self.log, TOPIC, self.plan.partitions)
        self.log.final = await asyncio.wait_for(self._spawn(reader, last.read_all()), HEALING_SECONDS)
        if self._shift is not None:
            await self._shift.finish({Place(*place): value for *place, value in self.log.final})
        sender, client = self.client()
        await asyncio.wait_for(self._spawn(sender, self._send_one(client)), HEALING_SECONDS)

    async def _send_one(self, client: Client) -> None:
        """A producer that does not try again, when everything is as it should be."""
        batch = build_batch([Record(0, 0, None, b"last")], base_timestamp=BEGAN_MS)
        answer = await client.ask_leader(
            TOPIC,
            0,
            ApiKey.PRODUCE,
            9,
            acks=-1,
            timeout=5000,
            topic_data=[{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
        )
        code = answer.responses[0].partition_responses[0].error_code
        if code.value:
            self.log.violate(f"a record is refused: {code.name}")


class Outcome(NamedTuple):
    """What a process says of the story it told."""

    call: str
    violations: tuple[str, ...]
    lines: tuple[str, ...]


def tell(name: str, case: Case, *, talk: bool = False) -> Told:
    """Tell a story in a process of its own, which ends with it; raises BrokenRule."""
    _prepare()
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        with os.fdopen(writing, "wb") as out:
            pickle.dump(_tell(name, case), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as results:
        data = results.read()
    _, status = os.waitpid(child, 0)
    if not data:
        raise BrokenRule(f"the process of the story ended with status {status}")
    outcome: Outcome = pickle.loads(data)
    if talk:
        print(*outcome.lines, sep="\n")
    if outcome.violations:
        call = f"{case.fault.name} in call {case.number} ({outcome.call})"
        raise BrokenRule(f"{call}, {case.ending.value}: {'; '.join(outcome.violations[:3])}", outcome.call)
    return Told(case, outcome.call)


@cache
def _prepare() -> None:
    """Import everything that brokers and clients need, once: it would cost each story more than telling it."""
    warm_up()


def _tell(name: str, case: Case) -> Outcome:
    gc.disable()
    _seed_chance(case.seed)
    logging.disable(logging.NOTSET)
    folder = _folder()
    try:
        world = OneBroker(STORIES[name], case, folder)
        _log_into(world)
        result = world.run()
        return Outcome(world.disk.what, result.violations, result.story)
    except BaseException:
        return Outcome("", (f"the story itself failed: {traceback.format_exc()}",), ())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
