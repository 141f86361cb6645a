"""The part of a reader that says what is read: topics, shared with a group or not, or partitions."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.clients.committing import TIMEOUT
from barnabas.clients.errors import InvalidClientConfig, RequestRefused, translated
from barnabas.clients.patterns import compiled, for_librdkafka
from barnabas.clients.records import K, TopicPartition, V
from barnabas.clients.seeking import SeekingReader
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    Topics: TypeAlias = "str | re.Pattern[str] | Iterable[str | re.Pattern[str]]"
    RebalanceCallback: TypeAlias = "Callable[[list[TopicPartition]], object]"
    Start: TypeAlias = "Callable[[TopicPartition], int | None]"


class SubscribingReader(SeekingReader[K, V]):
    """The part of a reader that subscribes and is assigned partitions."""

    _subscription: object | None = None
    """Stands for what was subscribed to last, if the group says which partitions are read."""
    between_assignments = False
    """Whether the group has not said yet which these are, or has taken them away and not said what comes instead."""
    _failed_callback: BaseException | None = None
    _unstarted: BaseException | None = None
    """Why it is not known where to begin with partitions that came: nothing is read until it is said anew what."""

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
        start: Start | None,
    ) -> None:
        """Read topics: shared with the group's other members, or all partitions of them if there is no group."""
        wanted = [topics] if isinstance(topics, (str, re.Pattern)) else list(topics)
        if not wanted:
            raise InvalidClientConfig("no topics are given")
        self._leave_hand()
        if not self.grouped:
            partitions = self._all_partitions(wanted)
            self.assign({partition: start(partition) if start else None for partition in partitions})
            if on_assign is not None:
                on_assign(partitions)
            return

        subscription = object()

        def between(*, assignments: bool) -> None:  # callbacks of an earlier subscription may come late
            if self._subscription is subscription:
                self.between_assignments = assignments

        def assigned(_: Any, given: list[Any]) -> None:
            partitions = [TopicPartition(p.topic, p.partition) for p in given]
            with self._kept_for_later():
                if start is not None:
                    self._assign_from(partitions, start)
                between(assignments=False)
                if on_assign is not None:
                    on_assign(partitions)

        def revoked(_: Any, given: list[Any]) -> None:
            partitions = [TopicPartition(p.topic, p.partition) for p in given]
            with self._kept_for_later():
                between(assignments=not self._incremental)
                try:
                    if self.auto_commit:
                        self._store()
                    if on_revoke is not None:
                        on_revoke(partitions)
                finally:
                    self._lose(partitions)

        def lost(_: Any, given: list[Any]) -> None:
            partitions = [TopicPartition(p.topic, p.partition) for p in given]
            with self._kept_for_later():
                between(assignments=True)
                self._lose(partitions)
                told = on_lost or on_revoke
                if told is not None:
                    told(partitions)

        self._forget_all()
        self._chosen, self._subscription, self.between_assignments = True, subscription, True
        names = [for_librdkafka(topic) for topic in wanted]
        try:
            self._client.subscribe(names, on_assign=assigned, on_revoke=revoked, on_lost=lost)
        except self._kafka.KafkaException as error:
            raise translated(error.args[0], f"subscribe to {', '.join(names)}") from error

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        self._leave_hand()
        if self.grouped:
            self._client.unsubscribe()
        self._client.unassign()
        self._forget_all()
        self._chosen, self._subscription, self.between_assignments = False, None, False

    def assign(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets; None: from the committed offset, or from where a reset goes."""
        self._leave_hand()
        self._forget_all()
        self._chosen, self._subscription, self.between_assignments = True, None, False
        places = [self._place(partition, offset) for partition, offset in offsets.items()]
        self._ask("assign partitions", self._client.assign, places)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic; waits a moment for one that is just being made."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self._ask("list topics", lambda: self._client.list_topics(topic, timeout=TIMEOUT)).topics[topic]
            if found.partitions:
                return [TopicPartition(topic, number) for number in sorted(found.partitions)]
            if time.monotonic() > deadline or found.error is None or not self._may_come(found.error):
                raise RequestRefused(ErrorCode.unknown_topic_or_partition, f"topic {topic} does not exist")
            time.sleep(0.05)

    @contextmanager
    def _kept_for_later(self) -> Iterator[None]:
        """Keep an error of a callback until librdkafka has returned, which would drop messages because of it."""
        try:
            yield
        except BaseException as error:
            self._failed_callback = self._failed_callback or error

    def _assign_from(self, partitions: list[TopicPartition], start: Start) -> None:
        assign = self._client.incremental_assign if self._incremental else self._client.assign
        try:
            places = [self._place(partition, start(partition)) for partition in partitions]
        except BaseException as error:
            self._unstarted = error
            assign([])  # or librdkafka would begin where the group is
            raise
        assign(places)

    def _raise_failed_callback(self) -> None:
        failed, self._failed_callback = self._failed_callback, None
        if failed is not None:
            raise failed

    def _all_partitions(self, topics: list[str | re.Pattern[str]]) -> list[TopicPartition]:
        names = {topic for topic in topics if isinstance(topic, str) and not topic.startswith("^")}
        matches = [
            topic.fullmatch if isinstance(topic, re.Pattern) else compiled(topic).match
            for topic in topics
            if topic not in names
        ]
        if matches:
            known = self._ask("list topics", lambda: self._client.list_topics(timeout=TIMEOUT)).topics
            names |= {name for name in known if any(match(name) for match in matches)}
        return [partition for name in sorted(names) for partition in self.partitions(name)]

    def _may_come(self, error: Any) -> bool:
        return bool(error.code() == self._kafka.KafkaError.LEADER_NOT_AVAILABLE)

    def _lose(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that another member may have now: to commit them here could take that one back."""
        gone = list(partitions)
        self._forget(gone)
        for partition in gone:
            self._asked.pop(partition, None)

    def _forget_all(self) -> None:
        self._note()
        self._drop([TopicPartition(*place) for place in self._next], "something else was subscribed to or assigned")
        dropped = dict(self._dropped)
        self.mark_committed()
        self._dropped = dropped
        self._put_back()
        self._doubtful.clear()
        self._reached.clear()
        self._sought.clear()
        self._held.clear()
        self._buffer.clear()
        self._arrived.clear()
        self._unstarted = None
