"""Committed offsets equal a dictionary, and what the log says, whatever is committed, deleted, expired or undone."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.machines.groups.offsets.rules import OffsetRules
from barnabas.machines.groups.settings import GroupSettings
from barnabas.machines.groups.table import GroupTable
from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode,
    encode,
)
from barnabas.protocol.messages.groups.offset_commit import NO_RETENTION
from tests.unit.machines.groups.offsets.offset_requests import (
    ASKER,
    TOPIC_ID,
    commit_request,
    delete_request,
    fetch_request,
    fetched_offsets,
)

if TYPE_CHECKING:
    from barnabas.machines.groups.table import GroupOutcome

RETENTION_MS: Final = 100
GROUPS: Final = ("g", "h")
PARTITIONS: Final = (("a", 0), ("b", 0))
PRODUCERS: Final = (1, 2)

groups = st.sampled_from(GROUPS)
producers = st.sampled_from(PRODUCERS)
offsets = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 1000), min_size=1)


class Stored(NamedTuple):
    """An offset of the model, and where in the log it stands."""

    value: OffsetCommitValue
    position: int


class Node:
    """A coordinator as far as offsets go."""

    def __init__(self) -> None:
        self.table = GroupTable(
            new_id=str, settings=GroupSettings(offsets_retention_ms=RETENTION_MS, offset_metadata_max_bytes=5)
        )
        self.rules = OffsetRules(self.table)

    def replay(self, record: CoordinatorRecord, producer_id: int = -1) -> None:
        if isinstance(record.key, GroupMetadataKey):
            del self.table.groups[record.key.group]
        else:
            self.rules.replay(record, producer_id)


class Offsets(RuleBasedStateMachine):
    """Two groups of simple consumers, and producers that commit offsets for them."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.log: list[tuple[bytes, bytes | None, int] | tuple[int, bool]] = []
        """Records with their producer, and ends of transactions."""
        self.now_ms = 1000
        self.positions = count(1)
        self.committed: dict[OffsetCommitKey, Stored] = {}
        self.pending: dict[int, dict[OffsetCommitKey, Stored]] = {}

    def _apply(self, outcome: GroupOutcome) -> None:
        for record in outcome.changes:
            self.log.append((*encode(record), -1))
            self.node.replay(record)

    def _forget(self, key: OffsetCommitKey) -> None:
        self.committed.pop(key, None)
        for pending in self.pending.values():
            pending.pop(key, None)

    def _open(self) -> set[OffsetCommitKey]:
        return {key for pending in self.pending.values() for key in pending}

    @rule(group=groups, asked=offsets, retention=st.sampled_from([None, 5, 500]), metadata=st.sampled_from(["", "é"]))
    def commit(self, group: str, asked: dict[tuple[str, int], int], retention: int | None, metadata: str) -> None:
        retention_time = NO_RETENTION if retention is None else timedelta(milliseconds=retention)
        request = commit_request(asked, group_id=group, retention=retention_time, metadata=metadata, leader_epoch=2)
        self._apply(self.node.rules.commit(request, ASKER, self.now_ms))
        for (topic, partition), offset in asked.items():
            value = (
                OffsetCommitValue(offset, 2, metadata, self.now_ms, -1, TOPIC_ID)
                if retention is None
                else OffsetCommitValue(offset, -1, metadata, self.now_ms, self.now_ms + retention, None)
            )
            self.committed[OffsetCommitKey(group, topic, partition)] = Stored(value, next(self.positions))

    @rule(group=groups, asked=offsets)
    def commit_too_much(self, group: str, asked: dict[tuple[str, int], int]) -> None:
        outcome = self.node.rules.commit(commit_request(asked, group_id=group, metadata="123456"), ASKER, self.now_ms)
        assert outcome.changes == ()

    @rule(group=groups, asked=offsets, producer=producers)
    def commit_in_a_transaction(self, group: str, asked: dict[tuple[str, int], int], producer: int) -> None:
        for (topic, partition), offset in asked.items():
            key, value = OffsetCommitKey(group, topic, partition), OffsetCommitValue(offset, -1, "", self.now_ms)
            record = CoordinatorRecord(key, value)
            self.log.append((*encode(record), producer))
            self.node.replay(record, producer)
            self.pending.setdefault(producer, {})[key] = Stored(value, next(self.positions))

    @rule(producer=producers, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        self.log.append((producer, commit))
        self.node.rules.end_transaction(producer, commit)
        for key, stored in self.pending.pop(producer, {}).items():
            if commit and (key not in self.committed or self.committed[key].position < stored.position):
                self.committed[key] = stored

    @rule(group=groups, what=st.sampled_from([*PARTITIONS, "group", "topic"]))
    def remove(self, group: str, what: tuple[str, int] | str) -> None:
        """One rule for all that is removed, so that something is there most of the time."""
        if group not in self.node.table.groups:
            return
        if what == "group":
            self._delete_group(group)
        elif what == "topic":
            self._delete_topic("a")
        else:
            assert isinstance(what, tuple)
            self._delete(group, [what])

    def _delete(self, group: str, asked: list[tuple[str, int]]) -> None:
        self._apply(self.node.rules.delete(delete_request(asked, group), ASKER, self.now_ms))
        for topic, partition in asked:
            self._forget(OffsetCommitKey(group, topic, partition))

    def _delete_group(self, group: str) -> None:
        for record in (*self.node.rules.tombstones(group, 1000), *self.node.table.groups[group].tombstones()):
            self.log.append((*encode(record), -1))
            self.node.replay(record)
        for key in [*self.committed, *self._open()]:
            if key.group == group:
                self._forget(key)

    def _delete_topic(self, topic: str) -> None:
        self._apply(self.node.rules.topics_deleted({topic}, self.now_ms))
        for key in [*self.committed, *self._open()]:
            if key.topic == topic:
                self._forget(key)

    @rule(ms=st.integers(0, 2 * RETENTION_MS))
    def expire(self, ms: int) -> None:
        self.now_ms += ms
        self._apply(self.node.rules.expire_offsets(self.now_ms))
        kept_open = self._open()
        for key, (value, _) in list(self.committed.items()):
            ends_ms = value.commit_timestamp + RETENTION_MS
            if value.expire_timestamp != -1:
                ends_ms = value.expire_timestamp
            if self.now_ms >= ends_ms and key not in kept_open:
                del self.committed[key]
        assert self.node.table.groups.keys() == {key.group for key in (*self.committed, *kept_open)}

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        for group in GROUPS:
            request = fetch_request(PARTITIONS, group_id=group)
            ((_, response),) = self.node.rules.fetch(request, ASKER, self.now_ms, require_stable=False).replies
            values = {
                (topic, partition): self.committed.get(OffsetCommitKey(group, topic, partition))
                for topic, partition in PARTITIONS
            }
            assert fetched_offsets(response) == {
                key: -1 if found is None else found.value.offset for key, found in values.items()
            }
            ((_, response),) = self.node.rules.fetch(request, ASKER, self.now_ms, require_stable=True).replies
            unstable = {key for key, code in fetched_offsets(response, lambda p: p.error_code).items() if code}
            assert unstable == {(key.topic, key.partition) for key in self._open() if key.group == group}

    @invariant()
    def the_log_gives_the_same_state(self) -> None:
        fresh = Node()
        for entry in self.log:
            if len(entry) == 2:
                fresh.rules.end_transaction(*entry)
            else:
                key, value, producer = entry
                record = decode(key, value)
                assert record is not None
                fresh.replay(record, producer)
        assert fresh.rules.offsets.committed == self.node.rules.offsets.committed
        assert fresh.rules.offsets.pending == self.node.rules.offsets.pending
        assert fresh.table.groups.keys() == self.node.table.groups.keys()


TestOffsets = Offsets.TestCase
