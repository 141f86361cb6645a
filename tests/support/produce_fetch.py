"""Whole requests and responses of the hand-packed APIs, made and read by kio: an implementation apart from ours."""

from __future__ import annotations

import io
import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from barnabas.protocol.wire.conversion import zero

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from barnabas.net.reply import Answer, Parked

PRODUCE, FETCH = 0, 1
FIRST_BY_ID = 13


def body(message: Any) -> memoryview:
    """A message's bytes."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return memoryview(buffer.getvalue())


def _nested(message_class: type, *path: str) -> type:
    """The class of a nested array's elements."""
    for name in path:
        annotation: Any = message_class.__dataclass_fields__[name].type  # type: ignore[attr-defined]
        message_class = annotation.__args__[0]
    return message_class


def _topic(version: int, name: str, topic_id: UUID, name_field: str) -> dict[str, Any]:
    return {"topic_id": topic_id} if version >= FIRST_BY_ID else {name_field: name}


def produce_request(
    version: int,
    batches: Mapping[tuple[str, UUID, int], bytes | None],
    *,
    acks: int = 1,
    timeout_ms: int = 5000,
    transactional_id: str | None = None,
) -> memoryview:
    """The body of a Produce request: topic name, topic id and partition to records."""
    message_class = load_request_schema(PRODUCE, version)
    topic_class = _nested(message_class, "topic_data")
    partition_class = _nested(topic_class, "partition_data")
    topics = tuple(
        zero(
            topic_class,
            partition_data=(zero(partition_class, index=index, records=records),),
            **_topic(version, name, topic_id, "name"),
        )
        for (name, topic_id, index), records in batches.items()
    )
    return body(
        zero(
            message_class,
            transactional_id=transactional_id,
            acks=acks,
            timeout=timedelta(milliseconds=timeout_ms),
            topic_data=topics,
        )
    )


def produced(version: int, answer: Answer | Parked) -> list[Any]:
    """The partitions' results in a Produce response."""
    assert isinstance(answer, bytes), answer
    response: Any = entity_reader(load_response_schema(PRODUCE, version))(answer, 9 if version >= 9 else 8)[0]
    return [partition for topic in response.responses for partition in topic.partition_responses]


def fetch_request(version: int, topics: Mapping[tuple[str, UUID], Mapping[int, int]], **fields: Any) -> memoryview:
    """The body of a Fetch request: topic name and id to partitions and their fetch offsets."""
    partition_fields = {
        name: fields.pop(name)
        for name in ("partition_max_bytes", "current_leader_epoch", "last_fetched_epoch")
        if name in fields
    }
    message_class = load_request_schema(FETCH, version)
    topic_class = _nested(message_class, "topics")
    partition_class = _nested(topic_class, "partitions")
    wanted = tuple(
        zero(
            topic_class,
            partitions=tuple(
                zero(
                    partition_class,
                    **{"partition_max_bytes": 1 << 20, "partition": index, "fetch_offset": offset} | partition_fields,
                )
                for index, offset in partitions.items()
            ),
            **_topic(version, name, topic_id, "topic"),
        )
        for (name, topic_id), partitions in topics.items()
    )
    wait = timedelta(milliseconds=fields.pop("max_wait_ms", 0))
    return body(zero(message_class, topics=wanted, max_wait=wait, **{"max_bytes": 1 << 25, "min_bytes": 1} | fields))


def fetched(version: int, answer: Answer | Parked) -> Any:
    """A Fetch response, its file slices read."""
    frame = frame_of(answer)
    response: Any = entity_reader(load_response_schema(FETCH, version))(frame, 9 if version >= 12 else 8)[0]
    return response


def frame_of(answer: Answer | Parked) -> bytes:
    """The frame of a Fetch response, its file slices read."""
    assert isinstance(answer, list), answer
    frame = b"".join(_bytes(part) for part in answer)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    return frame


def _bytes(part: Any) -> bytes:
    if isinstance(part, bytes):
        return part
    import os

    data = os.pread(part.file.fd, part.length, part.position)
    part.file.release()
    return data
