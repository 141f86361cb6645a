"""The metadata tree: who is registered, who is the controller, and the state of every partition.

Every change has a number that grows, as in ZooKeeper: a registration's is the broker's epoch. A write of a controller
takes place only in its own term, and only if what it changes is what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.machines.controller.changes import TopicChanged
from barnabas.machines.controller.image import NO_LEADER, BrokerImage, ClusterImage, Endpoint, TopicImage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.machines.controller.changes import Change
    from barnabas.machines.controller.image import PartitionKey
    from tests.simulation.promises import Promises

_ENDPOINTS = {"PLAINTEXT": Endpoint("h", 9092)}


class Session(NamedTuple):
    """What a process has with the tree; its registration and its election go with it."""

    broker_id: int
    number: int


class Tree:
    """All of it; nobody keeps it from being read."""

    def __init__(self, topic: TopicImage, promises: Promises, *, guarded: bool = True) -> None:
        self.topic = topic
        self.brokers: dict[int, BrokerImage] = {}
        self.controller_epoch = 0
        self.controller: Session | None = None
        self.watchers: list[Callable[[], None]] = []
        self._promises = promises
        self._guarded = guarded
        self._zxid = 0
        self._sessions: set[Session] = set()
        self._written = {(topic.name, partition.index): 0 for partition in topic.partitions}

    def register(self, broker_id: int) -> Session | None:
        """A broker comes; None while its last registration is there."""
        if broker_id in self.brokers:
            return None
        self._zxid += 1
        session = Session(broker_id, self._zxid)
        self._sessions.add(session)
        self.brokers[broker_id] = BrokerImage(broker_id=broker_id, epoch=self._zxid, endpoints=_ENDPOINTS)
        self._notify()
        return session

    def is_live(self, session: Session | None) -> bool:
        """Whether a session goes on."""
        return session in self._sessions

    def expire(self, session: Session | None) -> None:
        """A session ends."""
        if session is None or session not in self._sessions:
            return
        self._sessions.discard(session)
        del self.brokers[session.broker_id]
        if self.controller == session:
            self.controller = None
        self._notify()

    def campaign(self, session: Session) -> int | None:
        """Become the controller if there is none: the new term."""
        if self.controller is not None or session not in self._sessions:
            return None
        self.controller = session
        self.controller_epoch += 1
        self._notify()
        return self.controller_epoch

    def image(self) -> ClusterImage:
        """The tree as a new controller loads it."""
        return ClusterImage(
            controller_id=NO_LEADER if self.controller is None else self.controller.broker_id,
            controller_epoch=self.controller_epoch,
            brokers=dict(self.brokers),
            topics={self.topic.name: self.topic},
            topic_names={self.topic.topic_id: self.topic.name},
            features_epoch=0,
        )

    def restarted(self) -> dict[PartitionKey, frozenset[int]]:
        """By partition, replicas in sync that registered after its state was written."""
        return {
            key: frozenset(
                replica
                for replica in self.topic.partitions[key[1]].isr
                if replica in self.brokers and self.brokers[replica].epoch > written
            )
            for key, written in self._written.items()
        }

    def write(self, term: int, changes: Iterable[Change]) -> bool:
        """A controller's changes, all or none."""
        topics = [change for change in changes if isinstance(change, TopicChanged)]
        if self._guarded and (term != self.controller_epoch or any(each.before != self.topic for each in topics)):
            return False
        for change in topics:
            if change.after is not None:
                self._store(change.after)
        return True

    def _store(self, after: TopicImage) -> None:
        before, self.topic = self.topic, after
        self._zxid += 1
        for old, new in zip(before.partitions, after.partitions, strict=True):
            if new != old:
                self._written[after.name, new.index] = self._zxid
                self._promises.stores(old, new)

    def _notify(self) -> None:
        for watcher in self.watchers:
            watcher()
