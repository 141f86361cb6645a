"""One run of a queue: a cluster, a topic that is written, workers, faults by a seed, and the verdict.

Workers are real processes. Several seeds may have their turn on one cluster, each with a topic and a group of its own;
two of three groups have dead letters. In the end nothing fails any more. Then the workers are killed, or hang for good,
with whatever they hold, and a new one has to do what is left in the time that is promised.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.configs import EntityType
from tests.history.clients import SAFE, Sending
from tests.history.faults import Nemesis
from tests.history.queues.checker import check
from tests.history.queues.crew import Crew
from tests.history.queues.events import NO_EPOCH, Fate, Place, QueueHistory
from tests.history.queues.observer import Observer
from tests.history.queues.stage import QueueStage
from tests.history.queues.states import look
from tests.history.run import SETTINGS, on_hosts, on_one_host
from tests.history.workload import read_all
from tests.support.clusters import Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tests.history.faults import Plan, Stage
    from tests.history.queues.checker import Violation
    from tests.history.queues.events import Observation

PARTITIONS: Final = 3
STATE_PARTITIONS: Final = 3
"""Of the internal topic that keeps the states."""
CLIENTS: Final = ("queue", "queue", "confluent")
RATE: Final = 60.0
"""Messages a second."""
LOCK_SECONDS: Final = 2.0
SESSION_SECONDS: Final = 3.0
DELIVERY_LIMIT: Final = 10
PATIENCE: Final = 90.0
"""Seconds that a busy machine may take beside locks and sessions, also to start the last worker."""
LETTER_SECONDS: Final = 70.0
"""Dead letters that could not be written are tried again after a minute at the latest."""
QUEUE_SETTINGS: Final = {
    **SETTINGS,
    "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "group.share.record.lock.duration.ms": str(int(LOCK_SECONDS * 1000)),
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "group.share.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "group.share.min.session.timeout.ms": "1000",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.assignment.interval.ms": "200",
    "group.share.initialize.retry.interval.ms": "5000",
}
MISTAKE: Final = Path(__file__).with_name("planted")
SHOWN: Final = 20
"""How many violations a report spells out."""


@dataclass(frozen=True, slots=True)
class QueueReport:
    """What was run, and what came of it."""

    seed: int
    store: str
    faults: Sequence[str]
    history: QueueHistory
    violations: Sequence[Violation]
    drained_in: float
    """Seconds that the last worker took."""

    @property
    def placed(self) -> int:
        """Deliveries of which it is certain who led, and in which session they came: two may be compared."""
        return sum(each.epoch != NO_EPOCH for each in self.history.deliveries)

    @property
    def looks(self) -> int:
        """Looks at what is stored that are certain to tell it."""
        return sum(each.is_current for each in self.history.observations)

    def __str__(self) -> str:
        history = self.history
        told = [said.fate for said in history.acknowledgements]
        lines = [
            f"seed {self.seed}, {self.store}: {len(self.faults)} faults, {len(history.messages)} messages, "
            f"{len(history.deliveries)} deliveries, {self.placed} of them from a leader for certain, "
            f"{self.looks} looks at what is stored, {told.count(Fate.STORED)} acknowledgements stored, "
            f"{told.count(Fate.REFUSED)} refused, {told.count(Fate.UNKNOWN)} of unknown fate, "
            f"{len(history.dead_letters or ())} dead letters, the rest done in "
            f"{self.drained_in:.1f} s, {len(self.violations)} violations",
        ]
        lines += [f"  {violation}" for violation in self.violations[:SHOWN]]
        if len(self.violations) > SHOWN:
            lines.append(f"  and {len(self.violations) - SHOWN} more")
        return "\n".join(lines)


def queues_on_one_host(folder: Path) -> AbstractContextManager[Stage]:
    """Brokers on this host's network, over a shared file."""
    return on_one_host(folder, QUEUE_SETTINGS, QueueStage)


def queues_on_hosts(folder: Path) -> AbstractContextManager[Stage]:
    """Brokers on hosts of their own, over a ZooKeeper."""
    return on_hosts(folder, QUEUE_SETTINGS, QueueStage)


@contextmanager
def queues_with_a_mistake(folder: Path) -> Iterator[Stage]:
    """Brokers that answer workers before they store their words."""
    with Mistaken(folder, settings=QUEUE_SETTINGS) as cluster:
        yield QueueStage(cluster, "")


class Mistaken(Cluster):
    """A cluster with the mistake."""

    def inside(self, broker_id: int) -> Sequence[str]:
        """Start a broker with it."""
        return ["env", f"PYTHONPATH={MISTAKE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"]


def run(stage: Stage, folder: Path, store: str, plan: Plan, clients: Sequence[str] = CLIENTS) -> QueueReport:
    """One seed on a cluster that is there."""
    assert isinstance(stage, QueueStage)
    cluster, topic, group = stage.cluster, f"jobs-{plan.seed}", f"workers-{plan.seed}"
    dead = f"dlq.{topic}" if plan.seed % 3 else None
    cluster.create(topic, PARTITIONS, 3, min_insync_replicas="2")
    wanted = {"share.auto.offset.reset": "earliest"}  # librdkafka's workers would begin with what comes after them
    if dead is not None:
        cluster.create(dead, 1, 3, min_insync_replicas="2", errors_deadletterqueue_group_enable="true")
        wanted |= {"errors.deadletterqueue.topic.name": dead, "errors.deadletterqueue.copy.record.enable": "true"}
    with ClusterAdmin(cluster.bootstrap) as admin:
        admin.configs.alter(EntityType.GROUPS, group, add=wanted, delete=())
    producer = Sending("p", cluster.bootstrap, topic, PARTITIONS, RATE, SAFE)
    producer.start()
    with Crew(folder, cluster.bootstrap, topic, group, clients, plan.seed) as crew:
        stage.work(topic, group, crew)
        observer = Observer(cluster, topic, group, PARTITIONS, STATE_PARTITIONS)
        observer.start()
        wait_until(lambda: len(crew.acknowledgements()) > 50, "the first messages to be done")
        nemesis = Nemesis(stage, plan)
        nemesis.run()
        stage.settle(PARTITIONS)
        producer.end()
        producer.join(60)
        messages = {
            Place(each.partition, each.offset): each.value
            for each in read_all(cluster.bootstrap, topic, PARTITIONS, 60)
        }
        assert not crew.failed(), crew.failed()
        calm_since = time.monotonic()
        crew.finish(by_killing=plan.seed % 2 == 0)
        observer.end()
        patience = SESSION_SECONDS + LOCK_SECONDS + PATIENCE + (0 if dead is None else LETTER_SECONDS)
        observations = _drain(stage, messages, calm_since + patience)
        history = QueueHistory(
            messages=messages,
            deliveries=crew.deliveries(calm_since, observer.reigns),
            acknowledgements=crew.acknowledgements(),
            observations=[*observer.observations, *observations],
            sessions=crew.sessions(),
            lock_seconds=LOCK_SECONDS,
            delivery_limit=DELIVERY_LIMIT,
            dead_letters=None if dead is None else _letters(cluster, dead, messages),
        )
    drained_in = time.monotonic() - calm_since
    return QueueReport(plan.seed, store, nemesis.struck, history, check(history), drained_in)


def _letters(cluster: Cluster, topic: str, messages: Mapping[Place, str]) -> set[Place]:
    """The messages that have a dead letter, which is a copy."""
    values = {each.value for each in read_all(cluster.bootstrap, topic, 1, 60)}
    return {place for place, value in messages.items() if value in values}


def _drain(stage: QueueStage, messages: Mapping[Place, str], deadline: float) -> list[Observation]:
    """Look until everything is done, or the time is over; what was seen last of each partition."""
    return [seen for partition in range(PARTITIONS) for seen in _last_look(stage, messages, partition, deadline)]


def _last_look(
    stage: QueueStage, messages: Mapping[Place, str], partition: int, deadline: float
) -> Iterator[Observation]:
    addresses = [stage.cluster.address(broker) for broker in stage.cluster.nodes]
    offsets = [place.offset for place in messages if place.partition == partition]
    while True:
        found = look(addresses, stage.topic, stage.group, partition)
        seen = None if found is None else found.seen
        if seen is not None and (all(map(seen.is_done, offsets)) or time.monotonic() > deadline):
            yield seen
            return
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)
