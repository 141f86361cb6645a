"""Committed offsets of all groups of a coordinator, and those that transactions are about to commit.

All of it is hard state: only replayed records change it. An offset of a transaction is pending until the transaction
ends. Then the commit that stands later in the log wins, whether it was part of a transaction or not. So a pending
offset that a later commit has overtaken is marked as such, and nothing has to be remembered with offsets that no
transaction touches. It still counts as pending: until the transaction ends, a fetch that requires stable offsets has
to wait.
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.coordinator_records import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    Partitions = dict[int, OffsetCommitValue]
    """Committed offsets of one topic, by partition."""

NO_PRODUCER = -1
"""As a producer's id: the commit is not part of a transaction."""


class PendingOffset(NamedTuple):
    """An offset that a transaction is about to commit."""

    value: OffsetCommitValue
    order: int
    """Which of two stands later in the log."""
    overtaken: bool = False
    """Whether another commit won already."""


class OffsetTable:
    """The offsets of one coordinator."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[str, Partitions]] = {}
        """By group and topic. Nothing that is empty is kept."""
        self.pending: dict[int, dict[OffsetCommitKey, PendingOffset]] = {}
        """By producer."""
        self._open: dict[str, dict[OffsetCommitKey, set[int]]] = {}
        """The producers with a pending offset, by group and partition. Nothing that is empty is kept."""
        self._order = 0

    def get(self, key: OffsetCommitKey) -> OffsetCommitValue | None:
        """The committed offset of a partition."""
        return self.committed.get(key[0], {}).get(key[1], {}).get(key[2])

    def topics(self, group_id: str) -> Mapping[str, Partitions]:
        """All committed offsets of a group."""
        return self.committed.get(group_id, {})

    def is_open(self, key: OffsetCommitKey) -> bool:
        """Whether a transaction is about to change the offset of a partition."""
        return key in self._open.get(key[0], ())

    def open_keys(self, group_id: str) -> Collection[OffsetCommitKey]:
        """The partitions whose offsets transactions are about to change."""
        return self._open.get(group_id, {}).keys()

    def keys(self, group_id: str, most: int) -> list[OffsetCommitKey]:
        """The partitions with an offset of a group, be it only pending, or so many of them."""
        committed = (
            OffsetCommitKey(group_id, topic, partition)
            for topic, partitions in self.topics(group_id).items()
            for partition in partitions
        )
        pending = (key for key in self.open_keys(group_id) if self.get(key) is None)
        return list(islice(chain(committed, pending), most))

    def of_topics(self, names: Collection[str]) -> Iterator[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """All offsets of these topics, pending ones too; a partition may come more than once."""
        for group_id, topics in self.committed.items():
            for name in topics.keys() & names:  # the fewer of them are looked up: both may be thousands
                for partition, value in topics[name].items():
                    yield OffsetCommitKey(group_id, name, partition), value
        for offsets in self.pending.values():
            for key, pending in offsets.items():
                if key.topic in names:
                    yield key, pending.value

    # Records.

    def put(self, key: OffsetCommitKey, value: OffsetCommitValue, order: int | None = None) -> None:
        """An offset was committed, now or, if it was pending, in its `order`."""
        group_id, topic, partition = key
        try:
            self.committed[group_id][topic][partition] = value
        except KeyError:
            self.committed.setdefault(group_id, {}).setdefault(topic, {})[partition] = value
        if self._open:
            self._overtake(key, self._order + 1 if order is None else order)

    def put_pending(self, key: OffsetCommitKey, value: OffsetCommitValue, producer_id: int) -> None:
        """An offset was committed in a transaction that has not ended."""
        self._order += 1
        self.pending.setdefault(producer_id, {})[key] = PendingOffset(value, self._order)
        self._open.setdefault(key.group, {}).setdefault(key, set()).add(producer_id)

    def remove(self, key: OffsetCommitKey) -> None:
        """Remove an offset, and the pending offsets of transactions for the same partition."""
        group_id, topic, partition = key
        topics = self.committed.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is not None and not partitions:
            del topics[topic]
            if not topics:
                del self.committed[group_id]
        for producer_id in self._open.get(group_id, {}).get(key, ()):
            offsets = self.pending[producer_id]
            del offsets[key]
            if not offsets:
                del self.pending[producer_id]
        self._close(key)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A producer's transaction ended."""
        for key, pending in self.pending.pop(producer_id, {}).items():
            producers = self._open[key.group][key]
            producers.discard(producer_id)
            if not producers:
                self._close(key)
            if commit and not pending.overtaken:
                self.put(key, pending.value, pending.order)

    def _close(self, key: OffsetCommitKey) -> None:
        keys = self._open.get(key.group, {})
        if keys.pop(key, None) is not None and not keys:
            del self._open[key.group]

    def _overtake(self, key: OffsetCommitKey, order: int) -> None:
        """Mark pending offsets of a partition before `order` as overtaken."""
        for producer_id in self._open.get(key.group, {}).get(key, ()):
            pending = self.pending[producer_id][key]
            if pending.order < order:
                self.pending[producer_id][key] = pending._replace(overtaken=True)
