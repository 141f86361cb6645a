"""The workers of a world: they come, hang, lose their connections, leave and are killed, until one last worker is left.

In the end nothing fails any more. Then those who are there are killed, or stopped for good, with whatever they hold,
and a new one does what is left. How long that may take is the promise: killed workers lose their messages at once,
those of workers that hang come back when their locks are over, and a member that is silent counts for as long as a
session.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol.apis import ApiKey
from tests.history.queues.checker import check, excused
from tests.history.queues.events import Place, QueueHistory
from tests.simulation.whole.client import Client, Unanswered
from tests.simulation.whole.consumers import Consumer
from tests.simulation.whole.queues.notes import QueueNotes
from tests.simulation.whole.queues.observer import STATE_PARTITIONS, Observer
from tests.simulation.whole.queues.worker import EAGER, NAME, Manners, Plan, Worker

if TYPE_CHECKING:
    from uuid import UUID

    from tests.simulation.whole.loop import Process
    from tests.simulation.whole.world import World

GROUP_RESOURCE: Final = 32
SESSION_SECONDS: Final = 5.0
PATIENCE: Final = 20.0
"""Seconds that a cluster which nothing disturbs may take for what is left, beside locks and sessions: also to store
what it has to, and to deliver messages one by one that were delivered often."""
LETTERS: Final = "dlq.t"
LETTER_SECONDS: Final = 70.0
"""Dead letters that could not be written are tried again after a minute at the latest."""
PLANS: Final = (*[Plan.ACCEPT] * 12, *[Plan.RELEASE] * 4, Plan.REJECT, *[Plan.KEEP] * 2)


def broker_settings(world: World) -> dict[str, str]:
    """What brokers are set to, so that locks, sessions and snapshots end within a world."""
    queue = world.plan.queue
    return {
        "group.share.record.lock.duration.ms": str(queue.lock_ms),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.delivery.count.limit": str(queue.delivery_limit),
        "group.share.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
        "group.share.min.session.timeout.ms": "1000",
        "group.share.heartbeat.interval.ms": "1000",
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.assignment.interval.ms": "100",
        "group.share.initialize.retry.interval.ms": "5000",
        "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
        "share.coordinator.snapshot.update.records.per.snapshot": str(queue.updates_per_snapshot),
        "share.coordinator.state.topic.prune.interval.ms": "3000",
        "share.coordinator.cold.partition.snapshot.interval.ms": "3000",
    }


class Shift:
    """All workers of a world, and what became of the messages."""

    def __init__(self, world: World, topic: str) -> None:
        self._world = world
        self._topic = topic
        self._queue = world.plan.queue
        self._notes = QueueNotes(world.tree, world.machines, world.loop.time)
        self._workers: list[tuple[Process, Worker]] = []
        self._coming: list[asyncio.Task[Any]] = []
        self._late: asyncio.Task[None] | None = None
        """Makes the topic for dead letters."""
        self._is_over = False
        self._topic_id: UUID | None = None

    async def prepare(self, client: Client) -> None:
        """Set the group up: it begins with the first message."""
        level = "read_committed" if self._queue.reads_committed else "read_uncommitted"
        wanted = {"share.auto.offset.reset": "earliest", "share.isolation.level": level}
        if self._queue.has_letters:
            if not self._queue.letters_after:
                await self._make_letters(client)
            wanted |= {
                "errors.deadletterqueue.topic.name": LETTERS,
                "errors.deadletterqueue.copy.record.enable": "true",
            }
        configs = [{"name": key, "config_operation": 0, "value": value} for key, value in wanted.items()]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": NAME, "configs": configs}
        while True:
            try:
                answer = await client.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
                if not answer.responses[0].error_code.value:
                    break
            except Unanswered:
                pass
            await client.pause()
        while self._topic_id is None:
            try:
                answer = await client.ask_any(ApiKey.METADATA, 12, topics=[{"name": self._topic}])
                self._topic_id = answer.topics[0].topic_id if answer.topics else None
            except Unanswered:
                await client.pause()

    async def _make_letters(self, client: Client) -> None:
        await asyncio.sleep(self._queue.letters_after)
        await self._world.create_topic(client, LETTERS, 1, {"errors.deadletterqueue.group.enable": "true"})

    def begin(self) -> None:
        """Let workers come, one after the other in each place."""
        if self._queue.has_letters and self._queue.letters_after:
            admin, client = self._world.client()
            self._late = self._world.loop.start_in(admin, self._make_letters(client))
        self._coming = [asyncio.create_task(self._occupy()) for _ in range(self._world.plan.workers)]
        process, client = self._world.client()
        assert self._topic_id is not None
        observer = Observer(client, self._notes, self._topic_id, self._world.plan.partitions)
        self._coming.append(self._world.loop.start_in(process, observer.run(lambda: not self._is_over)))

    async def _occupy(self) -> None:
        """One worker after the other."""
        chance = self._world.chance
        while not self._is_over:
            process, worker = self._come(self._manners())
            await asyncio.sleep(chance.expovariate(0.15))
            while chance.random() < 0.5:
                self._disturb(process)
                await asyncio.sleep(chance.expovariate(0.5))
            if chance.random() < 0.3:
                worker.leave()
                await asyncio.sleep(1.0)
            self._world.loop.continue_process(process)
            self._kill(process)

    def _manners(self) -> Manners:
        chance = self._world.chance
        longest_work = chance.choice((0.0, 0.5, 2 * self._queue.lock_ms / 1000))
        return Manners(PLANS, longest_work, chance.random() < 0.3, chance.random() < 0.4, chance.choice((0.1, 1.0)))

    def _come(self, manners: Manners) -> tuple[Process, Worker]:
        process, client = self._world.client()
        worker = Worker(client, self._world.log, self._notes, self._topic, manners)
        process.on_death.append(lambda: self._world.network.process_died(process))
        self._workers.append((process, worker))
        self._world.loop.start_in(process, worker.run())
        return process, worker

    def _disturb(self, process: Process) -> None:
        """A worker hangs for a while, or loses its connections."""
        world, chance = self._world, self._world.chance
        if chance.random() < 0.5:
            world.log.say(f"{process.machine} hangs")
            world.loop.stop_process(process)
            world.loop.in_world(chance.uniform(0.1, 8), self._go_on, process)
        else:
            world.log.say(f"{process.machine} loses its connections")
            for machine in world.machines:
                world.network.reset_connections(process.machine, machine.name)
                world.network.reset_connections(machine.name, process.machine)

    def _go_on(self, process: Process) -> None:
        if not self._is_over:  # those who hang then hang for good
            self._world.loop.continue_process(process)

    def _kill(self, process: Process) -> None:
        self._world.log.say(f"{process.machine} is killed")
        self._world.loop.end(process)

    # The end

    async def finish(self, final: dict[Place, str]) -> None:
        """Let one last worker do what is left, and judge."""
        self._is_over = True
        if self._late is not None:
            await self._late
        for task in self._coming:
            task.cancel()
        await asyncio.wait(self._coming)
        for process, _ in self._workers:
            if self._queue.ends_by_killing:
                self._kill(process)
            else:
                self._world.loop.stop_process(process)
        patience = SESSION_SECONDS + PATIENCE + (0 if self._queue.ends_by_killing else self._queue.lock_ms / 1000)
        patience += LETTER_SECONDS if self._queue.has_letters else 0
        self._come(EAGER)
        process, client = self._world.client()
        await self._world.loop.start_in(process, self._look_at_the_end(client, final, self._notes.now() + patience))
        history = self._history(final, await self._letters(final))
        for violation in check(history):
            self._world.log.violate(str(violation))
        notes = self._notes
        self._world.log.say(
            f"the queue: {len(notes.deliveries)} deliveries, {len(notes.acknowledgements)} acknowledgements, "
            f"{len(notes.observations)} looks; {excused(history)} messages may be used up by fetches without an answer"
        )

    async def _look_at_the_end(self, client: Client, final: dict[Place, str], deadline: float) -> None:
        """Look until everything is done, or the time is over."""
        assert self._topic_id is not None
        observer = Observer(client, self._notes, self._topic_id, self._world.plan.partitions)
        for partition in range(self._world.plan.partitions):
            offsets = [place.offset for place in final if place.partition == partition]
            while offsets:
                seen = await observer.look(partition)
                if seen is not None and seen.is_current and all(map(seen.is_done, offsets)):
                    break
                if self._notes.now() > deadline:
                    break
                await asyncio.sleep(0.2)

    async def _letters(self, final: dict[Place, str]) -> set[Place] | None:
        """The messages that have a dead letter, which is a copy; None where there are none."""
        if not self._queue.has_letters:
            return None
        process, client = self._world.client()
        records = await self._world.read(Consumer(client, self._world.log, LETTERS, 1), process)
        values = {record.value for record in records}
        return {place for place, value in final.items() if value in values}

    def _history(self, final: dict[Place, str], letters: set[Place] | None) -> QueueHistory:
        notes, sent_at = self._notes, self._world.log.sent_at
        sent = self._world.log.sends.keys()
        return QueueHistory(
            messages=final,
            others=frozenset() if self._queue.reads_committed else sent - final.values(),
            deliveries=notes.deliveries,
            acknowledgements=notes.acknowledgements,
            observations=notes.observations,
            unheard=notes.unheard,
            sent_at={place: sent_at[value] for place, value in final.items() if value in sent_at},
            sessions=notes.sessions,
            lock_seconds=self._queue.lock_ms / 1000,
            delivery_limit=self._queue.delivery_limit,
            dead_letters=letters,
        )
