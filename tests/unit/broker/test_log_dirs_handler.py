"""DescribeLogDirs over two real directories."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest

from barnabas.broker.handlers.log_dirs import describe_log_dirs
from barnabas.model.errors import ErrorCode
from barnabas.protocol.conversion import zero
from tests.support.images import CALLER
from tests.support.parts import append, make_topic, running_parts

if TYPE_CHECKING:
    from pathlib import Path

    from kio.schema.describe_log_dirs.v5.response import DescribeLogDirsResult

    from barnabas.broker.context import Broker


async def describe(broker: Broker, topics: dict[str, tuple[int, ...]] | None) -> tuple[DescribeLogDirsResult, ...]:
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


def test_directories_with_their_partitions(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]

    async def use() -> None:
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

    asyncio.run(use())


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    async def use() -> None:
        async with running_parts(tmp_path) as broker:
            await make_topic(broker, "a", 3)
            assert partitions(await describe(broker, {"a": (1, 9), "nope": (0,)})) == {("a", 1): 0}
            (result,) = await describe(broker, {"nope": (0,)})
            assert (result.error_code, result.topics) == (ErrorCode.none, ())

    asyncio.run(use())


def test_a_failed_directory_is_told_as_one(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    directories[1].write_text("a file where a directory should be")

    async def use() -> None:
        async with running_parts(tmp_path, {"log.dirs": ",".join(map(str, directories))}) as broker:
            await make_topic(broker, "a")
            results = await describe(broker, None)
            assert [result.error_code for result in results] == [ErrorCode.none, ErrorCode.kafka_storage_error]
            assert partitions(results) == {("a", 0): 0}
            assert results[1].total_bytes == -1

    asyncio.run(use())
