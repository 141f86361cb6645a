"""Requests of every version become the newest, and newest responses become every version."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from io import BytesIO
from types import UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.delete_topics.v6.response import DeletableTopicResult, DeleteTopicsResponse
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.metadata.v13.response import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from barnabas.broker.serving.registry import APIS, Api
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.groups import offset_commit, offset_fetch
from barnabas.protocol.messages.metadata import NOT_ASKED, MetadataRequest, MetadataResponse
from barnabas.protocol.wire import codec, shapes
from barnabas.protocol.wire.conversion import zero

NO_TIME: Any = timedelta(0)
EVERY_API = pytest.mark.parametrize(
    "api", [api for api in APIS if not api.raw and not api.format.inter_broker], ids=lambda api: api.key.name
)


def decoded(key: ApiKey, version: int, newest: int, request: Any) -> Any:
    """The request after a trip over the wire."""
    buffer = BytesIO()
    entity_writer(type(request))(buffer, request)
    return codec.decode(key, version, newest, memoryview(buffer.getvalue()), 0)


def encoded(key: ApiKey, version: int, response: Any) -> Any:
    """What a client of this version reads."""
    frame = codec.encode(key, version, 7, response)
    schema = load_response_schema(key, version)
    header, start = entity_reader(schema.__header_schema__)(memoryview(frame)[4:], 0)
    assert header.correlation_id == 7
    message, size = entity_reader(schema)(memoryview(frame)[4:], start)
    assert start + size == len(frame) - 4
    return message


def filled(message_class: type) -> Any:
    """A message with one element in each of its arrays, and a word where there may be none."""
    values: dict[str, object] = {}
    for field in fields(message_class):
        kind = field.type
        if get_origin(kind) is UnionType:
            kind = get_args(kind)[0]
        if get_origin(kind) is tuple:
            (element, _) = get_args(kind)
            values[field.name] = (filled(element),) if is_dataclass(element) and isinstance(element, type) else ()
        elif field.metadata.get("kafka_type") == "string":
            values[field.name] = "a"
        elif field.metadata.get("kafka_type") == "records" and get_origin(field.type) is not UnionType:
            values[field.name] = b""
    return zero(message_class, **values)


@EVERY_API
def test_every_request_reaches_its_handler_in_the_newest_version(api: Api) -> None:
    for version in range(api.oldest, api.newest + 1):
        request = filled(load_request_schema(api.key, version))
        message = decoded(api.key, version, api.newest, request)
        assert isinstance(message, codec.handled_request_class(api.key, api.newest)), f"version {version}"


@EVERY_API
def test_every_newest_response_is_written_in_every_version(api: Api) -> None:
    response = filled(codec.handled_response_class(api.key, api.newest))
    for version in range(api.oldest, api.newest + 1):
        written = encoded(api.key, version, response)
        assert type(written) is load_response_schema(api.key, version), f"version {version}"


class TestMetadata:
    def request(self, version: int, **values: object) -> MetadataRequest:
        old = zero(load_request_schema(ApiKey.METADATA, version), **values)
        message = decoded(ApiKey.METADATA, version, 13, old)
        assert isinstance(message, MetadataRequest)
        return message

    def test_an_empty_list_means_all_topics_in_version_0_only(self) -> None:
        assert self.request(0, topics=()).topics is None
        assert self.request(1, topics=()).topics == ()
        assert self.request(1, topics=None).topics is None

    def test_old_versions_create_topics_and_ask_for_no_operations(self) -> None:
        request = self.request(3, topics=())
        assert request.allow_auto_topic_creation
        assert not request.include_cluster_authorized_operations
        assert not request.include_topic_authorized_operations

    def test_versions_8_to_10_may_ask_for_cluster_operations(self) -> None:
        assert self.request(
            10, topics=(), include_cluster_authorized_operations=True
        ).include_cluster_authorized_operations
        assert not self.request(11, topics=()).include_cluster_authorized_operations

    @pytest.mark.parametrize("version", [10, 11])
    def test_topic_ids_are_refused_before_version_12(self, version: int) -> None:
        topic_class = load_request_schema(ApiKey.METADATA, version).__dataclass_fields__["topics"].type
        topic = get_args(get_args(topic_class)[0])[0]
        with pytest.raises(InvalidFrame, match="must name its topics"):
            self.request(version, topics=(zero(topic, name="a", topic_id=UUID(int=5)),))
        with pytest.raises(InvalidFrame, match="must name its topics"):
            self.request(version, topics=(zero(topic, name=None),))

    def response(self, error: ErrorCode = ErrorCode.none, *, replicas: tuple[int, ...] = (1, 2)) -> MetadataResponse:
        partition: Any = zero(
            MetadataResponsePartition, error_code=error, leader_id=1, replica_nodes=replicas, isr_nodes=replicas
        )
        topic: Any = zero(MetadataResponseTopic, name="a", topic_id=UUID(int=5), partitions=(partition,))
        broker: Any = zero(MetadataResponseBroker, node_id=1, host="h", port=9)
        return MetadataResponse(throttle_time=NO_TIME, brokers=(broker,), topics=(topic,), error_code=ErrorCode.none)

    def partition(self, version: int, response: MetadataResponse) -> Any:
        return encoded(ApiKey.METADATA, version, response).topics[0].partitions[0]

    @pytest.mark.parametrize(
        ("version", "error"), [(5, ErrorCode.leader_not_available), (6, ErrorCode.listener_not_found)]
    )
    def test_a_missing_listener_has_a_code_from_version_6_on(self, version: int, error: ErrorCode) -> None:
        assert self.partition(version, self.response(ErrorCode.listener_not_found)).error_code is error

    def test_version_0_leaves_out_replicas_that_are_not_there(self) -> None:
        partition = self.partition(0, self.response())
        assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
        assert partition.error_code is ErrorCode.replica_not_available
        assert self.partition(0, self.response(replicas=(1,))).error_code is ErrorCode.none
        assert self.partition(1, self.response()).replica_nodes == (1, 2)

    def test_cluster_operations_are_told_where_there_is_room(self) -> None:
        response = replace(self.response(), cluster_authorized_operations=i32(7))
        assert encoded(ApiKey.METADATA, 10, response).cluster_authorized_operations == 7
        assert encoded(ApiKey.METADATA, 10, self.response()).cluster_authorized_operations == NOT_ASKED
        assert not hasattr(encoded(ApiKey.METADATA, 13, response), "cluster_authorized_operations")


class TestListOffsets:
    @pytest.mark.parametrize(
        ("timestamp", "since"), [(-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9), (-6, 11), (0, 1), (1_700_000_000_000, 1)]
    )
    def test_special_timestamps_mean_something_from_their_version_on(self, timestamp: int, since: int) -> None:
        for version in range(1, 12):
            schema: Any = load_request_schema(ApiKey.LIST_OFFSETS, version)
            topic = get_args(schema.__dataclass_fields__["topics"].type)[0]
            partition = get_args(topic.__dataclass_fields__["partitions"].type)[0]
            parts = (zero(partition, partition_index=0, timestamp=5), zero(partition, timestamp=timestamp))
            request = zero(schema, replica_id=-1, topics=(zero(topic, name="a", partitions=parts),))
            message = decoded(ApiKey.LIST_OFFSETS, version, 11, request)
            expected = timestamp if version >= since else shapes.NEVER
            assert [part.timestamp for part in message.topics[0].partitions] == [5, expected]

    @pytest.mark.parametrize(
        ("version", "error"), [(4, ErrorCode.leader_not_available), (5, ErrorCode.offset_not_available)]
    )
    def test_an_unknown_high_watermark_has_a_code_from_version_5_on(self, version: int, error: ErrorCode) -> None:
        refused: Any = zero(ListOffsetsPartitionResponse, error_code=ErrorCode.offset_not_available)
        topic: Any = zero(ListOffsetsTopicResponse, name="a", partitions=(refused, zero(ListOffsetsPartitionResponse)))
        response = ListOffsetsResponse(throttle_time=NO_TIME, topics=(topic,))
        partitions = encoded(ApiKey.LIST_OFFSETS, version, response).topics[0].partitions
        assert [part.error_code for part in partitions] == [error, ErrorCode.none]


class TestDeleteTopics:
    def test_names_become_topics(self) -> None:
        request = zero(
            load_request_schema(ApiKey.DELETE_TOPICS, 5), topic_names=("a", "b"), timeout=timedelta(seconds=3)
        )
        message = decoded(ApiKey.DELETE_TOPICS, 5, 6, request)
        assert [(topic.name, topic.topic_id) for topic in message.topics] == [("a", None), ("b", None)]
        assert message.timeout == timedelta(seconds=3)

    @pytest.mark.parametrize(
        ("version", "error"), [(2, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)]
    )
    def test_disabled_deletion_has_a_code_from_version_3_on(self, version: int, error: ErrorCode) -> None:
        refused: Any = zero(DeletableTopicResult, name="a", error_code=ErrorCode.topic_deletion_disabled)
        fine: Any = zero(DeletableTopicResult, name="b")
        response = DeleteTopicsResponse(throttle_time=NO_TIME, responses=(refused, fine))
        results = encoded(ApiKey.DELETE_TOPICS, version, response).responses
        assert [result.error_code for result in results] == [error, ErrorCode.none]


class TestFindCoordinator:
    @pytest.mark.parametrize(("version", "key_type"), [(0, 0), (1, 1), (3, 1)])
    def test_one_key_becomes_a_list_of_keys(self, version: int, key_type: int) -> None:
        request = zero(load_request_schema(ApiKey.FIND_COORDINATOR, version), key="g", key_type=key_type)
        message = decoded(ApiKey.FIND_COORDINATOR, version, 6, request)
        assert (message.key_type, message.coordinator_keys) == (key_type, ("g",))

    @pytest.mark.parametrize("version", [0, 1, 3])
    def test_one_coordinator_is_told_alone(self, version: int) -> None:
        coordinator: Any = zero(
            Coordinator,
            key="g",
            node_id=-1,
            port=-1,
            error_code=ErrorCode.coordinator_not_available,
            error_message="none yet",
        )
        response = FindCoordinatorResponse(throttle_time=NO_TIME, coordinators=(coordinator,))
        message = encoded(ApiKey.FIND_COORDINATOR, version, response)
        assert (message.error_code, message.node_id) == (ErrorCode.coordinator_not_available, -1)
        assert version == 0 or message.error_message == "none yet"


class TestGroupOffsets:
    def test_topics_have_what_their_version_names_them_by(self) -> None:
        for version in range(2, 10):
            (topic,) = self.commit(version).topics
            assert (topic.name, topic.topic_id) == ("a", None)
        request = filled(load_request_schema(ApiKey.OFFSET_COMMIT, 10))
        by_id = replace(request, topics=(replace(request.topics[0], topic_id=UUID(int=7)),))
        (topic,) = decoded(ApiKey.OFFSET_COMMIT, 10, 10, by_id).topics
        assert (topic.name, topic.topic_id) == ("", UUID(int=7))

    def test_a_retention_time_is_asked_for_in_versions_2_to_4_only(self) -> None:
        day = timedelta(days=1)
        assert [self.commit(version, retention_time=day).retention_time for version in (2, 3, 4)] == [day] * 3
        assert self.commit(5).retention_time == offset_commit.NO_RETENTION

    def commit(self, version: int, **values: object) -> Any:
        request = filled(load_request_schema(ApiKey.OFFSET_COMMIT, version))
        return decoded(ApiKey.OFFSET_COMMIT, version, 10, replace(request, **values))

    def test_one_group_is_fetched_up_to_version_7_and_many_after(self) -> None:
        for version in range(1, 11):
            request = filled(load_request_schema(ApiKey.OFFSET_FETCH, version))
            (group,) = decoded(ApiKey.OFFSET_FETCH, version, 10, request).groups
            assert group.group_id
            assert len(group.topics) == 1

    def test_an_error_of_the_only_group_is_the_error_of_the_response(self) -> None:
        group = offset_fetch.OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.not_coordinator)
        answer = encoded(ApiKey.OFFSET_FETCH, 7, offset_fetch.OffsetFetchResponse(groups=(group,)))
        assert answer.error_code is ErrorCode.not_coordinator


def test_up_to_version_2_one_member_leaves_and_its_error_is_that_of_the_response() -> None:
    request = filled(load_request_schema(ApiKey.LEAVE_GROUP, 2))
    (member,) = decoded(ApiKey.LEAVE_GROUP, 2, 5, request).members
    assert member.member_id == request.member_id
    response = filled(load_response_schema(ApiKey.LEAVE_GROUP, 5))
    failed = replace(response.members[0], error_code=ErrorCode.unknown_member_id)
    told = replace(response, error_code=ErrorCode.none, members=(failed,))
    assert encoded(ApiKey.LEAVE_GROUP, 2, told).error_code is ErrorCode.unknown_member_id
    assert encoded(ApiKey.LEAVE_GROUP, 3, told).error_code is ErrorCode.none


def test_nulls_that_an_older_version_does_not_know_become_empty() -> None:
    response = zero(load_response_schema(ApiKey.JOIN_GROUP, 9), protocol_name=None)
    assert encoded(ApiKey.JOIN_GROUP, 7, response).protocol_name is None
    assert encoded(ApiKey.JOIN_GROUP, 6, response).protocol_name == ""
