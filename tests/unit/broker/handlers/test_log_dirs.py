"""DescribeLogDirs and AlterReplicaLogDirs over two real directories."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest

from barnabas.broker.handlers.log_dirs import alter_replica_log_dirs, describe_log_dirs
from barnabas.machines.controller.image import PartitionImage
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER
from tests.support.parts import append, make_topic, running_parts

if TYPE_CHECKING:
    from pathlib import Path

    from kio.schema.describe_log_dirs.v5.response import DescribeLogDirsResult

    from barnabas.broker.context import BrokerContext


async def describe(
    broker: BrokerContext, topics: dict[str, tuple[int, ...]] | None
) -> tuple[DescribeLogDirsResult, ...]:
    wanted: Any = topics and tuple(
        zero(DescribableLogDirTopic, topic=name, partitions=indexes) for name, indexes in topics.items()
    )
    response = await describe_log_dirs(broker, zero(DescribeLogDirsRequest, topics=wanted), CALLER)
    assert response.error_code is ErrorCode.none
    return response.results


def partitions(results: tuple[DescribeLogDirsResult, ...]) -> dict[tuple[str, int], int]:
    """Sizes by topic and partition."""
    return {
        (topic.name, part.partition_index): part.partition_size
        for result in results
        for topic in result.topics
        for part in topic.partitions
    }


async def test_directories_with_their_partitions(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]

    async with running_parts(tmp_path, {"log.dirs": ",".join(map(str, directories))}) as broker:
        await make_topic(broker, "a", 3)
        await make_topic(broker, "b")
        append(broker.replicas.find("a", 0), [1000])
        written = broker.replicas.find("a", 0).log.size
        results = await describe(broker, None)
        assert [(result.error_code, result.log_dir) for result in results] == [
            (ErrorCode.none, str(directory)) for directory in directories
        ]
        assert all(result.topics for result in results)
        assert partitions(results) == {("a", 0): written, ("a", 1): 0, ("a", 2): 0, ("b", 0): 0}
        assert written > 61
        for result in results:
            assert result.total_bytes == shutil.disk_usage(tmp_path).total
            assert 0 < result.usable_bytes <= result.total_bytes
            lags = [(part.offset_lag, part.is_future_key) for topic in result.topics for part in topic.partitions]
            assert set(lags) == {(0, False)}


async def test_only_what_is_asked_for(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "a", 3)
        assert partitions(await describe(broker, {"a": (1, 9), "nope": (0,)})) == {("a", 1): 0}
        (result,) = await describe(broker, {"nope": (0,)})
        assert (result.error_code, result.topics) == (ErrorCode.none, ())


async def test_a_failed_directory_is_told_as_one(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    directories[1].write_text("a file where a directory should be")

    async with running_parts(tmp_path, {"log.dirs": ",".join(map(str, directories))}) as broker:
        await make_topic(broker, "a")
        results = await describe(broker, None)
        assert [result.error_code for result in results] == [ErrorCode.none, ErrorCode.kafka_storage_error]
        assert partitions(results) == {("a", 0): 0}
        assert results[1].total_bytes == -1


async def put(broker: BrokerContext, directory: Path, topic: str, index: int = 0) -> ErrorCode:
    wanted = zero(AlterReplicaLogDirTopic, name=topic, partitions=(index,))
    dirs = (AlterReplicaLogDir(path=str(directory), topics=(wanted,)),)
    (told,) = (await alter_replica_log_dirs(broker, AlterReplicaLogDirsRequest(dirs=dirs), CALLER)).results
    (result,) = told.partitions
    assert (told.topic_name, result.partition_index) == (topic, index)
    return result.error_code


async def test_directories_are_chosen(tmp_path: Path) -> None:
    """A partition that is here stays; one that comes is made where it was wanted."""
    directories = [tmp_path / "one", tmp_path / "two", tmp_path / "broken"]
    directories[2].write_text("a file where a directory should be")

    async with running_parts(tmp_path, {"log.dirs": ",".join(map(str, directories))}) as broker:
        await make_topic(broker, "a")
        here = broker.replicas.find("a", 0).log.log_dir
        (other,) = {*directories[:2]} - {here}
        assert await put(broker, here, "a") is ErrorCode.none
        assert await put(broker, other, "a") is ErrorCode.invalid_request
        assert await put(broker, tmp_path / "nowhere", "a") is ErrorCode.log_dir_not_found
        assert await put(broker, directories[2], "a") is ErrorCode.kafka_storage_error
        assert await put(broker, here, "a", 7) is ErrorCode.unknown_topic_or_partition

        topic = await make_topic(broker, "b", 3)
        crowded = broker.replicas.find("b", 0).log.log_dir
        coming = TopicPartition("b", 3)
        image = broker.metadata.image
        grown = replace(topic, partitions=(*topic.partitions, PartitionImage(3, 2, 0, (2,), (2,))))
        broker.metadata.replace(replace(image, topics={**image.topics, "b": grown}))
        assert await put(broker, crowded, "b", 3) is ErrorCode.replica_not_available
        made = broker.logs.create(coming, topic.topic_id, broker.settings.log_config("b"))
        assert made.log_dir == crowded
        assert await put(broker, crowded, "b", 3) is ErrorCode.none


@pytest.mark.parametrize("end", ["other partitions change", "the plan is cancelled", "the topic is deleted"])
async def test_a_choice_ends_with_its_plan_and_with_its_topic(tmp_path: Path, end: str) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]

    async with running_parts(tmp_path, {"log.dirs": ",".join(map(str, directories))}) as broker:
        topic = await make_topic(broker, "a", 2)  # a log in each directory, so that the next one goes to the first

        def now_with(*replicas: int, leader_epoch: int = 0) -> None:
            coming = PartitionImage(2, replicas[0], leader_epoch, replicas, replicas[:1])
            grown = replace(topic, partitions=(*topic.partitions[:2], coming))
            broker.metadata.replace(replace(broker.metadata.image, topics={"a": grown}))

        now_with(2, 3)
        assert await put(broker, directories[1], "a", 2) is ErrorCode.replica_not_available
        if end == "other partitions change":
            now_with(2, 3, leader_epoch=1)
        elif end == "the plan is cancelled":
            now_with(2)
        else:
            broker.metadata.replace(replace(broker.metadata.image, topics={}))
            topic = replace(topic, topic_id=uuid4())
        made = broker.logs.create(TopicPartition("a", 2), topic.topic_id, broker.settings.log_config("a"))
        assert made.log_dir == directories[end == "other partitions change"]
