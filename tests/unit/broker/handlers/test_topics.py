"""CreateTopics, DeleteTopics and CreatePartitions against a real controller, with Apache Kafka's answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from kio.schema.create_partitions.v3 import request as growing
from kio.schema.create_topics.v7 import request as creating
from kio.schema.delete_topics.v6 import request as deleting

from barnabas.broker.handlers.topics import create_partitions, create_topics, delete_topics
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER
from tests.support.parts import make_topic, running_parts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from kio.schema.create_topics.v7.response import CreatableTopicResult
    from kio.schema.delete_topics.v6.response import DeletableTopicResult

    from barnabas.broker.context import BrokerContext

T = TypeVar("T")


async def on_broker(directory: Path, use: Callable[[BrokerContext], Awaitable[T]], **properties: str) -> T:
    async def run() -> T:
        given = {name.replace("_", "."): text for name, text in properties.items()}
        async with running_parts(directory, given) as broker:
            return await use(broker)

    return await run()


def new_topic(name: str, partitions: int = -1, factor: int = -1, **more: Any) -> creating.CreatableTopic:
    made: creating.CreatableTopic = zero(
        creating.CreatableTopic, name=name, num_partitions=partitions, replication_factor=factor, **more
    )
    return made


def with_configs(name: str, **configs: str | None) -> creating.CreatableTopic:
    entries = [
        zero(creating.CreatableTopicConfig, name=key.replace("_", "."), value=text) for key, text in configs.items()
    ]
    return new_topic(name, configs=tuple(entries))


def assigned(name: str, *replicas: tuple[int, ...], first: int = 0) -> creating.CreatableTopic:
    entries = [
        zero(creating.CreatableReplicaAssignment, partition_index=index, broker_ids=ids)
        for index, ids in enumerate(replicas, first)
    ]
    return new_topic(name, assignments=tuple(entries))


async def create(
    broker: BrokerContext, *topics: creating.CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = zero(creating.CreateTopicsRequest, topics=topics, validate_only=validate_only)
    return list((await create_topics(broker, request, CALLER, 7)).topics)


class TestCreateTopics:
    async def test_a_topic_is_there_when_the_answer_is(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            (result,) = await create(broker, new_topic("a", 3, 1))
            image = broker.metadata.topic("a")
            assert image is not None
            assert (result.error_code, result.topic_id) == (ErrorCode.none, image.topic_id)
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            assert [broker.logs.get(TopicPartition("a", index)) is not None for index in range(4)] == [True] * 3 + [
                False
            ]

        await on_broker(tmp_path, use)

    async def test_counts_left_open_are_the_brokers(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            (result,) = await create(broker, new_topic("a"))
            assert (result.num_partitions, result.replication_factor) == (4, 1)

        await on_broker(tmp_path, use, num_partitions="4")

    async def test_its_configuration_is_told_with_sources(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            (result,) = await create(broker, with_configs("a", retention_ms="5"))
            told = {entry.name: (entry.value, entry.config_source) for entry in result.configs or ()}
            assert told["retention.ms"] == ("5", 1)
            assert told["max.message.bytes"] == ("2000", 4)
            assert told["segment.bytes"] == ("1073741824", 5)
            assert list(told) == sorted(told)
            assert broker.metadata.topic_config("a") == {"retention.ms": "5"}
            assert broker.settings.log_config("a").retention_ms == 5

        await on_broker(tmp_path, use, message_max_bytes="2000")

    async def test_validation_makes_nothing(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            (result,) = await create(broker, new_topic("a", 3, 1), validate_only=True)
            assert (result.error_code, result.num_partitions) == (ErrorCode.none, 3)
            assert broker.metadata.topic("a") is None

        await on_broker(tmp_path, use)

    async def test_an_assignment_is_kept(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            (result,) = await create(broker, assigned("a", (1,), (1,)))
            assert (result.error_code, result.num_partitions) == (ErrorCode.none, 2)

        await on_broker(tmp_path, use)

    async def test_what_is_refused_and_with_which_words(self, tmp_path: Path) -> None:
        cases = [
            (new_topic("a"), ErrorCode.topic_already_exists, "Topic 'a' already exists."),
            (
                new_topic("b b"),
                ErrorCode.invalid_topic_exception,
                "Topic name is invalid: 'b b' contains one or more characters other than ASCII alphanumerics, '.', '_' "
                "and '-'",
            ),
            (
                new_topic("__cluster_metadata"),
                ErrorCode.invalid_request,
                "Creation of internal topic __cluster_metadata is prohibited.",
            ),
            (
                new_topic("b", 0),
                ErrorCode.invalid_partitions,
                "Number of partitions was set to an invalid non-positive value.",
            ),
            (
                new_topic("b", 1, 0),
                ErrorCode.invalid_replication_factor,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            ),
            (with_configs("b", nope="1"), ErrorCode.invalid_config, "Unknown topic config name: nope"),
            (
                with_configs("b", retention_ms=None),
                ErrorCode.invalid_config,
                "Null value not supported for topic configs: retention.ms",
            ),
            (
                with_configs("b", retention_ms="x"),
                ErrorCode.invalid_config,
                "Invalid value x for configuration retention.ms: Not a number of type LONG",
            ),
            (
                assigned("b", (9,)),
                ErrorCode.invalid_replica_assignment,
                "The manual partition assignment includes broker 9, but no such broker is registered.",
            ),
            (
                assigned("b", (1,), first=1),
                ErrorCode.invalid_replica_assignment,
                "partitions should be a consecutive 0-based integer sequence",
            ),
        ]

        async def use(broker: BrokerContext) -> None:
            await make_topic(broker, "a")
            for topic, error, message in cases:
                (result,) = await create(broker, topic)
                assert (result.error_code, result.error_message) == (error, message)
                assert (result.topic_id, result.num_partitions, result.replication_factor) == (None, -1, -1)
                assert result.configs == ()

        await on_broker(tmp_path, use)

    async def test_each_topic_has_its_own_fate_and_twins_are_refused(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            results = await create(broker, new_topic("a"), new_topic("twin"), new_topic("b b"), new_topic("twin"))
            assert [(result.name, result.error_code) for result in results] == [
                ("a", ErrorCode.none),
                ("twin", ErrorCode.invalid_request),
                ("b b", ErrorCode.invalid_topic_exception),
            ]
            assert results[1].error_message == "Duplicate topic name."
            assert list(broker.metadata.image.topics) == ["a"]

        await on_broker(tmp_path, use)

    async def test_a_broker_that_is_not_the_controller_says_so_for_each_topic(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await broker.membership.stop()
            results = await create(broker, new_topic("a"), new_topic("b"))
            assert [result.error_code for result in results] == [ErrorCode.not_controller] * 2

        await on_broker(tmp_path, use)


def state(name: str | None = None, topic_id: UUID | None = None) -> deleting.DeleteTopicState:
    made: deleting.DeleteTopicState = zero(deleting.DeleteTopicState, name=name, topic_id=topic_id)
    return made


async def delete(broker: BrokerContext, *states: deleting.DeleteTopicState) -> list[DeletableTopicResult]:
    request = zero(deleting.DeleteTopicsRequest, topics=states)
    return list((await delete_topics(broker, request, CALLER, 6)).responses)


class TestDeleteTopics:
    async def test_by_name_and_by_id(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            first, second = await make_topic(broker, "a"), await make_topic(broker, "b")
            results = await delete(broker, state("a"), state(None, second.topic_id))
            assert sorted((result.name, result.topic_id, result.error_code) for result in results) == [
                ("a", first.topic_id, ErrorCode.none),
                ("b", second.topic_id, ErrorCode.none),
            ]
            assert not broker.metadata.image.topics
            await broker.replicas.settled()
            assert broker.logs.get(TopicPartition("a", 0)) is None

        await on_broker(tmp_path, use)

    async def test_what_is_refused_and_with_which_words(self, tmp_path: Path) -> None:
        seven = UUID(int=7)

        async def use(broker: BrokerContext) -> None:
            known = (await make_topic(broker, "a")).topic_id
            cases = [
                (
                    [state("b")],
                    [
                        (
                            "b",
                            None,
                            ErrorCode.unknown_topic_or_partition,
                            "This server does not host this topic-partition.",
                        )
                    ],
                ),
                (
                    [state(None, seven)],
                    [(None, seven, ErrorCode.unknown_topic_id, "This server does not host this topic ID.")],
                ),
                (
                    [state("a", known)],
                    [("a", known, ErrorCode.invalid_request, "You may not specify both topic name and topic id.")],
                ),
                ([state()], [(None, None, ErrorCode.invalid_request, "Neither topic name nor id were specified.")]),
                ([state("a")] * 2, [("a", None, ErrorCode.invalid_request, "Duplicate topic name.")]),
                ([state(None, seven)] * 2, [(None, seven, ErrorCode.invalid_request, "Duplicate topic id.")]),
            ]
            for states, expected in cases:
                results = await delete(broker, *states)
                told = [(result.name, result.topic_id, result.error_code, result.error_message) for result in results]
                assert told == expected
            assert broker.metadata.topic("a") is not None

        await on_broker(tmp_path, use)

    async def test_a_topic_made_again_meanwhile_is_not_the_one_with_the_id(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            old = (await make_topic(broker, "a")).topic_id
            *_, results = await asyncio.gather(
                broker.controller.delete_topics(["a"]),
                broker.controller.create_topics([TopicToCreate("a", 1, 1)]),
                delete(broker, state(None, old)),
            )
            assert [(result.topic_id, result.error_code) for result in results] == [(old, ErrorCode.unknown_topic_id)]
            new = broker.metadata.topic("a")
            assert new is not None
            assert new.topic_id != old

        await on_broker(tmp_path, use)

    async def test_a_topic_by_id_and_by_name_is_deleted_once(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            known = (await make_topic(broker, "a")).topic_id
            results = await delete(broker, state(None, known), state("a"))
            assert sorted(result.error_code for result in results) == [ErrorCode.none, ErrorCode.invalid_request]

        await on_broker(tmp_path, use)

    async def test_not_when_deletion_is_disabled(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await make_topic(broker, "a")
            (result,) = await delete(broker, state("a"))
            assert (result.name, result.error_code) == ("a", ErrorCode.topic_deletion_disabled)
            assert broker.metadata.topic("a") is not None

        await on_broker(tmp_path, use, delete_topic_enable="false")


class TestCreatePartitions:
    @staticmethod
    async def grow(
        broker: BrokerContext, *topics: tuple[str, int, tuple[tuple[int, ...], ...] | None], validate_only: bool = False
    ) -> list[tuple[str, ErrorCode, str | None]]:
        request = zero(
            growing.CreatePartitionsRequest,
            topics=tuple(
                zero(
                    growing.CreatePartitionsTopic,
                    name=name,
                    count=count,
                    assignments=replicas
                    and tuple(zero(growing.CreatePartitionsAssignment, broker_ids=ids) for ids in replicas),
                )
                for name, count, replicas in topics
            ),
            validate_only=validate_only,
        )
        response = await create_partitions(broker, request, CALLER, 3)
        return [(result.name, result.error_code, result.error_message) for result in response.results]

    async def test_a_topic_grows(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await make_topic(broker, "a")
            assert await self.grow(broker, ("a", 3, None), validate_only=True) == [("a", ErrorCode.none, None)]
            assert broker.logs.get(TopicPartition("a", 1)) is None
            assert await self.grow(broker, ("a", 3, None)) == [("a", ErrorCode.none, None)]
            assert await self.grow(broker, ("a", 4, ((1,),))) == [("a", ErrorCode.none, None)]
            assert [broker.replicas.get("a", index) is not None for index in range(5)] == [True] * 4 + [False]

        await on_broker(tmp_path, use)

    async def test_what_is_refused_and_with_which_words(self, tmp_path: Path) -> None:
        cases = [
            (("a", 3, None), ErrorCode.invalid_partitions, "Topic already has 3 partition(s)."),
            (
                ("a", 2, None),
                ErrorCode.invalid_partitions,
                "The topic a currently has 3 partition(s); 2 would not be an increase.",
            ),
            (
                ("a", 5, ((1,),)),
                ErrorCode.invalid_replica_assignment,
                "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
            ),
            (
                ("a", 4, ((9,),)),
                ErrorCode.invalid_replica_assignment,
                "The manual partition assignment includes broker 9, but no such broker is registered.",
            ),
        ]

        async def use(broker: BrokerContext) -> None:
            await make_topic(broker, "a", 3)
            for topic, error, message in cases:
                assert await self.grow(broker, topic) == [("a", error, message)]
            assert (await self.grow(broker, ("nope", 2, None)))[0][1] is ErrorCode.unknown_topic_or_partition
            twins = [("a", 4, None), ("a", 5, None)]
            assert await self.grow(broker, *twins) == [("a", ErrorCode.invalid_request, "Duplicate topic name.")]

        await on_broker(tmp_path, use)
