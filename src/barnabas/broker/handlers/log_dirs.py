"""DescribeLogDirs v1–5: each log directory with its partitions, their sizes, and the space that is left.

- Partitions by name, or all of them (null). A partition that this broker does not have is left out, and so is a topic
  without partitions.
- A directory that has failed is told with KAFKA_STORAGE_ERROR and nothing else.
- The offset lag is how far the high watermark is ahead of the log's end: 0 on a leader.
- v4+: bytes in all and usable bytes of the file system. v5: whether the directory takes new partitions; all do.

Not implemented: moving partitions between directories, so nothing is a future replica.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from barnabas.broker.throttle import NO_THROTTLE
from barnabas.model.errors import ErrorCode, StorageFailed, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.storage.log import Log


async def describe_log_dirs(broker: Broker, request: DescribeLogDirsRequest, caller: Caller) -> DescribeLogDirsResponse:
    """Tell what lies where."""
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    logs = broker.logs
    found = {
        directory: [log for log in logs.logs_in(directory) if wanted is None or log.tp in wanted]
        for directory in logs.directories
    }
    results = await asyncio.get_running_loop().run_in_executor(
        broker.executor,
        lambda: tuple(_describe(directory, found[directory], logs.failed_directories) for directory in found),
    )
    return DescribeLogDirsResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=results)


def _describe(directory: Path, logs: Iterable[Log], failed: Collection[Path]) -> DescribeLogDirsResult:
    """One directory; asks the file system, and reads the files of logs that were not used yet. Runs in a thread."""
    name = str(directory.absolute())
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    try:
        if directory in failed:
            raise StorageFailed(f"{directory} has failed")
        space = shutil.disk_usage(directory)
        for log in sorted(logs, key=lambda log: log.tp):
            with suppress(UnknownTopicOrPartition):  # deleted meanwhile
                topics.setdefault(log.tp.topic, []).append(_partition(log))
    except (OSError, StorageFailed):
        return DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=name, topics=())
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=name,
        topics=tuple(
            DescribeLogDirsTopic(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in topics.items()
            if partitions
        ),
        total_bytes=i64(space.total),
        usable_bytes=i64(space.free),
    )


def _partition(log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=i32(log.tp.partition),
        partition_size=i64(log.size),
        offset_lag=i64(max(log.high_watermark - log.log_end_offset, 0)),
        is_future_key=False,
    )
