"""Who may not see a topic, a group or a transaction is not told whether there is one of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from barnabas.machines.security.acls import AclResourceType, Entry, Operation, Permission, ResourcePattern
from barnabas.model.errors import ErrorCode
from tests.support.wire import batch, plain
from tests.unit.broker.permissions.test_hot import judged

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.broker.permissions.test_hot import Judged

SECRET, NOBODY, GROUP = "theirs", "nobody", "their-group"
DELETE_TOPICS = 20
TOPIC_DENIED = ErrorCode.topic_authorization_failed


def of_topic(name: str, topic_id: UUID) -> dict[str, tuple[int, int, dict[str, Any]]]:
    """Requests that name a topic."""
    index = [{"name": name, "partition_indexes": [0]}]
    at = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1, "offset": 0, "committed_offset": 1}]}]
    epoch = [{"topic": name, "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}]
    fetched = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}
    fetch = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 10_000, "session_epoch": -1}
    produced = [{"index": 0, "records": batch([b"a"])}]
    produce = {"acks": 1, "timeout": 1000}
    resource = [{"resource_type": 2, "resource_name": name, "configs": []}]
    subscribed = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000}
    transaction = {"transactional_id": "x", "v3_and_below_transactional_id": "x", "producer_id": 1, "topics": []}
    shares = [{"topic_name": name, "partitions": [0]}]
    return {
        "Produce": (0, 9, {**produce, "topic_data": [{"name": name, "partition_data": produced}]}),
        "Fetch": (1, 12, {**fetch, "topics": [{"topic": name, "partitions": [fetched]}]}),
        "ListOffsets": (2, 7, {"replica_id": -1, "topics": at}),
        "Metadata": (3, 9, {"topics": [{"name": name}], "include_topic_authorized_operations": True}),
        "Metadata that may create": (3, 9, {"topics": [{"name": name}], "allow_auto_topic_creation": True}),
        "OffsetCommit": (8, 8, {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": at}),
        "OffsetFetch": (9, 7, {"group_id": "g", "topics": index}),
        "CreateTopics": (19, 7, {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}]}),
        "DeleteTopics": (DELETE_TOPICS, 5, {"topic_names": [name], "timeout": 1000}),
        "DeleteRecords": (21, 2, {"topics": at, "timeout": 1000}),
        "OffsetForLeaderEpoch": (23, 4, {"replica_id": -1, "topics": epoch}),
        "AddPartitionsToTxn": (
            24,
            3,
            {**transaction, "v3_and_below_topics": [{"name": name, "partitions": [0]}]},
        ),
        "DescribeConfigs": (32, 4, {"resources": resource}),
        "AlterConfigs": (33, 2, {"resources": resource}),
        "IncrementalAlterConfigs": (44, 1, {"resources": resource}),
        "DescribeLogDirs": (35, 4, {"topics": [{"topic": name, "partitions": [0]}]}),
        "CreatePartitions": (37, 3, {"topics": [{"name": name, "count": 2}], "timeout": 1000}),
        "OffsetDelete": (47, 0, {"group_id": "g", "topics": [{"name": name, "partitions": [{"partition_index": 0}]}]}),
        "DescribeProducers": (61, 0, {"topics": index}),
        "ConsumerGroupHeartbeat": (68, 1, {**subscribed, "subscribed_topic_names": [name]}),
        "DescribeTopicPartitions": (75, 0, {"topics": [{"name": name}]}),
        "ShareGroupHeartbeat": (76, 1, {**subscribed, "subscribed_topic_names": [name]}),
        "DescribeShareGroupOffsets": (90, 1, {"groups": [{"group_id": "g", "topics": shares}]}),
        "AlterShareGroupOffsets": (
            91,
            0,
            {
                "group_id": "g",
                "topics": [{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 1}]}],
            },
        ),
        "DeleteShareGroupOffsets": (92, 0, {"group_id": "g", "topics": [{"topic_name": name}]}),
    }


def of_group(name: str, _: UUID) -> dict[str, tuple[int, int, dict[str, Any]]]:
    """Requests that name a group."""
    member = {"group_id": name, "member_id": "m", "generation_id": 1}
    return {
        "OffsetCommit": (8, 8, {"group_id": name, "generation_id_or_member_epoch": -1, "topics": []}),
        "OffsetFetch": (9, 8, {"groups": [{"group_id": name, "topics": None}]}),
        "FindCoordinator": (10, 4, {"key_type": 0, "coordinator_keys": [name]}),
        "JoinGroup": (11, 5, {**member, "session_timeout": 10_000, "protocol_type": "consumer", "protocols": []}),
        "Heartbeat": (12, 4, member),
        "LeaveGroup": (13, 4, {**member, "members": [{"member_id": "m"}]}),
        "SyncGroup": (14, 5, {**member, "protocol_type": "consumer", "protocol_name": "range"}),
        "DescribeGroups": (15, 5, {"groups": [name]}),
        "TxnOffsetCommit": (28, 3, {"transactional_id": "x", **member, "producer_id": 1, "topics": []}),
        "AddOffsetsToTxn": (25, 3, {"transactional_id": "x", "group_id": name, "producer_id": 1}),
        "DescribeConfigs": (32, 4, {"resources": [{"resource_type": 32, "resource_name": name}]}),
        "DeleteGroups": (42, 2, {"groups_names": [name]}),
        "ConsumerGroupDescribe": (69, 1, {"group_ids": [name]}),
        "ShareGroupDescribe": (77, 1, {"group_ids": [name]}),
    }


async def answers(client: Judged, of: Any, name: str, topic_id: UUID) -> dict[str, Any]:
    """What each request is answered, with the name that was asked for made the same."""
    return {
        api: str(plain(await client.ask(key, version, body))).replace(f"'{name}'", "'NAME'")
        for api, (key, version, body) in of(name, topic_id).items()
    }


@pytest.mark.parametrize(("of", "name"), [(of_topic, SECRET), (of_group, GROUP)])
@pytest.mark.parametrize("may_use_others", [False, True], ids=["stranger", "user"])
async def test_no_answer_tells_whether_it_is_there(tmp_path: Path, of: Any, name: str, may_use_others: bool) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.ALL, AclResourceType.GROUP, "*"), (Operation.ALL, AclResourceType.TOPIC, "*"))
        offset = [{"name": SECRET, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        await client.ask(8, 8, {"group_id": GROUP, "generation_id_or_member_epoch": -1, "topics": offset})
        others = ("g", "x", "mine") if may_use_others else ()
        kinds = (AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID, AclResourceType.TOPIC)
        client.may(*((Operation.ALL, kind, other) for kind in kinds for other in others))
        topic_id = client.broker.metadata.image.topics[SECRET].topic_id
        there = await answers(client, of, name, topic_id)
        nowhere = await answers(client, of, NOBODY, UUID(int=7))
        assert there == nowhere
        assert set(client.broker.metadata.image.topics) >= {"mine", SECRET}
        assert NOBODY not in client.broker.metadata.image.topics


async def test_lists_leave_out_what_may_not_be_seen(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        topic_id = client.broker.metadata.image.topics[SECRET].topic_id
        client.may((Operation.ALL, AclResourceType.GROUP, "g"), (Operation.ALL, AclResourceType.TOPIC, "mine"))
        everything: list[tuple[int, int, dict[str, Any]]] = [
            (3, 12, {"topics": None}),
            (3, 12, {"topics": [{"topic_id": topic_id, "name": None}]}),
            (1, 16, {"max_wait": 0, "topics": [{"topic_id": topic_id, "partitions": [{"partition": 0}]}]}),
            (9, 8, {"groups": [{"group_id": "g", "topics": None}]}),
            (16, 5, {}),
            (20, 6, {"topics": [{"name": None, "topic_id": topic_id}], "timeout": 1000}),
            (35, 4, {"topics": None}),
            (46, 0, {"topics": None, "timeout": 1000}),
            (66, 1, {"duration_filter": -1}),
            (74, 1, {"resource_types": [2]}),
            (75, 0, {"topics": [], "response_partition_limit": 1000}),
        ]
        for key, version, body in everything:
            assert SECRET not in str(plain(await client.ask(key, version, body))), key


async def test_a_topic_that_may_not_be_described_is_not_deleted_by_its_name(tmp_path: Path) -> None:
    """As in Kafka, where a denial of Describe outweighs a permission to Delete; by its id it is deleted there, too."""
    async with judged(tmp_path) as client:
        permissions = client.broker.permissions
        assert permissions is not None
        entries = [
            Entry("User:alice", "*", Operation.DELETE, Permission.ALLOW),
            Entry("User:alice", "*", Operation.DESCRIBE, Permission.DENY),
        ]
        acls = {ResourcePattern(AclResourceType.TOPIC, SECRET): entries}
        permissions.replace(permissions.rules.with_acls(acls))
        answer = await client.ask(DELETE_TOPICS, 5, {"topic_names": [SECRET], "timeout": 1000})
        assert answer.responses[0].error_code is TOPIC_DENIED
        topic_id = client.broker.metadata.image.topics[SECRET].topic_id
        by_id = {"topics": [{"name": None, "topic_id": topic_id}], "timeout": 1000}
        answer = await client.ask(DELETE_TOPICS, 6, by_id)
        assert answer.responses[0].error_code is ErrorCode.none
