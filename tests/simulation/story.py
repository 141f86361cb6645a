"""One run: a cluster, clients that write, faults drawn from a seed, and a peaceful end in which all must heal."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from barnabas.machines.controller.elections import new_partition
from barnabas.machines.controller.image import NO_LEADER, PartitionImage, TopicImage
from barnabas.machines.controller.requests import ElectLeaders, Reassign, ShutDown
from tests.simulation.broker import TOPIC, Broker
from tests.simulation.bugs import Mistakes
from tests.simulation.promises import Broken, Promises
from tests.simulation.replica import ReplicaLog
from tests.simulation.tree import Tree
from tests.simulation.world import World

PARTITIONS: Final = 2
_TROUBLE: Final = 700.0
_PEACE: Final = 250.0
_SESSION: Final = 50.0
"""How long the tree waits for a process that is gone or hangs (ms)."""


class Story:
    """A cluster of four or five brokers, two partitions and three replicas of each."""

    def __init__(self, seed: int, mistakes: Mistakes | None = None) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.mistakes = mistakes or Mistakes()
        self.ids = list(range(1, self.random.choice((3, 4, 5)) + 1))
        self.logs: dict[tuple[int, int], ReplicaLog] = {}
        self.promises = Promises(self.logs)
        partitions = tuple(self._new_partition(index) for index in range(PARTITIONS))
        self.tree = Tree(TopicImage(TOPIC, UUID(int=9), partitions), self.promises, guarded=self.mistakes.guarded)
        self.brokers: dict[int, Broker] = {}
        self.value = 0
        self.faults = 0
        self._faults = (
            *(self._crash, self._crash_leader, self._crash_controller, self._hang, self._expire),
            *(self._isolate, self._cut_link, self._shut_down, self._reassign, self._elect),
        )
        for host in self.ids:
            self._start(host)

    def _new_partition(self, index: int) -> PartitionImage:
        replicas = tuple(self.random.sample(self.ids, 3))
        for host in replicas:
            self.logs[host, index] = ReplicaLog()
        return new_partition(index, replicas, replicas)

    def run(self) -> None:
        """Trouble, then peace. Raises Broken."""
        self._write()
        self.world.after(20, self._trouble)
        self.world.loss = self.random.choice((0.0, 0.01, 0.05))
        self.world.slow = self.random.choice((0.0, 0.02, 0.1))
        self.world.run_until(_TROUBLE)
        self._make_peace()
        self.world.run_until(_TROUBLE + _PEACE)
        self._check_peace()

    # Clients

    def _write(self) -> None:
        index = self.random.randrange(PARTITIONS)
        leading = [broker for broker in self.brokers.values() if index in broker.leads]
        if leading:
            broker = self.random.choice(leading)
            self.value += 1
            if self.world.now >= broker.hangs_until:
                broker.write(index, self.value)
        self.world.after(8 * self.random.random(), self._write)

    # Faults

    def _trouble(self) -> None:
        if self.world.now >= _TROUBLE:
            return
        self.faults += 1
        self.random.choice(self._faults)()
        self.world.after(60 * self.random.random(), self._trouble)

    def _start(self, host: int) -> None:
        if host in self.brokers:
            return
        for (owner, _), log in self.logs.items():
            if owner == host:
                log.recover()
        broker = Broker(self.world, host, self.tree, self.logs, self.promises, self.mistakes, self.brokers)
        self.brokers[host] = broker
        self.tree.watchers.append(broker.noticed)
        broker.noticed()

    def _kill(self, host: int) -> None:
        broker = self.brokers.pop(host, None)
        if broker is None:
            return
        broker.alive = False
        self.tree.watchers.remove(broker.noticed)
        wait = self.random.choice((1.0, _SESSION)) * self.random.random()
        self.world.after(wait, self.tree.expire, broker.session)
        self.world.after(100 * self.random.random(), self._start, host)

    def _crash(self) -> None:
        self._kill(self.random.choice(self.ids))

    def _crash_controller(self) -> None:
        if self.tree.controller is not None:
            self._kill(self.tree.controller.broker_id)

    def _crash_leader(self) -> None:
        leader = self.random.choice(self.tree.topic.partitions).leader
        if leader != NO_LEADER:
            self._kill(leader)

    def _hang(self) -> None:
        host = self.random.choice(self.ids)
        broker = self.brokers.get(host)
        if broker is not None:
            seconds = 2 * _SESSION * self.random.random()
            broker.hangs_until = self.world.now + seconds
            if seconds > _SESSION:
                self.world.after(_SESSION, self.tree.expire, broker.session)

    def _expire(self) -> None:
        broker = self.brokers.get(self.random.choice(self.ids))
        if broker is not None:
            self.tree.expire(broker.session)

    def _isolate(self) -> None:
        host = self.random.choice(self.ids)
        self._cut({(host, other) for other in self.ids} | {(other, host) for other in self.ids})

    def _cut_link(self) -> None:
        source, target = self.random.sample(self.ids, 2)
        self._cut({(source, target)})

    def _cut(self, links: set[tuple[int, int]]) -> None:
        self.world.cut |= links
        self.world.after(100 * self.random.random(), self.world.cut.difference_update, links)

    # Requests

    def _controller(self) -> Broker | None:
        controller = self.tree.controller
        return None if controller is None else self.brokers.get(controller.broker_id)

    def _shut_down(self) -> None:
        host = self.random.choice(self.ids)
        broker, controller = self.brokers.get(host), self._controller()
        if broker is None or controller is None:
            return
        broker.stops = True

        def answered(_: object) -> None:
            if self.brokers.get(host) is broker:
                self.tree.expire(broker.session)
                self._kill(host)

        broker.ask(controller.host, "requested", ShutDown(host, broker.epoch), answered)
        self.world.after(40, answered, None)

    def _reassign(self) -> None:
        controller = self._controller()
        if controller is not None:
            index = self.random.randrange(PARTITIONS)
            number = self.random.choice((2, 3))
            target = None if self.random.random() < 0.3 else tuple(self.random.sample(self.ids, number))
            controller.perform(controller.requested, Reassign({(TOPIC, index): target}), lambda _: None)

    def _elect(self) -> None:
        controller = self._controller()
        if controller is not None:
            controller.perform(controller.requested, ElectLeaders("preferred"), lambda _: None)

    # Peace

    def _make_peace(self) -> None:
        world = self.world
        world.loss = world.slow = 0.0
        world.cut.clear()
        for host in self.ids:
            self._start(host)
        for broker in self.brokers.values():
            broker.hangs_until = 0.0

    def _check_peace(self) -> None:
        """Everyone is back: every partition is led, its replicas are in sync, and what is written is committed."""
        for partition in self.tree.topic.partitions:
            leader = self.brokers[partition.leader].leads.get(partition.index) if partition.leader > 0 else None
            if leader is None or leader.leader_epoch != partition.leader_epoch:
                raise Broken(f"nobody leads {partition} although all are up")
            if set(partition.isr) != set(partition.replicas) or partition.is_reassigned:
                raise Broken(f"{partition} has not healed although all are up")
            log = self.logs[partition.leader, partition.index]
            if leader.high_watermark < log.end - 20:
                raise Broken(f"{partition} commits nothing any more: {leader.high_watermark} of {log.end}")
