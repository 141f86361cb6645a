"""Whole requests under random ACLs, asked of Barnabas and of Apache Kafka 4.3.0 side by side: the answers are the same.

The administrator and the brokers come from 127.0.0.1 and may do everything. The client that is judged comes from
127.0.0.2, and may do what random rules say. BARNABAS_TEST_PERMISSION_SETS=500 tries more sets of rules.
"""

from __future__ import annotations

import os
import pprint
import random
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from kio.serial.errors import OutOfBoundValue

from barnabas.broker.serving.registry import APIS, Callers
from tests.compat.same.scene import neutral
from tests.support.brokers import Barnabas, KafkaKRaft
from tests.support.groups import QUICK
from tests.support.waiting import wait_until
from tests.support.wire import Connection, batch, plain, request

if TYPE_CHECKING:
    from collections.abc import Iterator

SETS: Final = int(os.environ.get("BARNABAS_TEST_PERMISSION_SETS", "8"))
CLIENT: Final = "127.0.0.2"
DEADLINE: Final = 10.0
"""Seconds after which a request counts as not answered."""
SETTINGS: Final = {
    **QUICK,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "log.retention.ms": "-1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
}
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = range(2, 8)
LITERAL, PREFIXED = 3, 4
ALL, DENY, ALLOW = 2, 2, 3
ANYTHING: Final = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
NAMES: Final = {
    TOPIC: ["mine", "theirs", "m", "t", "*", "nowhere", "victim"],
    GROUP: ["g-mine", "g-theirs", "g-", "*", "g-m"],
    CLUSTER: ["kafka-cluster"],
    TRANSACTIONAL_ID: ["x-mine", "x-theirs", "x-", "*"],
    TOKEN: ["token", "*"],
    USER: ["User:mine", "User:theirs", "*"],
}
OPERATIONS: Final = {
    TOPIC: [ALL, 3, 4, 5, 6, 7, 8, 10, 11],
    GROUP: [ALL, 3, 6, 8, 10, 11],
    CLUSTER: [5, 6, 7, 8, 9, 10, 11, 12],
    TRANSACTIONAL_ID: [ALL, 4, 8],
    TOKEN: [ALL, 8],
    USER: [ALL, 13, 14],
}


ELSEWHERE: Final = {"config_source", "records"}
"""What other tests compare."""
NEWER: Final = {"errors.deadletterqueue.group.enable"}
"""Settings that this version of Kafka does not have yet."""
NOWHERE: Final = uuid.UUID(int=99)
STATE_APIS: Final = {
    "InitializeShareGroupState": 83,
    "ReadShareGroupState": 84,
    "WriteShareGroupState": 85,
    "DeleteShareGroupState": 86,
    "ReadShareGroupStateSummary": 87,
}
"""What brokers ask each other about share groups."""
NOT_ASKED: Final = {
    17: "SaslHandshake is before the permissions",
    18: "ApiVersions needs none, and lists what each broker has",
    36: "SaslAuthenticate is before the permissions",
    71: "GetTelemetrySubscriptions needs none, and Kafka has it with a reporter only",
    72: "PushTelemetry, likewise",
}
"""APIs for clients."""
DENIED: Final = 29
ABOUT_TOKENS: Final = range(38, 41)
"""Times in their errors are -1 with Kafka, which kio cannot read."""
ON_PURPOSE: Final = {
    "AlterPartitionReassignments": "responses",
    "ElectLeaders": "replica_election_results",
    "DescribeUserScramCredentials": "results",
}
"""Where Kafka repeats the error at the top for each partition or user, and Barnabas does not."""


class Side:
    """One of the two brokers: its administrator, and the client that is judged."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = Connection(bootstrap)
        self.client = Connection(bootstrap, DEADLINE, CLIENT)
        self.ids: dict[str, uuid.UUID] = {}
        self.set_up()

    def set_up(self) -> None:
        everything = [
            rule(kind, name, LITERAL, ALL, ALLOW, "127.0.0.1")
            for kind, name in ((TOPIC, "*"), (GROUP, "*"), (CLUSTER, "kafka-cluster"), (TRANSACTIONAL_ID, "*"))
        ]
        self.create(everything)
        for name in ("mine", "theirs"):
            self.make(name)
            data = [{"name": name, "partition_data": [{"index": 0, "records": batch([b"a", b"b"])}]}]
            self.admin.ask(0, 9, {"acks": -1, "timeout": 10_000, "topic_data": data})
        wait_until(self._has_coordinators, "coordinators of groups and transactions")
        for group in ("g-mine", "g-theirs"):
            topics = [offset_of("mine"), offset_of("theirs")]
            body = {"group_id": group, "generation_id_or_member_epoch": -1, "generation_id": -1, "topics": topics}
            self.admin.ask(8, 8, body)
        wait_until(self._has_shares, "a share group with states")

    def _has_shares(self) -> bool:
        topics = [
            {"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 1}]}
            for name in ("mine", "theirs")
        ]
        answer = self.admin.ask(91, 0, {"group_id": "g-shared", "topics": topics})
        return not answer.error_code and not any(topic.partitions[0].error_code for topic in answer.responses)

    def make(self, name: str) -> None:
        wanted = {"name": name, "num_partitions": 1, "replication_factor": 1}
        answer = self.admin.ask(19, 7, {"topics": [wanted], "timeout": 10_000}).topics[0]
        if answer.error_code != 36:
            assert answer.error_code == 0, answer
            self.ids[name] = answer.topic_id
        wait_until(lambda: self._is_led(name), f"a leader of {name}")

    def _is_led(self, name: str) -> bool:
        topics = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        return bool(self.admin.ask(2, 7, {"replica_id": -1, "topics": topics}).topics[0].partitions[0].error_code == 0)

    def _has_coordinators(self) -> bool:
        for kind, key in ((0, "any"), (1, "any")):
            if self.admin.ask(10, 4, {"key_type": kind, "coordinator_keys": [key]}).coordinators[0].error_code:
                return False
        described = self.admin.ask(15, 5, {"groups": [f"group-{number}" for number in range(50)]}).groups
        ready = all(group.error_code == 0 for group in described)
        for transactional_id in ("x-mine", "x-theirs"):
            body = {"transactional_id": transactional_id, "transaction_timeout": 60_000}
            body |= {"producer_id": -1, "producer_epoch": -1}
            ready = ready and self.admin.ask(22, 4, body).error_code == 0
        return ready

    def create(self, rules: list[dict[str, Any]]) -> None:
        answer = self.admin.ask(CREATE_ACLS, 3, {"creations": rules})
        assert all(result.error_code == 0 for result in answer.results), answer
        wait_until(lambda: self.rules_of({each["host"] for each in rules}) >= len(rules), "the rules")

    def rules_of(self, hosts: set[str]) -> int:
        resources = self.admin.ask(DESCRIBE_ACLS, 3, {**ANYTHING}).resources
        return sum(acl.host in hosts for resource in resources for acl in resource.acls)

    def judge_by(self, rules: list[dict[str, Any]]) -> None:
        """Have the client judged by these rules and no others."""
        self.admin.ask(DELETE_ACLS, 3, {"filters": [{**ANYTHING, "host_filter": CLIENT}]})
        wait_until(lambda: self.rules_of({CLIENT}) == 0, "the old rules to go")
        if rules:
            self.create(rules)

    def ask(self, key: int, version: int, body: dict[str, Any]) -> Any:
        if key in ABOUT_TOKENS:
            return self._error(key, version, body)
        try:
            return ordered(neutral(plain(self.client.ask(key, version, body)), "\0"))
        except OutOfBoundValue:
            return "a transaction that has not begun, whose start kio cannot read"
        except (AssertionError, TimeoutError) as error:
            if isinstance(error, AssertionError) and "was closed" not in str(error):
                raise
            self.client.socket.close()
            self.client = Connection(self.bootstrap, DEADLINE, CLIENT)
            return type(error).__name__

    def _error(self, key: int, version: int, body: dict[str, Any]) -> int:
        """The error that an answer begins with, behind its header of flexible versions."""
        self.client.send_frame(request(key, version, 0, body))
        answer = self.client.receive_frame()
        assert answer is not None
        return int.from_bytes(answer[5:7], "big")


def without(answer: Any, name: str) -> Any:
    """An answer that is refused as a whole, without what may be told beside that."""
    if isinstance(answer, dict) and answer.get("error_code") == 31:
        return {key: value for key, value in answer.items() if key != name}
    return answer


def without_ids(answer: Any) -> Any:
    """Offsets of share groups, without the ids of topics that were refused: Kafka tells whether there are some."""
    if isinstance(answer, dict):
        for topic in answer.get("responses", ()):
            if all(part["error_code"] == DENIED for part in topic.get("partitions", ())):
                topic.pop("topic_id", None)
    return answer


def ordered(answer: Any) -> Any:
    """An answer whose lists have one order, whoever made them."""
    if isinstance(answer, dict):
        return {key: ordered(value) for key, value in answer.items() if key not in ELSEWHERE}
    if not isinstance(answer, list):
        return answer
    known = [each for each in answer if not isinstance(each, dict) or each.get("name") not in NEWER]
    return sorted(map(ordered, known), key=repr)


def rule(kind: int, name: str, pattern: int, operation: int, permission: int, host: str = CLIENT) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:ANONYMOUS",
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def random_rules(chance: random.Random) -> list[dict[str, Any]]:
    rules = {}
    for _ in range(chance.choice((0, 1, 2, 4, 8, 16))):
        kind = chance.choice((TOPIC, TOPIC, TOPIC, GROUP, GROUP, CLUSTER, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER))
        name = chance.choice(NAMES[kind])
        pattern = LITERAL if kind == CLUSTER or name == "*" else chance.choice((LITERAL, LITERAL, PREFIXED))
        operation, permission = chance.choice(OPERATIONS[kind]), chance.choice((ALLOW, ALLOW, ALLOW, DENY))
        rules[kind, name, pattern, operation, permission] = rule(kind, name, pattern, operation, permission)
    return list(rules.values())


def offset_of(topic: str) -> dict[str, Any]:
    return {"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}


def requests(side: Side) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Every API for clients: what is asked for exists, or not, and may be somebody else's."""
    data: Any
    topics: Any
    body: Any
    described: Any
    added: Any
    partitions: Any
    names = ["mine", "theirs", "nowhere"]
    ids = [side.ids["mine"], side.ids["theirs"], uuid.UUID(int=7)]
    groups, transactional_ids = ["g-mine", "g-theirs", "g-nobody"], ["x-mine", "x-theirs", "x-nobody"]
    member = {"group_id": "g-mine", "member_id": "nobody", "generation_id": 1}
    producer = {"producer_id": 4711, "producer_epoch": 0}
    fetched = {"fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1, "last_fetched_epoch": -1}
    limits = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 10_000, "session_epoch": -1}
    records = batch([b"c"])
    for acks in (1, -1):
        data = [{"name": name, "partition_data": [{"index": 0, "records": records}]} for name in names]
        yield f"Produce acks={acks}", 0, 9, {"acks": acks, "timeout": 5000, "topic_data": data}
    data = [{"topic_id": each, "partition_data": [{"index": 0, "records": records}]} for each in ids]
    yield "Produce by id", 0, 13, {"acks": 1, "timeout": 5000, "topic_data": data}
    for transactional_id in ("x-mine", "x-theirs"):
        sent = batch([b"d"], attributes=0x10, producer_id=4711, producer_epoch=0, base_sequence=0)
        data = [{"name": "mine", "partition_data": [{"index": 0, "records": sent}]}]
        body = {"transactional_id": transactional_id, "acks": -1, "timeout": 5000, "topic_data": data}
        yield f"Produce with {transactional_id}", 0, 9, body
    topics = [{"topic": name, "partitions": [{"partition": 0, **fetched}]} for name in names]
    yield "Fetch", 1, 12, {**limits, "topics": topics}
    topics = [{"topic_id": each, "partitions": [{"partition": 0, **fetched}]} for each in ids]
    yield "Fetch by id", 1, 16, {**limits, "topics": topics}
    partitions = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
    yield (
        "ListOffsets",
        2,
        7,
        {"replica_id": -1, "topics": [{"name": each, "partitions": partitions} for each in names]},
    )
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    named = [{"name": name} for name in names]
    for version in (4, 9, 12):
        body = {**asked, "allow_auto_topic_creation": False}
        yield f"Metadata v{version}", 3, version, {**body, "topics": named}
        yield f"Metadata v{version} of all", 3, version, {**body, "topics": None}
    yield "Metadata by id", 3, 12, {**asked, "topics": [{"topic_id": each, "name": None} for each in ids]}
    commit = {"generation_id_or_member_epoch": -1, "generation_id": -1, "topics": list(map(offset_of, names))}
    for group in groups[:2]:
        yield f"OffsetCommit of {group}", 8, 8, {"group_id": group, **commit}
    indexes = [{"name": name, "partition_indexes": [0]} for name in names]
    for version in (1, 2, 7):
        yield f"OffsetFetch v{version}", 9, version, {"group_id": "g-mine", "topics": indexes}
    yield "OffsetFetch of all topics", 9, 7, {"group_id": "g-theirs", "topics": None}
    yield "OffsetFetch of groups", 9, 8, {"groups": [{"group_id": each, "topics": indexes} for each in groups]}
    yield "OffsetFetch of groups, all", 9, 8, {"groups": [{"group_id": each, "topics": None} for each in groups]}
    yield "FindCoordinator of groups", 10, 4, {"key_type": 0, "coordinator_keys": groups}
    yield "FindCoordinator of transactions", 10, 4, {"key_type": 1, "coordinator_keys": transactional_ids}
    yield "FindCoordinator", 10, 2, {"key_type": 0, "key": "g-theirs"}
    bad = {"session_timeout": 1, "rebalance_timeout": 1, "protocol_type": "consumer", "protocols": []}
    yield "JoinGroup", 11, 5, {**member, **bad, "member_id": ""}
    yield "Heartbeat", 12, 4, member
    yield "LeaveGroup", 13, 4, {**member, "members": [{"member_id": "nobody"}]}
    yield "LeaveGroup v1", 13, 1, member
    yield "SyncGroup", 14, 5, {**member, "protocol_type": "consumer", "protocol_name": "range"}
    described = {"include_authorized_operations": True}
    yield "DescribeGroups", 15, 5, {**described, "groups": groups}
    yield "ListGroups", 16, 4, {}
    made = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    yield "CreateTopics", 19, 7, {"topics": made, "timeout": 5000, "validate_only": True}
    yield "DeleteTopics that are not there", 20, 5, {"topic_names": ["nowhere"], "timeout": 5000}
    yield "DeleteTopics", 20, 5, {"topic_names": ["victim"], "timeout": 5000}
    yield "DeleteTopics by id", 20, 6, {"topics": [{"name": None, "topic_id": uuid.UUID(int=7)}], "timeout": 5000}
    partitions = [{"partition_index": 0, "offset": 0}]
    topics = [{"name": name, "partitions": partitions} for name in names]
    yield "DeleteRecords", 21, 2, {"topics": topics, "timeout": 5000}
    fresh = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
    yield "InitProducerId", 22, 4, {"transactional_id": None, **fresh}
    yield "InitProducerId of a transaction", 22, 4, {"transactional_id": "x-mine", **fresh, "transaction_timeout": -1}
    partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    topics = [{"topic": name, "partitions": partitions} for name in names]
    yield "OffsetForLeaderEpoch", 23, 4, {"replica_id": -1, "topics": topics}
    for some in (["mine"], ["mine", "theirs"], names):
        added = [{"name": name, "partitions": [0]} for name in some]
        body = {"v3_and_below_transactional_id": "x-mine", "v3_and_below_producer_id": 4711}
        body |= {"v3_and_below_producer_epoch": 0, "v3_and_below_topics": added, "transactional_id": "x-mine"}
        yield f"AddPartitionsToTxn of {some}", 24, 3, {**body, **producer, "topics": added}
    added = [{"name": "mine", "partitions": [0]}]
    body = {"transactional_id": "x-mine", **producer, "verify_only": False, "topics": added}
    yield "AddPartitionsToTxn as a broker", 24, 4, {"transactions": [body]}
    for group in groups[:2]:
        yield f"AddOffsetsToTxn of {group}", 25, 3, {"transactional_id": "x-mine", "group_id": group, **producer}
        body = {"transactional_id": "x-mine", "group_id": group, **producer, "topics": list(map(offset_of, names))}
        if group == "g-mine":
            yield "TxnOffsetCommit", 28, 3, {**body, "generation_id": 7, "member_id": "nobody"}
    yield "EndTxn", 26, 3, {"transactional_id": "x-mine", **producer, "committed": True}
    marker: Any = {"producer_id": 4711, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    marker |= {"topics": [{"name": "nowhere", "partition_indexes": [0]}]}
    yield "WriteTxnMarkers", 27, 1, {"markers": [marker]}
    yield "DescribeAcls", DESCRIBE_ACLS, 3, {**ANYTHING, "host_filter": "10.0.0.1"}
    yield "CreateAcls", CREATE_ACLS, 3, {"creations": [{**rule(CLUSTER, "other", LITERAL, 8, ALLOW)}]}
    yield "DeleteAcls", DELETE_ACLS, 3, {"filters": [{**ANYTHING, "host_filter": "10.0.0.1"}]}
    resources: list[tuple[int, str]] = [(2, "mine"), (2, "theirs"), (4, "1"), (8, "1"), (32, "g-mine")]
    keys = ["retention.ms", "num.partitions", "consumer.session.timeout.ms"]
    described = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name in resources]
    yield "DescribeConfigs", 32, 4, {"resources": described}
    for kind, name in (*resources, (4, "")):
        body = {"resources": [{"resource_type": kind, "resource_name": name, "configs": []}], "validate_only": True}
        if (kind, name) != (4, ""):  # which would take away what Kafka's feature ELR has set there
            yield f"AlterConfigs of {kind} {name}", 33, 2, body
        yield f"IncrementalAlterConfigs of {kind} {name}", 44, 1, body
    moved = [{"path": "/nowhere", "topics": [{"name": "mine", "partitions": [0]}]}]
    yield "AlterReplicaLogDirs", 34, 2, {"dirs": moved}
    yield "DescribeLogDirs", 35, 4, {"topics": [{"topic": "mine", "partitions": [0]}]}
    more = [{"name": name, "count": 2} for name in names]
    yield "CreatePartitions", 37, 3, {"topics": more, "timeout": 5000, "validate_only": True}
    yield "DeleteGroups", 42, 2, {"groups_names": ["g-nobody", "x"]}
    elected = [{"topic": "mine", "partitions": [0]}]
    yield "ElectLeaders", 43, 2, {"election_type": 0, "topic_partitions": elected, "timeout": 5000}
    cancelled = [{"name": "mine", "partitions": [{"partition_index": 0, "replicas": None}]}]
    yield "AlterPartitionReassignments", 45, 0, {"topics": cancelled, "timeout": 5000}
    yield "ListPartitionReassignments", 46, 0, {"topics": None, "timeout": 5000}
    topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("theirs", "nowhere")]
    yield "OffsetDelete", 47, 0, {"group_id": "g-nobody", "topics": topics}
    yield "UpdateFeatures", 57, 1, {"feature_updates": [], "validate_only": True, "timeout": 5000}
    yield "DescribeCluster", 60, 0, {"include_cluster_authorized_operations": True}
    topics = [{"name": name, "partition_indexes": [0]} for name in names]
    yield "DescribeProducers", 61, 0, {"topics": topics}
    yield "UnregisterBroker", 64, 0, {"broker_id": 4711}
    yield "DescribeTransactions", 65, 0, {"transactional_ids": transactional_ids}
    yield "ListTransactions", 66, 1, {"duration_filter": -1}
    body = {"group_id": "g-fresh", "member_id": "nobody", "member_epoch": 7, "rebalance_timeout": 60_000}
    yield "ConsumerGroupHeartbeat", 68, 0, {**body, "subscribed_topic_names": ["mine"]}
    yield "ConsumerGroupHeartbeat of two", 68, 0, {**body, "subscribed_topic_names": ["mine", "theirs"]}
    described = {"include_authorized_operations": True}
    yield "ConsumerGroupDescribe", 69, 0, {**described, "group_ids": groups}
    yield "ListConfigResources", 74, 1, {"resource_types": [2]}
    yield "DescribeTopicPartitions", 75, 0, {"topics": named, "response_partition_limit": 10}
    yield "DescribeTopicPartitions of all", 75, 0, {"topics": [], "response_partition_limit": 1000}
    yield from share_requests(names)
    yield from identity_requests()


def identity_requests() -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Tokens, quotas and users: on a listener without a login nobody has tokens."""
    mine, theirs = ({"principal_type": "User", "principal_name": name} for name in ("mine", "theirs"))
    body = {"owner_principal_type": "User", "owner_principal_name": "theirs", "renewers": [mine], "max_lifetime": -1}
    yield "CreateDelegationToken", 38, 3, body
    yield "RenewDelegationToken", 39, 2, {"hmac": b"made up", "renew_period": -1}
    yield "ExpireDelegationToken", 40, 2, {"hmac": b"made up", "expiry_time_period": -1}
    for owners in (None, [], [mine, theirs]):
        yield f"DescribeDelegationToken of {owners}", 41, 3, {"owners": owners}
    for strict in (False, True):
        filters = [{"entity_type": "user", "match_type": 0, "match": "mine"}]
        yield f"DescribeClientQuotas strict={strict}", 48, 1, {"components": filters, "strict": strict}
    entity = [{"entity_type": "user", "entity_name": "mine"}]
    quota = [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]
    body = {"entries": [{"entity": entity, "ops": quota}], "validate_only": True}
    yield "AlterClientQuotas", 49, 1, body
    yield "DescribeUserScramCredentials", 50, 0, {"users": [{"name": "mine"}]}  # all, and Kafka answers no denial
    deletions = [{"name": name, "mechanism": 1} for name in ("mine", "theirs")]
    yield "AlterUserScramCredentials", 51, 0, {"deletions": deletions, "upsertions": []}


def share_requests(names: list[str]) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """Every API of share groups for clients: g-shared is one, with state of two topics."""
    groups = ["g-shared", "g-mine", "g-nobody"]
    body = {"group_id": "g-fresh", "member_id": "nobody", "member_epoch": 7}
    yield "ShareGroupHeartbeat", 76, 1, {**body, "subscribed_topic_names": ["mine"]}
    yield "ShareGroupHeartbeat of two", 76, 1, {**body, "subscribed_topic_names": ["mine", "theirs"]}
    yield "ShareGroupDescribe", 77, 1, {"include_authorized_operations": True, "group_ids": groups}
    topics: Any = [{"topic_name": name, "partitions": [0]} for name in names]
    for asked in (None, topics):
        described = [{"group_id": group, "topics": asked} for group in groups]
        yield f"DescribeShareGroupOffsets of {'all' if asked is None else 'some'}", 90, 1, {"groups": described}
    starts = [{"partition_index": 0, "start_offset": 1}]
    topics = [{"topic_name": name, "partitions": starts} for name in names]
    yield "AlterShareGroupOffsets", 91, 0, {"group_id": "g-shared", "topics": topics}
    yield "DeleteShareGroupOffsets", 92, 0, {"group_id": "g-nobody", "topics": [{"topic_name": name} for name in names]}
    for group in groups:
        member = {"group_id": group, "member_id": "nobody", "share_session_epoch": 7, "topics": []}
        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "max_records": 1, "batch_size": 1}
        yield f"ShareFetch of {group}", 78, 1, {**member, **limits, "forgotten_topics_data": []}
        yield f"ShareAcknowledge of {group}", 79, 1, member
    states = [{"topic_id": NOWHERE, "partitions": [{"partition": 0}]}]
    for name, key in STATE_APIS.items():
        yield name, key, 0, {"group_id": "g-shared", "topics": states}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Barnabas and Apache Kafka, both with an authorizer."""
    with (
        Barnabas(tmp_path_factory.mktemp("judging"), SETTINGS) as ours,
        KafkaKRaft(tmp_path_factory.mktemp("judging-kafka"), SETTINGS) as theirs,
    ):
        both = Side(ours.bootstrap), Side(theirs.bootstrap)
        yield both
        for side in both:
            side.admin.socket.close()
            side.client.socket.close()
        assert ours.alive, ours.tail()


def test_every_api_answers_the_same_under_random_acls(sides: tuple[Side, Side]) -> None:
    chance = random.Random(18)
    differences = []
    for number in range(SETS):
        rules = [] if number == 0 else random_rules(chance)
        for side in sides:
            side.make("victim")
            side.judge_by(rules)
        for ours, theirs in zip(*map(requests, sides), strict=True):
            name, key, version, _ = ours
            mine, real = (side.ask(key, version, body) for side, (*_, body) in zip(sides, (ours, theirs), strict=True))
            mine, real = (without(each, ON_PURPOSE.get(name, "")) for each in (mine, real))
            if name == "AlterShareGroupOffsets":
                mine, real = without_ids(mine), without_ids(real)
            if mine != real:
                differences.append({"request": name, "rules": rules, "Barnabas": mine, "Kafka": real})
    names = {difference["request"] for difference in differences}
    first = [next(each for each in differences if each["request"] == name) for name in sorted(names)]
    assert not differences, f"{len(differences)} differ:\n{pprint.pformat(first, width=180, compact=True)}"


def test_every_api_for_clients_is_asked_for() -> None:
    made_up: Any = SimpleNamespace(ids={"mine": NOWHERE, "theirs": NOWHERE})
    asked = {key for _, key, _, _ in requests(made_up)}
    for_clients = {api.key.value for api in APIS if api.callers is Callers.ANYBODY}
    assert for_clients - asked == NOT_ASKED.keys(), "an API without a request, or one that is asked for after all"
