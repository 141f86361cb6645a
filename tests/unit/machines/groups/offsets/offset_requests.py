"""Small ways to ask for offsets, and a group that says what a test wants it to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from barnabas.machines.groups.offsets.rules import OffsetRules
from barnabas.machines.groups.settings import GroupSettings
from barnabas.machines.groups.table import GroupTable
from barnabas.machines.outcome import Asker
from barnabas.protocol.coordinator_records import CoordinatorRecord, GroupMetadataKey
from barnabas.protocol.messages.groups.offset_commit import (
    NO_RETENTION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import timedelta

    from barnabas.machines.groups.table import CommitCheck, GroupOutcome
    from barnabas.model.errors import ErrorCode
    from barnabas.protocol.messages.groups.offset_commit import OffsetCommitResponse

TOPIC_ID: Final = UUID(int=7)


@dataclass(frozen=True, slots=True)
class FakeAsker(Asker[object]):
    client_id: str = "client"
    client_host: str = "/127.0.0.1"
    version: int = 9


ASKER: Final = FakeAsker()


@dataclass(slots=True)
class FakeGroup:
    """A group whose checks are taken from a test."""

    group_id: str = "g"
    may_expire: bool = True
    is_empty: bool = False
    refusal: Exception | None = None
    commit_check: CommitCheck | None = None
    subscribed: frozenset[str] = frozenset()
    seen: list[tuple[Any, ...]] = field(default_factory=list)

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, transactional: bool = False
    ) -> CommitCheck | None:
        self._check(member_id, instance_id, epoch, version)
        return self.commit_check

    def check_offset_fetch(self, member_id: str | None, epoch: int, now_ms: int) -> None:
        self._check(member_id, epoch)

    def check_offset_delete(self) -> None:
        self._check()

    def check_delete(self) -> None:
        self._check()

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def offsets_unused_since(self, committed_ms: int, topic: str) -> int | None:
        return None if topic in self.subscribed else committed_ms

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        return (CoordinatorRecord(GroupMetadataKey(self.group_id), None),)

    def _check(self, *args: Any) -> None:
        self.seen.append(args)
        if self.refusal is not None:
            raise self.refusal


def make_rules(*groups: FakeGroup, settings: GroupSettings | None = None) -> tuple[GroupTable, OffsetRules]:
    table = GroupTable(new_id=str, settings=settings or GroupSettings())
    table.groups.update({group.group_id: group for group in groups})
    return table, OffsetRules(table)


def apply(rules: OffsetRules, outcome: GroupOutcome) -> Any:
    """What the shell does: the records are replayed, the answer is let out."""
    for record in outcome.changes:
        if not isinstance(record.key, GroupMetadataKey):
            rules.replay(record)
    return outcome.replies[0][1] if outcome.replies else None


def commit_request(
    offsets: Mapping[tuple[str, int], int],
    *,
    group_id: str = "g",
    epoch: int = -1,
    member_id: str = "",
    metadata: str | None = None,
    leader_epoch: int = -1,
    retention: timedelta = NO_RETENTION,
    topic_id: UUID | None = TOPIC_ID,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        retention_time=retention,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for (topic, partition), offset in offsets.items()
                    if topic == name
                ),
            )
            for name in dict.fromkeys(topic for topic, _ in offsets)
        ),
    )


def fetch_request(
    partitions: Iterable[tuple[str, int]] | None,
    *,
    group_id: str = "g",
    topic_id: UUID | None = None,
    member_id: str | None = None,
    epoch: int = -1,
) -> OffsetFetchRequestGroup:
    asked = None if partitions is None else list(partitions)
    return OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        topics=None
        if asked is None
        else tuple(
            OffsetFetchRequestTopics(
                name=name, topic_id=topic_id, partition_indexes=tuple(p for topic, p in asked if topic == name)
            )
            for name in dict.fromkeys(topic for topic, _ in asked)
        ),
    )


def delete_request(partitions: Iterable[tuple[str, int]], group_id: str = "g") -> OffsetDeleteRequest:
    asked = list(partitions)
    return OffsetDeleteRequest(
        group_id=GroupId(group_id),
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=TopicName(name),
                partitions=tuple(OffsetDeleteRequestPartition(partition_index=i32(p)) for t, p in asked if t == name),
            )
            for name in dict.fromkeys(topic for topic, _ in asked)
        ),
    )


def commit_codes(response: OffsetCommitResponse) -> dict[tuple[str, int], ErrorCode]:
    return {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}


def fetched_offsets(
    response: object, what: Callable[[Any], Any] = lambda partition: partition.committed_offset
) -> dict[tuple[str, int], Any]:
    assert isinstance(response, OffsetFetchResponseGroup)
    return {(t.name, p.partition_index): what(p) for t in response.topics for p in t.partitions}
