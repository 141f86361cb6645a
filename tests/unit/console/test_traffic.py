"""Bytes a second, of brokers of which one may take long to tell, or not tell at all."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, cast
from urllib.error import URLError

import pytest

from barnabas.clients.scraping import MetricsAccess
from barnabas.console.cluster import metrics
from barnabas.console.cluster.metrics import TrafficReader
from tests.support.waiting import pass_time, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.console.cluster.metrics import ByteRates

ADDRESSES = ("http://a/metrics", "http://b/metrics", "http://c/metrics")


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

    assert await reading(monkeypatch, page).traffic(cast("Any", None)) is None
    assert not together.broken


@pytest.mark.parametrize("error", [TimeoutError(), URLError(TimeoutError()), None])
async def test_a_page_that_does_not_come_in_time_is_told_of(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    """Bytes a second vanished, and nobody said why: a page takes longer than two seconds on a large broker."""
    monkeypatch.setattr(metrics, "SCRAPE_SECONDS", 300.0)
    sent, over, came = 0, threading.Event(), set[str]()
    read = TrafficReader._read

    async def noted(self: TrafficReader, address: str) -> Any:
        found = await read(self, address)
        came.add(address)
        return found

    monkeypatch.setattr(TrafficReader, "_read", noted)

    def page(url: str) -> bytes:
        nonlocal sent
        if "b/" in url:
            if error is not None:
                raise error
            over.wait(60)  # it sends a byte now and then
        sent += 1000
        return counter(sent)

    reader = reading(monkeypatch, page)

    async def traffic() -> ByteRates | None:
        came.clear()
        asking = asyncio.ensure_future(reader.traffic(cast("Any", None)))
        await until(lambda: {ADDRESSES[0], ADDRESSES[2]} <= came)
        await pass_time(301)
        return await asking

    assert await traffic() is None
    found = await traffic()
    over.set()
    assert reader.failure == "http://b/metrics did not answer within 300 s."
    assert found is not None and found.bytes_in > 0, "the others are told of all the same"


async def test_a_broker_that_is_down_is_no_failure_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    def page(url: str) -> bytes:
        raise URLError(ConnectionRefusedError())

    reader = reading(monkeypatch, page)
    assert await reader.traffic(cast("Any", None)) is None
    assert reader.failure is None
