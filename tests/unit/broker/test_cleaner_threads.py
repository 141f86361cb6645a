"""The cleaner threads of a broker."""

from __future__ import annotations

import asyncio
import errno
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.cleaner_threads import CleanerThread, CleanerThreads, limits
from barnabas.machines.controller.image import ALL_BROKERS
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from tests.support.parts import make_topic, running_parts
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.replication.leader_partition import LeaderPartition

pytestmark = pytest.mark.slow

NOW = 1_700_000_000_000
OFTEN = {"log.cleaner.backoff.ms": "5", "log.cleaner.min.cleanable.ratio": "0.1"}


def write_twice(partition: LeaderPartition) -> None:
    """The same key twice, in a segment that can be cleaned."""
    for value in (b"old", b"new"):
        data = build_batch([Record(0, 0, b"key", value)], base_timestamp=NOW)
        partition.append(data, partition.check(data, NOW, 13), NOW)
    partition.log.roll(NOW)


async def test_a_compacted_topic_is_cleaned_and_others_are_not(tmp_path: Path) -> None:
    async with running_parts(tmp_path, OFTEN) as broker:
        await make_topic(broker, "compacted", cleanup_policy="compact")
        await make_topic(broker, "deleted")
        cleaning = CleanerThreads(broker)
        cleaning.start()
        for name in ("compacted", "deleted"):
            write_twice(broker.replicas.find(name, 0))
        log = broker.replicas.find("compacted", 0).log
        await until(lambda: log.cleaned_to == 2)
        assert log.segments[0].size < broker.replicas.find("deleted", 0).log.segments[0].size
        await cleaning.stop()


async def test_a_thread_that_cannot_start_its_worker_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = CleanerThread._start_worker, iter([OSError(errno.EMFILE, "Too many open files")] * 2)

    def start_worker(thread: CleanerThread) -> object:
        for error in failures:
            raise error
        return real(thread)

    async with running_parts(tmp_path, OFTEN) as broker:
        await make_topic(broker, "compacted", cleanup_policy="compact")
        write_twice(broker.replicas.find("compacted", 0))
        monkeypatch.setattr(CleanerThread, "_start_worker", start_worker)
        cleaning = CleanerThreads(broker)
        cleaning.start()
        log = broker.replicas.find("compacted", 0).log
        await until(lambda: log.cleaned_to == 2)
        await cleaning.stop()
    said = [each for each in caplog.records if "Log compaction failed" in each.getMessage()]
    assert [("Too many open files" in each.getMessage(), bool(each.exc_info)) for each in said] == [(True, False)] * 2


async def test_a_stop_waits_for_threads_that_there_are_too_many_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaning_begun, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    def clean(thread: CleanerThread) -> None:
        if not ended and thread.name.endswith("-1"):
            cleaning_begun.set()
            may_end.wait(60)
            ended.append(thread.name)

    monkeypatch.setattr(CleanerThread, "_clean", clean)
    async with running_parts(tmp_path, {**OFTEN, "log.cleaner.threads": "2"}) as broker:
        cleaning = CleanerThreads(broker)
        cleaning.start()
        await until(cleaning_begun.is_set)
        one = {ALL_BROKERS: {"log.cleaner.threads": "1"}}
        broker.metadata.replace(replace(broker.metadata.image, configs=one))
        await until(lambda: len(cleaning._threads) == 1)
        stopping = asyncio.ensure_future(cleaning.stop())
        await until(lambda: not cleaning._threads)
        assert not (await asyncio.wait([stopping], timeout=0.1))[0]
        may_end.set()
        await stopping
        assert ended


async def test_nothing_is_cleaned_where_it_is_switched_off(tmp_path: Path) -> None:
    async with running_parts(tmp_path, {**OFTEN, "log.cleaner.enable": "false"}) as broker:
        cleaning = CleanerThreads(broker)
        cleaning.start()
        assert not cleaning._threads
        await cleaning.stop()


async def test_limits_are_split_among_the_threads(tmp_path: Path) -> None:
    settings = {
        "log.cleaner.threads": "4",
        "log.cleaner.dedupe.buffer.size": "4000000",
        "log.cleaner.io.buffer.size": "800000",
        "log.cleaner.io.max.bytes.per.second": "1000.0",
    }

    async with running_parts(tmp_path, settings) as broker:
        assert limits(broker.settings) == (1_000_000, 0.9, 100_000, 250.0)
        cleaning = CleanerThreads(broker)
        cleaning.start()
        assert len(cleaning._threads) == 4
        await cleaning.stop()
