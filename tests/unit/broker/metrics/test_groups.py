"""Series of groups: no more than there may be, and the event loop is never held for long to make them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.metrics import scrape
from barnabas.broker.metrics.scrape import Pace
from barnabas.broker.metrics.series.groups import GroupSeries

Offsets = dict[str, dict[str, dict[int, Any]]]


def a_broker(committed: Offsets) -> Any:
    """A broker that coordinates groups with these offsets, and leads all partitions, each with 100 records."""
    machine = SimpleNamespace(table=SimpleNamespace(groups={}), committed_offsets=committed)
    led = SimpleNamespace(leader=SimpleNamespace(high_watermark=100))
    return SimpleNamespace(
        groups=SimpleNamespace(runtime=SimpleNamespace(machines=lambda: [(0, machine)])),
        replicas=SimpleNamespace(get=lambda topic, index: led),
        metadata=SimpleNamespace(image=None),
    )


def offsets(topics: int, partitions: int) -> dict[str, dict[int, Any]]:
    value = SimpleNamespace(offset=40)
    return {f"t{topic}": dict.fromkeys(range(partitions), value) for topic in range(topics)}


async def collected(broker: Any, most_offsets: int, pace: Pace | None = None) -> dict[str, list[str]]:
    families = await GroupSeries(cast("Any", broker), 100, most_offsets).collect(pace or Pace())
    return {family.name: "".join(family.lines).splitlines() for family in families}


def total(found: dict[str, list[str]], name: str) -> int:
    (line,) = found[name]
    return int(line.rpartition(" ")[2])


async def test_offsets_without_room_are_left_out_by_group_and_counted() -> None:
    """A group may have as many as there are partitions: a million of them were 200 MB, or no series of any group."""
    broker = a_broker({"a": offsets(2, 10), "huge": offsets(1, 1000), "b": offsets(1, 30), "c": offsets(1, 1)})
    found = await collected(broker, 50)
    lags = found["kafka_consumergroup_lag"]
    assert len(lags) == len(found["kafka_consumergroup_current_offset"]) == 50
    assert all(line.endswith(" 60") for line in lags)
    assert {line.split('"')[1] for line in lags} == {"a", "b"}
    assert len(found["kafka_consumergroup_lag_sum"]) == 3
    assert total(found, "barnabas_metrics_omitted_group_offsets") == 1001
    assert total(found, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1051


async def test_a_group_with_very_many_offsets_holds_the_loop_in_steps(monkeypatch: Any) -> None:
    """The offsets of a group were copied, and ends of all partitions looked up, in one step."""
    monkeypatch.setattr(scrape, "STEP_SECONDS", 0.0)
    broker = a_broker({"a": offsets(1, 400)})
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count_turns())
    found = await collected(broker, 1000)
    counting.cancel()
    assert len(found["kafka_consumergroup_lag"]) == 400
    assert turns >= 3 * 400, "copied, looked up and written, one after the other"


async def test_what_is_committed_while_a_page_is_made_does_not_end_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(scrape, "STEP_SECONDS", 0.0)
    committed = {"a": offsets(2, 50)}
    broker = a_broker(committed)

    async def commit() -> None:
        for number in range(1000):
            committed["a"]["t0"][100 + number] = committed["a"]["t1"][0]
            committed["a"][f"new{number}"] = {0: committed["a"]["t1"][0]}
            committed[f"group{number}"] = {}
            await asyncio.sleep(0)

    committing = asyncio.create_task(commit())
    found = await collected(broker, 10_000)
    committing.cancel()
    assert len(found["kafka_consumergroup_lag"]) >= 100
