"""Disks: log directories, syncs, compaction, and how much is read from memory."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.daemon_threads import in_daemon_thread
from barnabas.broker.metrics.exposition import GAUGE, SUMMARY, Family, counter, gauge, labels
from barnabas.broker.metrics.series.requests import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from barnabas.broker.cleaner_threads import CleanerThreads
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.metrics.scrape import Pace
    from barnabas.net.server import Server
    from barnabas.storage.manager import LogManager

RECENT_SECONDS: Final = 300.0
"""The share of reads that were served from memory is that of the last minutes."""
ROOM_SECONDS: Final = 1.0
"""How long a file system has to say how much room it has."""


class Reads(NamedTuple):
    """How much was read until some time."""

    at: float
    all: int
    cold: int


class StorageSeries:
    """Series of a broker's disks."""

    def __init__(self, broker: BrokerContext, cleaning: CleanerThreads, server: Callable[[], Server | None]) -> None:
        self._broker = broker
        self._cleaning = cleaning
        self._server = server
        self._reads: deque[Reads] = deque()
        self._room = DiskRoom()

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """The disks as they are now; how full they are is asked for in threads."""
        room = await self._room.of(self._broker.logs.directories)
        pace.resume()
        return [*_log_dirs(self._broker.logs, room), _flushes(self._broker.logs), *self._cleaner(), *self._cache()]

    def _cleaner(self) -> list[Family]:
        manager = self._cleaning.active_manager
        uncleanable = Family(
            "kafka_log_logcleanermanager_uncleanable_partitions_count",
            GAUGE,
            "Logs that are not compacted any more until the broker starts again.",
        )
        given_up = [] if manager is None else list(manager.uncleanable)
        for path in self._broker.logs.directories:
            uncleanable.add(sum(log.log_dir == path for log in given_up), labels(logDirectory=path))
        dead = gauge("kafka_log_logcleaner_deadthreadcount", "Cleaner threads that ended.", self._cleaning.dead_threads)
        if manager is None:
            return [uncleanable, dead]
        totals = manager.totals
        last = totals.last
        recopied = 0.0 if last is None or not last.bytes_in else 100 * last.bytes_out / last.bytes_in
        since_ms = -1 if last is None else max(self._broker.clock.now_ms() - last.time_ms, 0)
        seconds = 0.0 if last is None else last.seconds
        return [
            uncleanable,
            dead,
            counter("barnabas_cleaner_cleanings", "Logs that were compacted.", totals.cleanings),
            counter("barnabas_cleaner_seconds", "How long compaction took, all logs together.", totals.seconds),
            counter("barnabas_cleaner_read_bytes", "Bytes that compaction has read.", totals.bytes_in),
            counter(
                "barnabas_cleaner_kept_bytes", "Bytes that compaction has kept of those that it read.", totals.bytes_out
            ),
            gauge("kafka_log_logcleaner_max_clean_time_secs", "How long the last compaction of a log took.", seconds),
            gauge(
                "kafka_log_logcleaner_cleaner_recopy_percent",
                "The share of its bytes that the last compaction of a log kept, in percent.",
                recopied,
            ),
            gauge(
                "kafka_log_logcleanermanager_time_since_last_run_ms",
                "How long ago the last compaction of a log ended; -1 if there was none.",
                since_ms,
            ),
        ]

    def _cache(self) -> list[Family]:
        """Reads that had to wait for the disk, and the share of those that had not."""
        hosted, server = self._broker.replicas.partitions, self._server()
        cold = hosted.cold_reads + (0 if server is None else server.cold_sends)
        reads = sum(traffic.fetches for traffic in [hosted.past_traffic, *hosted.traffic.values()])
        now = Reads(time.monotonic(), reads, cold)
        while len(self._reads) > 1 and self._reads[1].at < now.at - RECENT_SECONDS:
            self._reads.popleft()
        before = self._reads[0] if self._reads else Reads(0.0, 0, 0)
        self._reads.append(now)
        share = 1 - min((now.cold - before.cold) / max(now.all - before.all, now.cold - before.cold, 1), 1)
        return [
            counter("barnabas_cold_reads", "Reads that had to wait for the disk.", cold),
            gauge(
                "barnabas_page_cache_hit_ratio",
                "The share of reads in the last minutes that did not have to wait for the disk.",
                share,
            ),
        ]


class DiskRoom:
    """Asks file systems how much room they have.

    A disk that hangs does not answer. So each directory is asked by a thread of its own, and not again before it has
    answered: one that hangs holds one thread, however often somebody scrapes, and takes no figures from the others.
    """

    def __init__(self) -> None:
        self._asked: dict[Path, asyncio.Future[tuple[int, int] | None]] = {}

    async def of(self, directories: Sequence[Path]) -> dict[Path, tuple[int, int]]:
        """Free and all bytes of the file systems that directories are on, of those that answer soon."""
        for path in directories:
            if path not in self._asked:
                self._asked[path] = in_daemon_thread(f"room of {path}", _room, path)
        done, _ = await asyncio.wait(self._asked.values(), timeout=ROOM_SECONDS)
        answered = {path: future.result() for path, future in self._asked.items() if future in done}
        for path in answered:
            del self._asked[path]
        return {path: room for path, room in answered.items() if room is not None}


def _room(path: Path) -> tuple[int, int] | None:
    """Free and all bytes of a file system; None if the disk has failed, which another series says. Runs in a thread."""
    try:
        stat = os.statvfs(path)
    except OSError:
        return None
    return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


def _log_dirs(logs: LogManager, room: Mapping[Path, tuple[int, int]]) -> list[Family]:
    failed = logs.failed_directories
    offline = Family("kafka_log_logmanager_logdirectoryoffline", GAUGE, "Whether a log directory has failed.")
    free = Family("barnabas_log_dir_free_bytes", GAUGE, "Room that is left for a log directory.")
    size = Family("barnabas_log_dir_size_bytes", GAUGE, "The size of the file system that a log directory is on.")
    for path in logs.directories:
        label = labels(logDirectory=path)
        offline.add(int(path in failed), label)
        if path in room:
            free.add(room[path][0], label)
            size.add(room[path][1], label)
    count = gauge("kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed.", len(failed))
    return [offline, count, free, size]


def _flushes(logs: LogManager) -> Family:
    """How long syncs took, in milliseconds."""
    times = logs.flush_times
    recent = sorted(seconds for each in times for seconds in each.recent())
    family = Family("kafka_log_logflushstats_logflushrateandtimems", SUMMARY, "Syncs of logs, in milliseconds.")
    for quantile, text in QUANTILES.items():
        value = recent[min(int(quantile * len(recent)), len(recent) - 1)] if recent else 0.0
        family.add(round(1000 * value, 6), labels(quantile=text))
    family.add(round(1000 * sum(each.seconds for each in times), 6), "", "_sum")
    family.add(sum(each.count for each in times), "", "_count")
    return family
