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
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
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
    directories = logs.directories
    spaces = await asyncio.get_running_loop().run_in_executor(broker.executor, _spaces, directories)
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results=tuple(
            _failed(directory)
            if space is None or directory in logs.failed_directories
            else _directory(directory, logs.logs_in(directory), wanted, space)
            for directory, space in zip(directories, spaces, strict=True)
        ),
    )


def _spaces(directories: Sequence[Path]) -> list[tuple[int, int] | None]:
    """Bytes in all and usable bytes of each directory's file system, None where it cannot be asked."""
    return [_space(directory) for directory in directories]


def _space(directory: Path) -> tuple[int, int] | None:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return None
    return usage.total, usage.free


def _failed(directory: Path) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=str(directory.absolute()), topics=())


def _directory(
    directory: Path, logs: Collection[Log], wanted: set[tuple[str, int]] | None, space: tuple[int, int]
) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in sorted(logs, key=lambda log: log.tp):
        if wanted is None or log.tp in wanted:
            topics.setdefault(log.tp.topic, []).append(_partition(log))
    return DescribeLogDirsResult(
        error_code=ErrorCode.none,
        log_dir=str(directory.absolute()),
        topics=tuple(
            DescribeLogDirsTopic(name=TopicName(name), partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
        total_bytes=i64(space[0]),
        usable_bytes=i64(space[1]),
    )


def _partition(log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=i32(log.tp.partition),
        partition_size=i64(log.size),
        offset_lag=i64(max(log.high_watermark - log.log_end_offset, 0)),
        is_future_key=False,
    )
