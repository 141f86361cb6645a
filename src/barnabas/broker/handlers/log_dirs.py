"""DescribeLogDirs v1–5 and AlterReplicaLogDirs v1–2: the partitions in each log directory, and where new ones are put.

DescribeLogDirs tells each log directory with its partitions, their sizes, and the space that is left.
- Partitions by name, or all of them (null). A partition that this broker does not have is left out, and so is a topic
  without partitions.
- A directory that has failed is told with KAFKA_STORAGE_ERROR and nothing else.
- The offset lag is how far the high watermark is ahead of the log's end: 0 on a leader.
- v4+: bytes in all and usable bytes of the file system. v5: whether the directory takes new partitions; all do.

AlterReplicaLogDirs
- A partition that this broker does not have yet is made in the directory given, when it comes here; until then the
  answer is REPLICA_NOT_AVAILABLE. One that does not exist is UNKNOWN_TOPIC_OR_PARTITION, and nothing is remembered.
  The choice is forgotten when the partition's replicas are chosen anew without this broker (a plan was cancelled), when
  its topic is deleted, and when the broker stops. Apache Kafka forgets it only when it stops.
- A partition that is in the directory already is fine as it is.
- LOG_DIR_NOT_FOUND for a directory that is not in log.dirs, KAFKA_STORAGE_ERROR for one that has failed.

Not implemented: moving a partition that is here to another directory. That is answered with INVALID_REQUEST, and
nothing is a future replica. To have it elsewhere, let it go to another broker and come back.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    ReplicaNotAvailable,
    StorageFailed,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.storage.log.log import Log


async def describe_log_dirs(
    broker: BrokerContext, request: DescribeLogDirsRequest, caller: Caller
) -> DescribeLogDirsResponse:
    """Describe the log directories."""
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
            raise StorageFailed(f"{directory} has failed.")
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


async def alter_replica_log_dirs(
    broker: BrokerContext, request: AlterReplicaLogDirsRequest, caller: Caller
) -> AlterReplicaLogDirsResponse:
    """Choose the directories for partitions that are not here yet."""
    results: dict[TopicName, list[AlterReplicaLogDirPartitionResult]] = {}

    def put(asked: tuple[str, TopicName, i32]) -> None:
        directory, topic, index = asked
        code = ErrorCode.none
        try:
            _put(broker, TopicPartition(topic, index), Path(directory))
        except ApiError as error:
            code = error.code
        result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        results.setdefault(topic, []).append(result)

    places = (
        (directory.path, topic.name, index)
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    )
    await broker.long_answers.each(places, put)
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=tuple(partitions))
            for topic, partitions in results.items()
        ),
    )


def _put(broker: BrokerContext, tp: TopicPartition, directory: Path) -> None:
    """Choose the directory of one partition; raises an ApiError if it is not there then."""
    broker.logs.check_directory(directory)
    topic = broker.metadata.topic(tp.topic)
    if topic is None or broker.metadata.partition(tp.topic, tp.partition) is None:
        raise UnknownTopicOrPartition(f"Unknown partition {tp}.")
    log = broker.logs.get(tp)
    if log is None:
        broker.logs.prefer(topic.topic_id, tp.partition, directory)
        raise ReplicaNotAvailable(f"{tp} is not on this broker; when it is assigned, it will be in {directory}.")
    if log.log_dir != directory:
        raise InvalidRequest(f"{tp} is in {log.log_dir}; moving it to another directory is not implemented.")
