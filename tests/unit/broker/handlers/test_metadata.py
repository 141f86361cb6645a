"""Metadata and DescribeTopicPartitions: what callers on a listener are told of a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from kio.schema.metadata.v13.request import MetadataRequestTopic

from barnabas.broker.handlers import metadata as handler
from barnabas.broker.handlers.metadata import MANY, describe_topic_partitions, metadata
from barnabas.machines.controller.image import Endpoint
from barnabas.model.errors import ApiError, ErrorCode, InvalidReplicationFactor, NotController, TopicAlreadyExists
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages.metadata import NOT_ASKED, MetadataRequest, MetadataResponse
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER, ClusterOf, telling_broker, topic_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.controller.image import TopicImage
    from barnabas.machines.controller.requests import TopicToCreate

TWO_TOPICS = ClusterOf(leaders={"b": (1, 1), "a": (1,)})


def request(*topics: str | UUID, everything: bool = False, create: bool = False, **options: bool) -> MetadataRequest:
    named: Any = tuple(
        zero(MetadataRequestTopic, **({"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}))
        for topic in topics
    )
    return MetadataRequest(
        topics=None if everything else named,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=options.pop("topic_operations", False),
        **options,
    )


def answer(broker: BrokerContext, asked: MetadataRequest) -> MetadataResponse:
    response = metadata(broker, asked, CALLER, 13)
    assert isinstance(response, MetadataResponse)
    return response


def topics_in(response: MetadataResponse) -> list[tuple[str | None, ErrorCode, int]]:
    return [(topic.name, topic.error_code, len(topic.partitions)) for topic in response.topics]


class TestTopics:
    def test_all_of_them(self) -> None:
        response = answer(telling_broker(TWO_TOPICS), request(everything=True))
        assert sorted(topics_in(response)) == [("a", ErrorCode.none, 1), ("b", ErrorCode.none, 2)]

    def test_none_of_them(self) -> None:
        assert topics_in(answer(telling_broker(TWO_TOPICS), request())) == []

    def test_by_name_each_once(self) -> None:
        response = answer(telling_broker(TWO_TOPICS), request("b", "a", "b"))
        assert topics_in(response) == [("b", ErrorCode.none, 2), ("a", ErrorCode.none, 1)]
        assert response.topics[0].topic_id == topic_id(0)

    def test_by_id_where_names_are_not_looked_at(self) -> None:
        response = answer(telling_broker(TWO_TOPICS), request(topic_id(1), UUID(int=7), "b"))
        assert topics_in(response) == [(None, ErrorCode.unknown_topic_id, 0), ("a", ErrorCode.none, 1)]
        assert response.topics[0].topic_id == UUID(int=7)

    def test_unknown_and_impossible_names(self) -> None:
        response = answer(telling_broker(TWO_TOPICS), request("c", "c c", ""))
        assert topics_in(response) == [
            ("c", ErrorCode.unknown_topic_or_partition, 0),
            ("c c", ErrorCode.invalid_topic_exception, 0),
            ("", ErrorCode.invalid_topic_exception, 0),
        ]

    def test_internal_topics_are_marked(self) -> None:
        broker = telling_broker(ClusterOf(leaders={"__consumer_offsets": (1,), "a": (1,)}))
        response = answer(broker, request("__consumer_offsets", "a", "__transaction_state"))
        assert [topic.is_internal for topic in response.topics] == [True, False, True]

    def test_a_partition_with_its_leader_and_replicas(self) -> None:
        broker = telling_broker(ClusterOf({1: ("PLAINTEXT",), 2: ("PLAINTEXT",)}, {"a": (2,)}, replicas=(2, 1, 3)))
        (partition,) = answer(broker, request("a")).topics[0].partitions
        assert (partition.error_code, partition.partition_index, partition.leader_id) == (ErrorCode.none, 0, 2)
        assert (partition.leader_epoch, partition.replica_nodes, partition.isr_nodes) == (3, (2, 1, 3), (2, 1, 3))
        assert partition.offline_replicas == (3,)

    def test_a_replica_whose_disk_failed_is_offline(self) -> None:
        both: dict[int, tuple[str, ...]] = {1: ("PLAINTEXT",), 2: ("PLAINTEXT",)}
        broker = telling_broker(ClusterOf(both, {"a": (2, 2)}, replicas=(2, 1)))
        broker.metadata.replace(replace(broker.metadata.image, failed={1: frozenset({("a", 0)})}))
        first, second = answer(broker, request("a")).topics[0].partitions
        assert (first.offline_replicas, second.offline_replicas) == ((1,), ())

    @pytest.mark.parametrize("everything", [True, False])
    def test_a_broker_names_itself_while_none_is_registered(self, everything: bool) -> None:
        """librdkafka forgets brokers that are not named: without any it would never ask again."""
        membership = SimpleNamespace(endpoint={"PLAINTEXT": Endpoint("here", 9092)}.get)
        broker = telling_broker(ClusterOf({}, {"a": (1,)}), membership=membership)
        response = answer(broker, request(*([] if everything else ["a"]), everything=everything))
        assert [(each.node_id, each.host, each.port, each.rack) for each in response.brokers] == [
            (1, "here", 9092, None)
        ]
        (partition,) = response.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.leader_not_available, -1)

    @pytest.mark.parametrize(
        ("leader", "error"), [(2, ErrorCode.listener_not_found), (3, ErrorCode.leader_not_available)]
    )
    def test_a_leader_that_the_caller_cannot_reach(self, leader: int, error: ErrorCode) -> None:
        broker = telling_broker(ClusterOf({1: ("PLAINTEXT",), 2: ("INTERNAL",)}, {"a": (leader,)}))
        (partition,) = answer(broker, request("a")).topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (error, -1)

    def test_operations_are_told_when_asked_for(self) -> None:
        broker = telling_broker(TWO_TOPICS)
        response = answer(broker, request("a", "c", topic_operations=True))
        assert [topic.topic_authorized_operations for topic in response.topics] == [3576, 3576]
        assert answer(broker, request("a")).topics[0].topic_authorized_operations == NOT_ASKED


class TestCluster:
    def test_brokers_are_told_as_the_callers_listener_advertises_them(self) -> None:
        broker = telling_broker(
            ClusterOf({2: ("PLAINTEXT", "INTERNAL"), 1: ("PLAINTEXT",), 3: ("INTERNAL",)}, controller_id=2)
        )
        response = answer(broker, request())
        assert [(node.node_id, node.host, node.port, node.rack) for node in response.brokers] == [
            (1, "plaintext-1", 9001, "rack-1"),
            (2, "plaintext-2", 9002, "rack-2"),
        ]
        assert (response.cluster_id, response.controller_id) == ("a-cluster", 2)

    def test_operations_are_told_when_asked_for(self) -> None:
        broker = telling_broker(TWO_TOPICS)
        asked = request(include_cluster_authorized_operations=True)
        assert answer(broker, asked).cluster_authorized_operations == 8096
        assert answer(broker, request()).cluster_authorized_operations == NOT_ASKED


class Creating:
    """A controller that makes topics in an image, or refuses; nothing is to be waited for then."""

    async def settled(self) -> None:
        """There are no logs."""

    def __init__(self, refusal: ApiError | None = None, *, unavailable: bool = False) -> None:
        self.broker: BrokerContext
        self.asked: list[str] = []
        self._refusal = refusal
        self._unavailable = unavailable

    async def create_topics(self, topics: Sequence[TopicToCreate]) -> dict[str, TopicImage | ApiError]:
        self.asked += [topic.name for topic in topics]
        if self._unavailable:
            raise NotController("somebody else is")
        if self._refusal is not None:
            return {topic.name: self._refusal for topic in topics}
        cluster = ClusterOf(leaders={topic.name: (1,) for topic in topics})
        self.broker.metadata.replace(cluster.image())
        return dict(self.broker.metadata.image.topics)


def creating(controller: Creating, properties: dict[str, str] | None = None) -> BrokerContext:
    controller.broker = telling_broker(ClusterOf(), properties, controller_link=controller, replicas=controller)
    return controller.broker


async def answer_after_creation(broker: BrokerContext, asked: MetadataRequest) -> MetadataResponse:
    response = metadata(broker, asked, CALLER, 13)
    assert not isinstance(response, MetadataResponse)
    return await response


class TestManyTopics:
    """More topics than are told at once: the same bytes, in several turns of the event loop."""

    CLUSTER = ClusterOf(leaders={f"topic-{number}": (1, 9) for number in range(MANY + 1)})

    async def _in_parts(self, broker: BrokerContext, asked: MetadataRequest, version: int) -> tuple[bytes, int]:
        response = metadata(broker, asked, CALLER, version)
        assert not isinstance(response, MetadataResponse)
        task, turns = asyncio.ensure_future(response), 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return codec.encode(ApiKey.METADATA, version, 7, await task), turns

    @pytest.mark.parametrize("version", range(14))
    async def test_they_are_told_a_part_at_a_time(self, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        broker = telling_broker(self.CLUSTER)
        some = request("topic-3", *(f"unknown-{number}" for number in range(MANY)))
        for asked in (request(everything=True), some):
            data, turns = await self._in_parts(broker, asked, version)
            assert turns > 1
            with monkeypatch.context() as patch:
                patch.setattr(handler, "MANY", 10_000)
                assert data == codec.encode(ApiKey.METADATA, version, 7, answer(broker, asked))

    async def test_what_was_told_is_kept_until_the_cluster_changes(self) -> None:
        broker = telling_broker(self.CLUSTER)

        first, _ = await self._in_parts(broker, request(everything=True), 12)
        again, turns = await self._in_parts(broker, request(everything=True), 12)
        assert (again, turns) == (first, 1)
        image = broker.metadata.image
        broker.metadata.replace(replace(image, topics={"topic-0": image.topics["topic-0"], **image.topics}))
        _, turns = await self._in_parts(broker, request(everything=True), 12)
        assert turns > 1


class TestAutoCreation:
    async def test_a_missing_topic_is_made_and_told(self) -> None:
        broker = creating(controller := Creating())
        assert topics_in(await answer_after_creation(broker, request("new", "no way", create=True))) == [
            ("new", ErrorCode.none, 1),
            ("no way", ErrorCode.invalid_topic_exception, 0),
        ]
        assert controller.asked == ["new"]

    def test_not_when_the_request_forbids_it(self) -> None:
        broker = creating(Creating())
        assert topics_in(answer(broker, request("new"))) == [("new", ErrorCode.unknown_topic_or_partition, 0)]

    def test_not_when_the_broker_forbids_it(self) -> None:
        broker = creating(Creating(), {"auto.create.topics.enable": "false"})
        assert topics_in(answer(broker, request("new", create=True))) == [
            ("new", ErrorCode.unknown_topic_or_partition, 0)
        ]

    def test_not_for_everything_or_for_ids(self) -> None:
        broker = creating(Creating())
        assert topics_in(answer(broker, request(everything=True, create=True))) == []
        assert topics_in(answer(broker, request(UUID(int=7), "new", create=True)))[0][1] is ErrorCode.unknown_topic_id

    def test_not_for_the_brokers_own_topics(self) -> None:
        response = answer(creating(Creating()), request("__consumer_offsets", create=True))
        assert topics_in(response) == [("__consumer_offsets", ErrorCode.unknown_topic_or_partition, 0)]

    @pytest.mark.parametrize(
        ("refusal", "error"),
        [
            (InvalidReplicationFactor("no"), ErrorCode.invalid_replication_factor),
            (TopicAlreadyExists("just now"), ErrorCode.leader_not_available),
        ],
    )
    async def test_a_refusal_is_told(self, refusal: ApiError, error: ErrorCode) -> None:
        assert topics_in(await answer_after_creation(creating(Creating(refusal)), request("new", create=True))) == [
            ("new", error, 0)
        ]

    async def test_without_a_controller_the_client_comes_again(self) -> None:
        response = await answer_after_creation(creating(Creating(unavailable=True)), request("new", create=True))
        assert topics_in(response) == [("new", ErrorCode.unknown_topic_or_partition, 0)]


async def describe(
    broker: BrokerContext, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    asked = zero(
        DescribeTopicPartitionsRequest,
        topics=tuple(zero(TopicRequest, name=name) for name in names),
        response_partition_limit=limit,
        cursor=None if cursor is None else zero(Cursor, topic_name=cursor[0], partition_index=cursor[1]),
    )
    return await describe_topic_partitions(broker, asked, CALLER)


def described(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics]


def next_page(response: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


class TestDescribeTopicPartitions:
    @pytest.fixture
    def broker(self) -> BrokerContext:
        return telling_broker(ClusterOf(leaders={"b": (1,) * 4, "a": (1,) * 2, "c": (1,)}))

    async def test_topics_come_in_the_order_of_their_names(self, broker: BrokerContext) -> None:
        response = await describe(broker)
        assert described(response) == [("a", [0, 1]), ("b", [0, 1, 2, 3]), ("c", [0])]
        assert next_page(response) is None
        assert {topic.topic_authorized_operations for topic in response.topics} == {3576}

    async def test_missing_topics_are_told_among_them(self, broker: BrokerContext) -> None:
        response = await describe(broker, "c", "aa", "a a")
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a a", ErrorCode.invalid_topic_exception),
            ("aa", ErrorCode.unknown_topic_or_partition),
            ("c", ErrorCode.none),
        ]

    async def test_pages_join_to_the_whole(self, broker: BrokerContext) -> None:
        for limit in range(1, 8):
            whole: list[tuple[str | None, int]] = []
            cursor: tuple[str, int] | None = None
            for _ in range(10):
                response = await describe(broker, limit=limit, cursor=cursor)
                page = [(name, index) for name, indexes in described(response) for index in indexes]
                assert len(page) <= limit
                whole += page
                cursor = next_page(response)
                if cursor is None:
                    break
            assert whole == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("b", 3), ("c", 0)]

    async def test_a_page_that_ends_with_a_topic_points_at_the_next(self, broker: BrokerContext) -> None:
        response = await describe(broker, limit=2)
        assert (described(response), next_page(response)) == ([("a", [0, 1])], ("b", 0))

    async def test_the_brokers_limit_is_kept(self) -> None:
        cluster = ClusterOf(leaders={"a": (1,) * 4})
        response = await describe(telling_broker(cluster, {"max.request.partition.size.limit": "3"}))
        assert (described(response), next_page(response)) == ([("a", [0, 1, 2])], ("a", 3))

    async def test_at_least_one_partition_is_told(self, broker: BrokerContext) -> None:
        assert described(await describe(broker, limit=0)) == [("a", [0])]

    async def test_a_cursor_beyond_its_topic_goes_on_with_the_next(self, broker: BrokerContext) -> None:
        assert described(await describe(broker, "a", "c", cursor=("a", 7))) == [("a", []), ("c", [0])]

    async def test_a_cursor_at_a_deleted_topic_goes_on_after_it(self, broker: BrokerContext) -> None:
        assert described(await describe(broker, cursor=("bb", 3))) == [("c", [0])]

    @pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
    async def test_an_impossible_cursor_is_refused(self, broker: BrokerContext, cursor: tuple[str, int]) -> None:
        response = await describe(broker, "a", cursor=cursor)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [("a", ErrorCode.invalid_request)]
