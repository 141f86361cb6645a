"""What is read: topics, shared with a group or not, or partitions that the program assigns.

The promise: records of a partition are handed out only while this consumer has it. What was fetched of a partition that
is revoked is dropped, and its offsets are committed before, or not at all. Rebalance callbacks run in the thread that
asks for records; an error in one is raised there (`raise_failed_callback`), after librdkafka has returned.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.clients.consumer.patterns import for_librdkafka
from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import TypeAlias

    from barnabas.clients.consumer.committing import Commits
    from barnabas.clients.consumer.fetched import FetchedRecords
    from barnabas.clients.consumer.handed_out import HandedOut
    from barnabas.clients.consumer.native import NativeConsumer
    from barnabas.clients.consumer.seeking import Positions

    Topics: TypeAlias = "str | re.Pattern[str] | Iterable[str | re.Pattern[str]]"
    RebalanceCallback: TypeAlias = "Callable[[list[TopicPartition]], object]"
    Start: TypeAlias = "Callable[[TopicPartition], int | None]"


class Subscription:
    """What a consumer reads."""

    def __init__(
        self,
        native: NativeConsumer,
        fetched: FetchedRecords[Any, Any],
        handed_out: HandedOut,
        commits: Commits,
        positions: Positions,
        *,
        incremental: bool,
    ) -> None:
        """`incremental`: rebalances revoke only partitions that move."""
        self.native = native
        self.commits = commits
        self.positions = positions
        self.incremental = incremental
        self._fetched = fetched
        self._handed_out = handed_out
        self._chosen = False
        """Whether the program has said what to read."""
        self.rebalances: Rebalances | None = None
        """The present subscription, if the group says which partitions are read."""
        self.between_assignments = False
        """Whether the group has not said yet which these are, or has revoked them and not said what comes instead."""
        self._failed_callback: BaseException | None = None
        self.failed_start: BaseException | None = None
        """Why it is not known where to begin with partitions that came: nothing is read until it is said anew what."""

    def subscribe(
        self,
        topics: Topics,
        *,
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
        start: Start | None = None,
    ) -> None:
        """Read topics: shared with the group's other members, or all partitions of them if there is no group."""
        wanted = [topics] if isinstance(topics, (str, re.Pattern)) else list(topics)
        if not wanted:
            raise InvalidClientConfig("no topics are given")
        self.commits.leave_hand()
        if self.native.group_id is None:
            partitions = self.native.matching_partitions(wanted)
            self.assign({partition: start(partition) if start else None for partition in partitions})
            if on_assign is not None:
                on_assign(partitions)
            return
        rebalances = Rebalances(self, on_assign, on_revoke, on_lost or on_revoke, start)
        self._forget_all()
        self._chosen, self.rebalances, self.between_assignments = True, rebalances, True
        names = [for_librdkafka(topic) for topic in wanted]
        try:
            self.native.client.subscribe(
                names, on_assign=rebalances.assign, on_revoke=rebalances.revoke, on_lost=rebalances.lose
            )
        except self.native.kafka.KafkaException as error:
            raise self.native.translated(error.args[0], f"subscribe to {', '.join(names)}") from error

    def unsubscribe(self) -> None:
        """Read nothing any more."""
        self.commits.leave_hand()
        if self.native.group_id is not None:
            self.native.client.unsubscribe()
        self.native.client.unassign()
        self._forget_all()
        self._chosen, self.rebalances, self.between_assignments = False, None, False

    def assign(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions from these offsets; None: from the committed offset, or from where a reset goes."""
        self.commits.leave_hand()
        self._forget_all()
        self._chosen, self.rebalances, self.between_assignments = True, None, False
        places = [self.positions.start_place(partition, offset) for partition, offset in offsets.items()]
        self.positions.start_at(places)
        self.native.call("assign partitions", self.native.client.assign, places)

    def require_chosen(self) -> None:
        """Raise InvalidClientConfig if the program has not said what to read."""
        if not self._chosen:
            raise InvalidClientConfig("there is nothing to read: give topics, or call subscribe() or assign()")

    def require_ready(self) -> None:
        """Raise what stands in the way of reading: nothing is chosen, or a callback has failed."""
        self.require_chosen()
        self.raise_failed_callback()
        if self.failed_start is not None:
            raise self.failed_start

    @contextmanager
    def keep_error(self) -> Iterator[None]:
        """Keep an error of a callback until librdkafka has returned, which would drop messages because of it."""
        try:
            yield
        except BaseException as error:
            self._failed_callback = self._failed_callback or error

    def raise_failed_callback(self) -> None:
        """Raise the error of a callback that failed since the last time."""
        failed, self._failed_callback = self._failed_callback, None
        if failed is not None:
            raise failed

    def _forget_all(self) -> None:
        self._handed_out.drop_all("something else was subscribed to or assigned")
        self.commits.forget_all()
        self.positions.forget_all()
        self._fetched.clear()
        self.failed_start = None


class Rebalances:
    """What librdkafka calls when the group assigns and revokes partitions, for one subscription."""

    def __init__(
        self,
        subscription: Subscription,
        on_assign: RebalanceCallback | None,
        on_revoke: RebalanceCallback | None,
        on_lost: RebalanceCallback | None,
        start: Start | None,
    ) -> None:
        self._subscription = subscription
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost
        self._start = start

    def assign(self, _: Any, given: list[Any]) -> None:
        """Partitions come."""
        subscription = self._subscription
        if subscription.native.closed:
            return  # they come too late for anybody, in the thread that closes librdkafka
        partitions = _partitions(given)
        with subscription.keep_error():
            if self._start is not None:
                self._assign_from(partitions, self._start)
            self._set_between_assignments(False)
            if self._on_assign is not None:
                self._on_assign(partitions)

    def revoke(self, _: Any, given: list[Any]) -> None:
        """Partitions are about to go; what was handed out of them can still be committed."""
        subscription = self._subscription
        partitions = _partitions(given)
        with subscription.keep_error():
            self._set_between_assignments(not subscription.incremental)
            try:
                subscription.commits.store_automatic()
                if self._on_revoke is not None:
                    self._on_revoke(partitions)
            finally:
                self._forget(partitions)

    def lose(self, _: Any, given: list[Any]) -> None:
        """Partitions are gone already."""
        subscription = self._subscription
        partitions = _partitions(given)
        with subscription.keep_error():
            self._set_between_assignments(True)
            self._forget(partitions)
            if self._on_lost is not None:
                self._on_lost(partitions)

    def _set_between_assignments(self, between: bool) -> None:
        if self._subscription.rebalances is self:  # callbacks of an earlier subscription may come late
            self._subscription.between_assignments = between

    def _forget(self, partitions: list[TopicPartition]) -> None:
        self._subscription.positions.forget(partitions)
        self._subscription.commits.forget(partitions)

    def _assign_from(self, partitions: list[TopicPartition], start: Start) -> None:
        subscription = self._subscription
        client = subscription.native.client
        assign = client.incremental_assign if subscription.incremental else client.assign
        try:
            places = [subscription.positions.start_place(partition, start(partition)) for partition in partitions]
        except BaseException as error:
            subscription.failed_start = error
            assign([])  # or librdkafka would begin where the group is
            raise
        subscription.positions.start_at(places)
        assign(places)


def _partitions(given: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(place.topic, place.partition) for place in given]
