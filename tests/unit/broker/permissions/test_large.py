"""Requests that are large enough to be read, and judged, in a thread: they get no more than small ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.serving.dispatch import LARGE_FRAME
from barnabas.machines.security.acls import AclResourceType, Operation
from barnabas.model.errors import ErrorCode
from tests.support.wire import request
from tests.unit.broker.permissions.test_hot import judged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = [f"{'x' * 40}-{number}" for number in range(300)] + ["mine", "theirs"]
TOPIC, GROUP = ErrorCode.topic_authorization_failed, ErrorCode.group_authorization_failed
OFFSETS = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1, "offset": 0}]} for name in NAMES]
COMMITTED = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in NAMES]
INDEXES = [{"name": name, "partition_indexes": [0]} for name in NAMES]
REQUESTS: dict[str, tuple[int, int, dict[str, Any], ErrorCode]] = {
    "ListOffsets": (2, 7, {"replica_id": -1, "topics": OFFSETS}, TOPIC),
    "Metadata": (3, 9, {"topics": [{"name": name} for name in NAMES]}, TOPIC),
    "OffsetCommit": (8, 8, {"group_id": "g", "topics": COMMITTED}, GROUP),
    "OffsetFetch": (9, 8, {"groups": [{"group_id": "g", "topics": INDEXES}]}, GROUP),
    "FindCoordinator": (10, 4, {"key_type": 0, "coordinator_keys": NAMES}, GROUP),
    "DescribeGroups": (15, 5, {"groups": NAMES}, GROUP),
    "CreateTopics": (19, 7, {"topics": [{"name": name, "num_partitions": 1} for name in NAMES]}, TOPIC),
    "DeleteTopics": (20, 5, {"topic_names": NAMES, "timeout": 1000}, TOPIC),
    "DeleteRecords": (21, 2, {"topics": OFFSETS, "timeout": 1000}, TOPIC),
    "DescribeConfigs": (32, 4, {"resources": [{"resource_type": 2, "resource_name": name} for name in NAMES]}, TOPIC),
    "IncrementalAlterConfigs": (
        44,
        1,
        {"resources": [{"resource_type": 2, "resource_name": name} for name in NAMES]},
        TOPIC,
    ),
    "CreatePartitions": (37, 3, {"topics": [{"name": name, "count": 2} for name in NAMES], "timeout": 1000}, TOPIC),
    "DeleteGroups": (42, 2, {"groups_names": NAMES}, GROUP),
    "DescribeProducers": (61, 0, {"topics": INDEXES}, TOPIC),
    "DescribeTopicPartitions": (75, 0, {"topics": [{"name": name} for name in NAMES]}, TOPIC),
}


def codes(answer: Any) -> Iterator[ErrorCode]:
    """Every error code in an answer."""
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name == "error_code":
            yield value
        for part in value if isinstance(value, tuple) else ():
            yield from codes(part)


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_stranger_is_refused_everything_in_a_large_request(tmp_path: Path, name: str) -> None:
    key, version, values, denied = REQUESTS[name]
    assert len(request(key, version, 1, values)) > LARGE_FRAME
    async with judged(tmp_path) as client:
        client.may()
        answer = await client.ask(key, version, values)
        told = list(codes(answer))
        assert told.count(denied) >= (1 if name == "OffsetFetch" else len(NAMES))
        assert set(told) <= {denied, ErrorCode.none}
        assert set(client.broker.metadata.image.topics) == {"mine", "theirs"}


async def test_what_is_allowed_in_a_large_request_is_served(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.DESCRIBE, AclResourceType.TOPIC, "mine"))
        key, version, values, denied = REQUESTS["ListOffsets"]
        answer = await client.ask(key, version, values)
        served = [topic.name for topic in answer.topics if topic.partitions[0].error_code is not denied]
        assert served == ["mine"]
        assert len(answer.topics) == len(NAMES)
