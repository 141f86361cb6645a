"""Faults on the wire: every API in its oldest and newest version, Produce and Fetch in all, and nothing half done."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.serving.registry import APIS, Api
from barnabas.model.errors import ErrorCode
from tests.support.group_wire import fetching
from tests.support.wire import Connection, batch, plain, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.testing import Kafka

PRODUCE, FETCH, METADATA, OFFSET_FETCH = 0, 1, 3, 9
CODE = ErrorCode.policy_violation
SILENT = {("DESCRIBE_LOG_DIRS", 1)}
"""Responses without a place for an error."""
VERSIONS = [
    pytest.param(api, version, id=f"{api.key.name}-v{version}")
    for api in APIS
    if not api.is_internal and api.only_with is None
    for version in (range(api.oldest, api.newest + 1) if api.key in (PRODUCE, FETCH) else {api.oldest, api.newest})
]


def everything(topic: str, topic_id: uuid.UUID) -> dict[str, Any]:
    """A request of any API that names one of everything."""
    named = {"topic_id": topic_id, "name": topic, "topic": topic}
    partition = {"partition_index": 0, "partition": 0, "partition_max_bytes": 1 << 20, "log_start_offset": -1}
    parts = {"partitions": [{**partition, "last_fetched_epoch": -1, "current_leader_epoch": -1}]}
    return {
        "topics": [{**named, **parts, "partition_indexes": [0], "count": 3}],
        "topic_names": [topic],
        "group_id": "g",
        "key": "g",
        "coordinator_keys": ["g"],
        "groups_names": ["g"],
        "group_ids": ["g"],
        "resources": [{"resource_type": 2, "resource_name": topic}],
        "session_epoch": -1,
        "max_wait": 0,
    }


def asked(api: Api, version: int, topic: str, topic_id: uuid.UUID) -> dict[str, Any]:
    values = everything(topic, topic_id)
    if api.key == PRODUCE:
        return producing(topic, topic_id)
    if api.key == OFFSET_FETCH:
        return fetching("g", {"name": topic, "topic_id": topic_id})
    if api.key.name == "DESCRIBE_GROUPS":
        return {"groups": ["g"]}
    if api.key.name == "DESCRIBE_SHARE_GROUP_OFFSETS":
        return {"groups": [{"group_id": "g", "topics": None}]}
    if api.key.name == "ALTER_CLIENT_QUOTAS":
        return {"entries": [{"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}]}
    if api.key.name in ("DESCRIBE_LOG_DIRS", "METADATA", "DELETE_TOPICS", "DESCRIBE_TOPIC_PARTITIONS"):
        by_id = {"topics": [{"topic_id": None, "name": topic, "topic": topic, "partitions": [0]}]}
        return {**by_id, "topic_names": [topic], "response_partition_limit": 10}
    if api.key.name == "ADD_PARTITIONS_TO_TXN":
        topics = [{"name": topic, "partitions": [0]}]
        return {"v3_and_below_topics": topics, "transactions": [{"transactional_id": "x", "topics": topics}]}
    if api.key.name == "WRITE_TXN_MARKERS":
        return {"markers": [{"topics": [{"name": topic, "partition_indexes": [0]}]}]}
    if api.key.name == "DESCRIBE_TRANSACTIONS":
        return {"transactional_ids": ["x"]}
    if api.key.name == "ALTER_REPLICA_LOG_DIRS":
        return {"dirs": [{"path": "/elsewhere", "topics": [{"name": topic, "partitions": [0]}]}]}
    if api.key.name == "ELECT_LEADERS":
        return {"topic_partitions": [{"topic": topic, "partitions": [0]}]}
    if api.key.name in ("CREATE_ACLS", "DELETE_ACLS"):
        rule = {"resource_name": topic, "principal": "User:u", "host": "*", "operation": 3, "permission_type": 3}
        return {"creations": [{**rule, "resource_type": 2}], "filters": [{"resource_type_filter": 2}]}
    if api.key.name == "ALTER_USER_SCRAM_CREDENTIALS":
        return {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": []}
    if api.key.name in ("SASL_AUTHENTICATE", "RENEW_DELEGATION_TOKEN", "EXPIRE_DELEGATION_TOKEN"):
        return {"auth_bytes": b"x", "hmac": b"x"}
    if api.key.name == "CREATE_TOPICS":
        return {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}]}
    return values


def producing(topic: str, topic_id: uuid.UUID, *, acks: int = 1) -> dict[str, Any]:
    data = [{"index": 0, "records": batch([b"x"])}]
    return {
        "acks": acks,
        "timeout": 5000,
        "topic_data": [{"name": topic, "topic_id": topic_id, "partition_data": data}],
    }


def id_of(kafka: Kafka, topic: str) -> uuid.UUID:
    with Connection(kafka.bootstrap_servers) as connection:
        (found,) = connection.ask(METADATA, 12, {"topics": [{"name": topic, "topic_id": None}]}).topics
    assert isinstance(found.topic_id, uuid.UUID)
    return found.topic_id


def codes(answer: Any) -> Iterator[int]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        for part in answer:
            yield from codes(part)
    elif isinstance(answer, dict):
        for name, value in answer.items():
            if name in ("error_code", "partition_error_code"):
                yield int(value)
            else:
                yield from codes(value)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_every_api_fails_as_it_is_told_to(kafka: Kafka, kafka_topic: str, api: Api, version: int) -> None:
    values = asked(api, version, kafka_topic, id_of(kafka, kafka_topic))
    with (
        kafka.faults.fail(api.key.name, "POLICY_VIOLATION") as fault,
        Connection(kafka.bootstrap_servers) as connection,
    ):
        found = set(codes(plain(connection.ask(api.key, version, values)))) - {0}
    assert fault.fired == 1
    assert found == (set() if (api.key.name, version) in SILENT else {CODE})


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_that_fails_stores_nothing(kafka: Kafka, kafka_topic: str, acks: int) -> None:
    topic_id = id_of(kafka, kafka_topic)
    with kafka.faults.fail("PRODUCE", CODE.value), Connection(kafka.bootstrap_servers) as connection:
        connection.ask(PRODUCE, 13, producing(kafka_topic, topic_id, acks=acks))
    assert kafka.records(kafka_topic) == []


def test_a_produce_without_acks_fails_by_the_end_of_its_connection(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.fail("PRODUCE", "POLICY_VIOLATION"), Connection(kafka.bootstrap_servers) as connection:
        connection.send_frame(request(PRODUCE, 12, 1, producing(kafka_topic, id_of(kafka, kafka_topic), acks=0)))
        assert connection.receive_frame() is None


@pytest.mark.parametrize(("when", "stored"), [("before", 0), ("after", 1)])
def test_a_connection_is_dropped_before_or_after_the_effect(
    kafka: Kafka, kafka_topic: str, when: Any, stored: int
) -> None:
    topic_id = id_of(kafka, kafka_topic)
    with kafka.faults.drop("PRODUCE", when=when) as fault, Connection(kafka.bootstrap_servers) as connection:
        connection.send_frame(request(PRODUCE, 13, 1, producing(kafka_topic, topic_id)))
        assert connection.receive_frame() is None
    assert fault.fired == 1
    assert len(kafka.records(kafka_topic)) == stored


def test_a_waiting_fetch_can_be_dropped_or_given_up(kafka: Kafka, kafka_topic: str) -> None:
    waiting = {**everything(kafka_topic, id_of(kafka, kafka_topic)), "max_wait": 50, "min_bytes": 1, "max_bytes": 1}
    with kafka.faults.drop("FETCH", when="after"), Connection(kafka.bootstrap_servers) as connection:
        connection.send_frame(request(FETCH, 17, 1, waiting))
        assert connection.receive_frame() is None
    held = kafka.faults.delay("FETCH", 3600, times=1), kafka.faults.delay("FETCH", 3600, when="after", times=1)
    for fault in held:
        with Connection(kafka.bootstrap_servers) as connection:
            connection.send_frame(request(FETCH, 17, 1, waiting))
            fault.wait()
    kafka.send(kafka_topic, "still served")
    assert kafka.values(kafka_topic) == ["still served"]


def test_a_session_goes_on_after_a_failed_fetch(kafka: Kafka, kafka_topic: str) -> None:
    full = {**everything(kafka_topic, id_of(kafka, kafka_topic)), "session_epoch": 0, "min_bytes": 0, "max_bytes": 99}
    rest = {"max_wait": 0, "max_bytes": 99}
    kafka.send(kafka_topic, "x")
    with Connection(kafka.bootstrap_servers) as connection:
        session = connection.ask(FETCH, 17, full).session_id
        with kafka.faults.fail("FETCH", "NOT_LEADER_OR_FOLLOWER", topic=kafka_topic, times=1) as fault:
            failed = connection.ask(FETCH, 17, {**rest, "session_id": session, "session_epoch": 1})
            assert (failed.error_code, failed.session_id) == (0, session)
            assert set(codes(plain(failed.responses))) == {ErrorCode.not_leader_or_follower}
        good = connection.ask(FETCH, 17, {**rest, "session_id": session, "session_epoch": 2})
        assert (good.error_code, set(codes(plain(good.responses)))) == (0, {0})
    assert fault.fired == 1


@pytest.mark.parametrize("code", ["FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH"])
def test_an_error_of_a_session_is_told_as_such(kafka: Kafka, kafka_topic: str, code: str) -> None:
    full = {**everything(kafka_topic, id_of(kafka, kafka_topic)), "session_epoch": 0}
    with kafka.faults.fail("FETCH", code), Connection(kafka.bootstrap_servers) as connection:
        answer = connection.ask(FETCH, 17, full)
    assert (answer.error_code.name.upper(), answer.responses) == (code, ())


def test_a_failing_metadata_still_names_the_brokers(kafka: Kafka, kafka_topic: str) -> None:
    with kafka.faults.fail("METADATA", "LEADER_NOT_AVAILABLE"), Connection(kafka.bootstrap_servers) as connection:
        answer = connection.ask(METADATA, 12, {"topics": None})
    assert [broker.port for broker in answer.brokers] == [kafka.broker.port]
    assert {topic.name: topic.error_code for topic in answer.topics}[kafka_topic] is ErrorCode.leader_not_available


def test_whoever_was_connected_before_a_leader_moved_is_told_once(kafka: Kafka, kafka_topic: str) -> None:
    values = producing(kafka_topic, id_of(kafka, kafka_topic))

    def result(connection: Connection) -> Any:
        return connection.ask(PRODUCE, 13, values).responses[0].partition_responses[0].error_code

    with Connection(kafka.bootstrap_servers) as before:
        assert result(before) is ErrorCode.none
        kafka.faults.move_leader(kafka_topic)
        with Connection(kafka.bootstrap_servers) as after:
            assert result(after) is ErrorCode.none
        assert [result(before), result(before)] == [ErrorCode.not_leader_or_follower, ErrorCode.none]
