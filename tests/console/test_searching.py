"""Searches of a topic while it changes: what is aborted, deleted, or comes faster than it can be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients import Admin, Producer
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.console.messages.decoding import ContentDecoder
from barnabas.console.messages.scanning import FOLLOW, MOST_BEHIND, OLDEST, TopicScan, Wanted
from barnabas.console.messages.schemas import Schemas
from barnabas.testing import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(broker.bootstrap_servers, {}, 10) as cluster:
        yield cluster


def search(cluster: ClusterAdmin, topic: str, way: str, limit: int = 100) -> Iterator[tuple[str, dict[str, Any]]]:
    wanted = Wanted(topic=topic, partitions=(0,), way=way, limit=limit, most_records=10**6, most_seconds=60)
    return TopicScan(cluster, wanted, ContentDecoder(Schemas(None, None), topic, ()), None).events()


def first_record(events: Iterator[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    found: dict[str, Any] = next(data["records"][0] for name, data in events if name == "records")
    return found


def test_who_follows_sees_what_was_aborted(broker: Broker, cluster: ClusterAdmin) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topic("given-up", 1, 1)
    events = search(cluster, "given-up", FOLLOW)
    next(events)
    with Producer(broker.bootstrap_servers, transactional_id="gives-up") as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("given-up", "no")
            producer.flush()
            raise ZeroDivisionError
        with producer.transaction():
            producer.send("given-up", "yes")
    rows: list[dict[str, Any]] = []
    while len(rows) < 4:  # two records and their markers
        name, data = next(events)
        rows += data["records"] if name == "records" else ()
    outcomes = {row["value"]["text"]: row["transaction"] for row in rows if "value" in row}
    assert outcomes == {"no": "aborted", "yes": "committed"}


def test_a_search_goes_on_behind_what_is_deleted_meanwhile(broker: Broker, cluster: ClusterAdmin) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(3_000):
            producer.send("shrinking", f"{number} {'x' * 500}", partition=0)
    events = search(cluster, "shrinking", OLDEST, 10_000)
    assert first_record(events)["offset"] == 0
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({admin.partitions("shrinking")[0]: 2_500})
    rest = list(events)
    assert rest[-1][0] == "done"
    assert rest[-1][1]["reason"] == "end"
    offsets = [row["offset"] for name, data in rest if name == "records" for row in data["records"]]
    assert offsets[-500:] == list(range(2_500, 3_000))
    assert all(offset < 2_500 for offset in offsets[:-500])


def test_who_follows_slower_than_records_come_passes_some_over(broker: Broker, cluster: ClusterAdmin) -> None:
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("torrent", "first", partition=0)
        producer.flush()
        events = search(cluster, "torrent", FOLLOW)
        next(events)
        for number in range(MOST_BEHIND + 30_000):
            producer.send("torrent", f"{number} {'x' * 100}", partition=0)
        producer.flush()
        seen = [data for name, data in (next(events) for _ in range(4)) if name == "progress"][-1]
        assert seen["skipped"] > MOST_BEHIND
        assert seen["scanned"] < 30_000
        producer.send("torrent", "last", partition=0)
    assert first_record(events)["value"]["text"] == "last"
