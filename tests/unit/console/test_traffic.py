"""Bytes a second, of brokers of which one may take long to tell, or not tell at all."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast
from urllib.error import URLError

import pytest

from barnabas.clients.scraping import MetricsAccess
from barnabas.console.cluster import metrics
from barnabas.console.cluster.metrics import TrafficReader
from barnabas.console.cluster.snapshot import ClusterSnapshot
from tests.support.waiting import pass_time

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESSES = ("http://a/metrics", "http://b/metrics", "http://c/metrics")


QUIET = ClusterSnapshot(at=0.0, cluster_id="c", controller=0, brokers={}, topics={}, ends={}, silent={})


def reading(monkeypatch: pytest.MonkeyPatch, page: Callable[[str], bytes]) -> TrafficReader:
    monkeypatch.setattr(MetricsAccess, "get", lambda self, url, seconds: page(url))
    return TrafficReader(cast("Any", None), ADDRESSES, MetricsAccess())


def counter(number: int) -> bytes:
    return b"kafka_server_brokertopicmetrics_bytesin_total %d\n" % number


async def test_all_brokers_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(len(ADDRESSES))

    def page(url: str) -> bytes:
        together.wait(20)
        return counter(0)

    assert await reading(monkeypatch, page).traffic(QUIET) is None
    assert not together.broken


@pytest.mark.parametrize("error", [TimeoutError(), URLError(TimeoutError()), None])
async def test_a_page_that_does_not_come_keeps_nobody_waiting_and_is_told_of(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    """Bytes a second of all brokers were eight seconds old beside the warning that one hangs."""
    monkeypatch.setattr(metrics, "SCRAPE_SECONDS", 300.0)
    sent, asked, over = 0, 0, threading.Event()

    def page(url: str) -> bytes:
        nonlocal sent, asked
        if "b/" in url:
            asked += 1
            if error is not None:
                raise error
            over.wait(60)  # it sends a byte now and then
        sent += 1000
        return counter(sent)

    reader = reading(monkeypatch, page)
    async with asyncio.timeout(30):
        assert await reader.traffic(QUIET) is None
        found = await reader.traffic(QUIET)
        assert found is not None and found.bytes_in > 0, "the others are told of all the same"
    if error is None:
        assert asked == 1, "it is read once at a time"
        await pass_time(301)
    await reader.traffic(QUIET)
    over.set()
    assert reader.failure == "http://b/metrics did not answer within 300 s."


async def test_a_page_of_a_broker_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hung, over = threading.Event(), threading.Event()

    def page(url: str) -> bytes:
        if "b/" in url and hung.is_set():
            over.wait(60)
        return counter(0) + b'barnabas_build_info{version="1",node_id="%d",cluster_id="c"} 1\n' % ADDRESSES.index(url)

    reader = reading(monkeypatch, page)
    assert await reader.traffic(QUIET) is None
    monkeypatch.setattr(metrics, "PATIENCE_SECONDS", 300.0)
    hung.set()
    async with asyncio.timeout(60):
        await reader.traffic(replace(QUIET, silent={1: "it hangs"}))
    over.set()


async def test_cleaners_are_named_by_their_broker_and_stay_while_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The table had the address of each broker's metrics for a name, and lost a broker that was killed."""
    down = False

    def page(url: str) -> bytes:
        if "b/" in url and down:
            raise URLError(ConnectionRefusedError())
        told = b"" if "c/" in url else b'barnabas_build_info{version="1",node_id="%d"} 1\n' % (7 + ADDRESSES.index(url))
        return told + b"barnabas_cleaner_cleanings_total 3\n"

    reader = reading(monkeypatch, page)
    await reader.traffic(QUIET)
    done = {"cleanings": 3.0}
    assert reader.cleaners == [("a", 7, done), ("b", 8, done), ("c", None, done)]
    down = True
    await reader.traffic(QUIET)
    assert reader.cleaners == [("a", 7, done), ("b", 8, None), ("c", None, done)]


async def test_a_broker_that_is_down_is_no_failure_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    def page(url: str) -> bytes:
        raise URLError(ConnectionRefusedError())

    reader = reading(monkeypatch, page)
    assert await reader.traffic(QUIET) is None
    assert reader.failure is None
