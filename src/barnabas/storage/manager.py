"""All logs of a broker: the signatures that the broker uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from concurrent.futures import Future
    from pathlib import Path
    from uuid import UUID

    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.log import Log


class LogManager(Protocol):
    """Made by LogManager(dirs, clock=..., default_config=..., files=..., recovery_threads=1, max_open_files=...,
    producer_id_expiration_ms=86_400_000)."""

    def load(self, *, broker_id: int, cluster_id: str, configs: Mapping[str, LogConfig]) -> None:
        """Lock the directories, check meta.properties, load (and recover) every log. Blocks."""
        ...

    def get(self, tp: TopicPartition) -> Log | None:
        """The partition's log, if this broker has it."""
        ...

    def create(self, tp: TopicPartition, topic_id: UUID, config: LogConfig) -> Log:
        """The partition's log, made if need be in the directory with the fewest; StorageFailed when all have failed."""
        ...

    def delete(self, tp: TopicPartition) -> None:
        """Take the log away; its files go later (delete_due)."""
        ...

    def logs(self) -> Collection[Log]:
        """Every log."""
        ...

    def logs_in(self, directory: Path) -> Collection[Log]:
        """The logs of one log directory (DescribeLogDirs)."""
        ...

    @property
    def directories(self) -> tuple[Path, ...]:
        """log.dirs as configured."""
        ...

    @property
    def failed_directories(self) -> Mapping[Path, str]:
        """Directories that take no more writes, and why."""
        ...

    def stored_cluster_id(self) -> str | None:
        """cluster.id of meta.properties, if any; before load()."""
        ...

    def flush_through(self, log: Log, offset: int) -> Future[int]:
        """Done when everything before `offset` is on disk; StorageFailed otherwise. Flushes of one log are joined."""
        ...

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms has passed. Runs in a thread."""
        ...

    def checkpoint(self) -> None:
        """Write recovery points, log start offsets and high watermarks. Runs in a thread."""
        ...

    def retention_pass(self, now_ms: int) -> int:
        """Drop what retention says; returns the number of segments. Runs in a thread."""
        ...

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers by producer.id.expiration.ms. Event loop."""
        ...

    def delete_due(self, now_ms: int) -> int:
        """Remove files whose file.delete.delay.ms has passed; returns how many. Runs in a thread."""
        ...

    def close(self, *, clean: bool = True) -> None:
        """Flush, snapshot, checkpoint, mark the stop as clean, unlock. Blocks."""
        ...

    def usable_directories(self) -> Iterable[Path]:
        """Directories that have not failed."""
        ...
