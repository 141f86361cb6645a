"""What the page gets of a queue's messages in flight."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from barnabas.clients.admin.share_groups import InFlight
from barnabas.clients.errors import RequestRefused
from barnabas.console.cluster.observer import Observer
from barnabas.console.cluster.queues import MOST_RUNS, QueueState
from barnabas.console.cluster.snapshot import ClusterSnapshot, Disks, PartitionSnapshot, TopicSnapshot
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

JOBS = TopicPartition("jobs", 0)


def run(first: int, last: int, state: str, deliveries: int = 1) -> InFlight:
    return InFlight(first=first, last=last, state=state, deliveries=deliveries)


def document(state: QueueState, start: int = 10, ends: dict[TopicPartition, int] | None = None) -> dict[str, Any]:
    topic = TopicSnapshot("dlq.jobs", "id", False, tuple(PartitionSnapshot(n, 0, 0, (0,), (0,)) for n in range(2)))
    snapshot = ClusterSnapshot(
        at=0.0, cluster_id="c", controller=0, brokers={}, topics={"dlq.jobs": topic}, ends=ends or {}, silent={}
    )
    return state.document({JOBS: start}, snapshot, Disks(0.0, {}, dict.fromkeys(ends or {}, 2)))


def test_messages_in_flight_are_counted_from_the_start_on() -> None:
    """A stored run may begin before the start offset."""
    runs = [
        run(15, 15, "Archiving", 5),
        run(8, 11, "Acknowledged"),
        run(12, 13, "Available", 3),
        run(16, 17, "Archived"),
    ]
    (row,) = document(QueueState({JOBS: runs}, None, None, False))["in_flight"]
    first = {"first": 10, "last": 11, "state": "Acknowledged", "deliveries": 1}
    assert row.pop("runs")[0] == first
    assert row == {
        "topic": "jobs",
        "partition": 0,
        "start": 10,
        "available": 2,
        "acknowledged": 2,
        "archiving": 1,
        "archived": 2,
        "deliveries": 3,
    }


def test_a_partition_with_very_many_runs_is_told_in_part_and_counted_whole() -> None:
    runs = [run(number, number, "Available" if number % 2 else "Acknowledged") for number in range(10, 3010)]
    (row,) = document(QueueState({JOBS: runs}, None, None, False))["in_flight"]
    assert (row["available"], row["acknowledged"], len(row["runs"])) == (1500, 1500, MOST_RUNS)


def test_what_may_not_be_seen_is_not_nothing() -> None:
    told = document(QueueState({}, "Cluster authorization failed.", None, False))
    assert (told["in_flight"], told["in_flight_refusal"]) == (None, "Cluster authorization failed.")
    assert document(QueueState({}, None, None, False))["in_flight"] == []


async def test_a_queue_that_may_not_be_seen_is_not_asked_for_with_every_look() -> None:
    """The page looks every two seconds, and brokers note each refusal in their logs."""
    asked: list[str] = []

    class Refusing:
        def in_flight(self, group_id: str) -> None:
            asked.append(group_id)
            raise RequestRefused(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")

    class NoSettings:
        def describe(self, *_: object) -> dict[str, list[object]]:
            return {"workers": []}

    class Asked:
        avoids_some = False

        async def ask(self, question: Any) -> Any:
            return question(SimpleNamespace(share_groups=Refusing(), configs=NoSettings()))

    observer = Observer(cast("Any", Asked()))
    for _ in range(3):
        found = await observer.queue("workers")
        assert (found.refusal, found.is_forbidden) == ("Cluster authorization failed.", True)
    assert asked == ["workers"]


def test_dead_letters_are_counted_where_all_leaders_answered() -> None:
    state = QueueState({}, None, "dlq.jobs", True)
    first, second = (TopicPartition("dlq.jobs", number) for number in range(2))
    told = document(state, ends={first: 5, second: 2})["dead_letters"]
    assert told == {"topic": "dlq.jobs", "copies": True, "records": 3}
    assert document(state, ends={first: 5})["dead_letters"]["records"] is None
