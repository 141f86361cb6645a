"""Bytes a second, of brokers of which one may take long to tell, or not tell at all."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.error import URLError

import pytest

from barnabas.clients.errors import BrokerUnreachable
from barnabas.clients.scraping import MetricsAccess
from barnabas.console.cluster import metrics
from barnabas.console.cluster.metrics import LISTENER_KEY, TrafficReader
from barnabas.console.cluster.snapshot import BrokerSnapshot, ClusterSnapshot
from tests.support.waiting import pass_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.clients.admin.configs import Setting

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
        assert reader.is_whole == (error is not None), "one that is late may come the next moment"
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
        assert reader.is_whole
        await reader.traffic(replace(QUIET, silent={1: "it hangs"}))
        assert not reader.is_whole
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


class FoundMetrics:
    """Brokers that tell where their metrics are, unless they cannot be reached; and who was asked."""

    def __init__(self) -> None:
        self.connections = self.configs = self
        self.ports = {"0": 9400, "1": 9401, "2": 9402}
        self.unreachable: set[str] = set()
        self.asked: list[str] = []

    async def ask(self, question: Callable[[Any], Any]) -> Any:
        return question(self)

    def describe(self, kind: Any, names: list[str]) -> dict[str, list[Setting]]:
        self.asked += names
        if self.unreachable & set(names):
            raise BrokerUnreachable("nobody is there")
        return {
            each: [cast("Any", SimpleNamespace(name=LISTENER_KEY, value=f"h:{self.ports[each]}"))] for each in names
        }


def cluster(*up: int, silent: tuple[int, ...] = ()) -> ClusterSnapshot:
    brokers = {number: BrokerSnapshot(number, "h", 9092 + number, None, number in up) for number in range(3)}
    return replace(QUIET, brokers=brokers, silent=dict.fromkeys(silent, "it hangs"))


async def test_brokers_that_were_down_or_hung_at_the_first_look_are_read_when_they_are_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes and cleaners of a broker that came a second too late were missing for five minutes."""
    read: set[str] = set()
    now = 0.0
    monkeypatch.setattr(metrics, "time", SimpleNamespace(monotonic=lambda: now))

    def page(self: MetricsAccess, url: str, seconds: float) -> bytes:
        read.add(url.split("/")[2])
        return b""

    monkeypatch.setattr(MetricsAccess, "get", page)
    found = FoundMetrics()
    reader = TrafficReader(cast("Any", found), (), MetricsAccess())

    async def addresses(snapshot: ClusterSnapshot) -> set[str]:
        read.clear()
        await reader.traffic(snapshot)
        return set(read)

    found.unreachable = {"1"}
    assert await addresses(cluster(0, 1)) == {"h:9400"}
    assert await addresses(cluster(0, 1, 2)) == {"h:9400", "h:9402"}
    assert found.asked == ["0", "1", "2"], "one that cannot be reached is not asked each time"
    found.unreachable = set()
    now += metrics.ASK_AGAIN_SECONDS
    everyone = {"h:9400", "h:9401", "h:9402"}
    assert await addresses(cluster(0, 1, 2)) == everyone
    await addresses(cluster(0, 1, 2))
    assert found.asked == ["0", "1", "2", "1"]
    now += metrics.LOOK_AGAIN_SECONDS
    assert await addresses(cluster(0, 1, 2, silent=(2,))) == everyone, "one that hangs has told before"
    found.ports["1"] = 9411
    await addresses(cluster(0, 2))
    assert await addresses(cluster(0, 1, 2)) == {"h:9400", "h:9411", "h:9402"}
