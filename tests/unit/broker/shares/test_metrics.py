"""What the metrics page says of what queues have still to do; of their dead letters: `test_archiving`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.metrics.scrape import Pace
from barnabas.broker.metrics.series.coordinators import CoordinatorSeries
from barnabas.model.errors import ErrorCode
from tests.support.share_members import ACCEPT, GROUP, RELEASE, Member, acquired, later, queue, send

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext


OMITTED = "barnabas_metrics_omitted_share_partitions"


async def series(broker: BrokerContext, most: int = 100) -> dict[str, str]:
    """The values of all series of queues, by name and labels."""
    families = await CoordinatorSeries(broker, most).collect(Pace())
    lines = "".join(line for family in families for line in family.lines).splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line.startswith(("barnabas_sharegroup_", OMITTED)))


async def left(broker: BrokerContext) -> tuple[str, str]:
    """The lag of the group, and how much of it is in flight."""
    found = await series(broker)
    place = f'{{group="{GROUP}",topic="jobs",partition="0"}}'
    return found[f"barnabas_sharegroup_lag{place}"], found[f"barnabas_sharegroup_in_flight{place}"]


async def test_what_a_group_has_still_to_do_is_shown_until_it_is_done(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        assert await series(broker) == {OMITTED: "0"}, "nobody has fetched yet"
        send(broker, 4)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 3, 1)]
        send(broker, 2)
        assert await left(broker) == ("6", "4"), "two are behind the end of what was delivered"
        assert await anna.acknowledge((1, 2, ACCEPT)) is ErrorCode.none
        assert await left(broker) == ("4", "4"), "the oldest one holds the start"
        assert await anna.acknowledge((0, 0, ACCEPT), (3, 3, RELEASE)) is ErrorCode.none
        assert await left(broker) == ("3", "1")
        assert acquired(await anna.fetch()) == [(3, 3, 2), (4, 5, 1)]
        await later(broker, 30_001)
        assert await left(broker) == ("3", "3"), "a lock that is over makes nothing done"


async def test_partitions_without_series_of_their_own_are_counted(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]
        assert await series(broker, 0) == {OMITTED: "1"}
        assert (await series(broker, 1))[OMITTED] == "0"
