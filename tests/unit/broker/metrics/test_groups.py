"""Series of groups: no more than there may be, and the event loop is never held for long to make them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

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


async def collected(broker: Any, most_offsets: int, most_groups: int = 100) -> dict[str, list[str]]:
    families = await GroupSeries(cast("Any", broker), most_groups, most_offsets).collect(Pace())
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
    assert total(found, "barnabas_metrics_omitted_group_offsets") == 1001
    assert total(found, "kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1051


async def test_a_group_whose_offsets_have_no_room_keeps_its_sums() -> None:
    """It lost its lag altogether: an alert had nothing to compare, and nothing said whose lag is missing."""
    broker = a_broker({"a": offsets(2, 10), "huge": offsets(3, 20), "topics": offsets(41, 1)})
    found = await collected(broker, 40)
    assert {line.split('"')[1] for line in found["kafka_consumergroup_lag"]} == {"a"}
    assert sorted(found["kafka_consumergroup_lag_sum"]) == [
        *(f'kafka_consumergroup_lag_sum{{consumergroup="a",topic="t{topic}"}} 600' for topic in range(2)),
        *(f'kafka_consumergroup_lag_sum{{consumergroup="huge",topic="t{topic}"}} 1200' for topic in range(3)),
        f'kafka_consumergroup_lag_sum{{consumergroup="topics"}} {41 * 60}',
    ]
    assert sorted(found["kafka_consumergroup_current_offset_sum"]) == [
        *(f'kafka_consumergroup_current_offset_sum{{consumergroup="a",topic="t{topic}"}} 400' for topic in range(2)),
        *(f'kafka_consumergroup_current_offset_sum{{consumergroup="huge",topic="t{topic}"}} 800' for topic in range(3)),
    ]
    assert total(found, "barnabas_metrics_omitted_group_offsets") == 60 + 41
    assert total(found, "barnabas_metrics_omitted_group_lags") == 0


async def test_a_scrape_adds_up_so_many_offsets_and_no_more() -> None:
    """A page that takes too long is none, and takes the series of all groups with it."""
    broker = a_broker({"a": offsets(1, 5), "most": offsets(1, 51), "more": offsets(1, 60), "rest": offsets(1, 49)})
    found = await collected(broker, 10)
    assert {line.split('"')[1] for line in found["kafka_consumergroup_lag_sum"]} == {"a", "most", "rest"}
    assert total(found, "barnabas_metrics_omitted_group_lags") == 1
    found = await collected(broker, 0)
    assert found["kafka_consumergroup_lag_sum"] == found["kafka_consumergroup_lag"] == []
    assert total(found, "barnabas_metrics_omitted_group_lags") == 4


async def test_offsets_that_lack_room_and_those_of_too_many_groups_are_counted_apart() -> None:
    """Both were counted as offsets for which metrics.max.group.offsets has no room."""
    broker = a_broker({"a": offsets(1, 10), "huge": offsets(1, 100), "b": offsets(1, 3), "c": offsets(1, 4)})
    found = await collected(broker, 50, most_groups=2)
    assert {line.split('"')[1] for line in found["kafka_consumergroup_lag_sum"]} == {"a", "huge"}
    assert total(found, "barnabas_metrics_omitted_group_offsets") == 100
    assert total(found, "barnabas_metrics_offsets_of_omitted_groups") == 7
    found = await collected(broker, 1000, most_groups=2)
    assert total(found, "barnabas_metrics_omitted_group_offsets") == 0
    assert total(found, "barnabas_metrics_offsets_of_omitted_groups") == 7


@pytest.mark.parametrize(("most", "passes"), [(1000, 3), (100, 2)])
async def test_a_group_with_very_many_offsets_holds_the_loop_in_steps(
    monkeypatch: pytest.MonkeyPatch, most: int, passes: int
) -> None:
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
    found = await collected(broker, most)
    counting.cancel()
    assert found["kafka_consumergroup_lag_sum"] == [
        f'kafka_consumergroup_lag_sum{{consumergroup="a",topic="t0"}} {400 * 60}'
    ]
    assert turns >= passes * 400, "copied if each has a series, looked up, and written or added up"


@pytest.mark.parametrize("most", [10_000, 80])
async def test_what_is_committed_while_a_page_is_made_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
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
    found = await collected(broker, most)
    committing.cancel()
    assert len(found["kafka_consumergroup_lag"]) >= 100 or most < 100
    assert len(found["kafka_consumergroup_lag_sum"]) >= 2
