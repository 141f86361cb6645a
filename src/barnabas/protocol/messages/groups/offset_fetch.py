"""OffsetFetch in the shape that handlers and machines know: topics with both their name and their id.

Version 10 names topics by id and the versions before by name, so no class of kio has both. These have, with the field
names of kio's: a request of any version converts to them, and any version of a response is made of them. Up to version
7 a request asks for one group.

Conversion looks at the types of fields, so annotations are not postponed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from barnabas.model.errors import ErrorCode


def _of(kind: str) -> Mapping[str, str]:
    return {"kafka_type": kind}


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


def up(request: Any, version: int) -> Any:
    """Up to version 7 a request has one group; version 1 cannot ask for all topics."""
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


def down(response: OffsetFetchResponse, version: int) -> Any:
    """Up to version 7 a response has one group; version 1 has its error with each partition."""
    if version >= 8:
        return response
    (only,) = response.groups
    return OneGroupFetched(throttle_time=response.throttle_time, topics=only.topics, error_code=only.error_code)
