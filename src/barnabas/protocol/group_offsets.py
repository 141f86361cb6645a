"""OffsetCommit and OffsetFetch in the shape that handlers and machines know: topics with both their name and their id.

Version 10 of both names topics by id and the versions before by name, so no class of kio has both. These have, with the
field names of kio's: a request of any version converts to them, and any version of a response is made of them. Up to
version 7 OffsetFetch asks for one group.

Those of a commit are not frozen: several are made for each request, and freezing takes four times as long as making.

Conversion looks at the types of fields, so annotations are not postponed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from barnabas.model.errors import ErrorCode

NO_RETENTION: Final = timedelta(milliseconds=-1)
"""As an offset's retention: what the broker has for all."""


def _of(kind: str) -> Mapping[str, str]:
    return {"kafka_type": kind}


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    """An offset to be committed."""

    partition_index: int = field(metadata=_of("int32"))
    committed_offset: int = field(metadata=_of("int64"))
    committed_leader_epoch: int = field(metadata=_of("int32"), default=-1)
    committed_metadata: str | None = field(metadata=_of("string"), default=None)


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    """A topic's offsets to be committed."""

    topic_id: UUID | None = field(metadata=_of("uuid"), default=None)
    name: str = field(metadata=_of("string"), default="")
    partitions: tuple[OffsetCommitRequestPartition, ...]


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    """Offsets of one group; `retention_time` is asked for in versions 2 to 4 only."""

    group_id: str = field(metadata=_of("string"))
    generation_id_or_member_epoch: int = field(metadata=_of("int32"), default=-1)
    member_id: str = field(metadata=_of("string"), default="")
    group_instance_id: str | None = field(metadata=_of("string"), default=None)
    retention_time: timedelta = field(metadata=_of("timedelta_i64"), default=NO_RETENTION)
    topics: tuple[OffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    """What became of a commit."""

    partition_index: int = field(metadata=_of("int32"))
    error_code: ErrorCode = field(metadata=_of("error_code"), default=ErrorCode.none)


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    """What became of a topic's commits."""

    topic_id: UUID | None = field(metadata=_of("uuid"), default=None)
    name: str = field(metadata=_of("string"), default="")
    partitions: tuple[OffsetCommitResponsePartition, ...]


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    """The answer to a commit."""

    throttle_time: timedelta = field(metadata=_of("timedelta_i32"), default=timedelta(0))
    topics: tuple[OffsetCommitResponseTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopics:
    """Partitions whose offsets are asked for."""

    topic_id: UUID | None = field(metadata=_of("uuid"), default=None)
    name: str = field(metadata=_of("string"), default="")
    partition_indexes: tuple[int, ...] = field(metadata=_of("int32"), default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroup:
    """A group whose offsets are asked for: of these topics, or (None) of all."""

    group_id: str = field(metadata=_of("string"))
    member_id: str | None = field(metadata=_of("string"), default=None)
    member_epoch: int = field(metadata=_of("int32"), default=-1)
    topics: tuple[OffsetFetchRequestTopics, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest:
    """Groups whose offsets are asked for."""

    groups: tuple[OffsetFetchRequestGroup, ...]
    require_stable: bool = field(metadata=_of("bool"), default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponsePartitions:
    """A committed offset, or -1."""

    partition_index: int = field(metadata=_of("int32"))
    committed_offset: int = field(metadata=_of("int64"), default=-1)
    committed_leader_epoch: int = field(metadata=_of("int32"), default=-1)
    metadata: str | None = field(metadata=_of("string"), default="")
    error_code: ErrorCode = field(metadata=_of("error_code"), default=ErrorCode.none)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopics:
    """A topic's committed offsets."""

    topic_id: UUID | None = field(metadata=_of("uuid"), default=None)
    name: str = field(metadata=_of("string"), default="")
    partitions: tuple[OffsetFetchResponsePartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroup:
    """A group's committed offsets."""

    group_id: str = field(metadata=_of("string"))
    topics: tuple[OffsetFetchResponseTopics, ...] = ()
    error_code: ErrorCode = field(metadata=_of("error_code"), default=ErrorCode.none)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse:
    """The answer to a fetch of offsets."""

    throttle_time: timedelta = field(metadata=_of("timedelta_i32"), default=timedelta(0))
    groups: tuple[OffsetFetchResponseGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OneGroupFetched:
    """The answer up to version 7."""

    throttle_time: timedelta
    topics: tuple[OffsetFetchResponseTopics, ...]
    error_code: ErrorCode


def fetch_up(request: Any, version: int) -> Any:
    """Up to version 7 a request has one group; before version 2 it could not ask for all topics, so none are none."""
    if version >= 8:
        return request
    topics = request.topics
    return OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id=request.group_id,
                topics=None
                if topics is None
                else tuple(
                    OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                    for topic in topics
                ),
            ),
        ),
        require_stable=getattr(request, "require_stable", False),
    )


def fetch_down(response: OffsetFetchResponse, version: int) -> Any:
    """Up to version 7 a response has one group; before version 2 its error is told partition by partition."""
    if version >= 8:
        return response
    (only,) = response.groups
    return OneGroupFetched(throttle_time=response.throttle_time, topics=only.topics, error_code=only.error_code)
