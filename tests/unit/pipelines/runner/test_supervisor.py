"""Queries are started again while it helps, and stopped between batches."""

from __future__ import annotations

from threading import Event

import pytest

from barnabas.pipelines.errors import DataLost
from barnabas.pipelines.runner import supervisor
from barnabas.pipelines.runner.supervisor import FIRST_PAUSE, TRIES, QueryFailed, supervise


class FakeQuery:
    """Runs through what it is told to do: each run gives batches, and then an error, an end, or goes on."""

    def __init__(self, name: str, *runs: tuple[int, Exception | str | None]) -> None:
        self.name = name
        self._runs = list(runs)
        self.starts = 0
        self.failure: BaseException | None = None
        self.last_batch: int | None = None
        self.is_active = False
        self.is_starting = False
        self.is_slow = False
        self.is_between_batches = True
        self.closed_after: int | None = None

    def start(self) -> None:
        self.starts += 1
        batches, end = self._runs.pop(0)
        if end == "does not start":
            raise OSError("no broker")
        self.last_batch = batches or None
        self.failure = end if isinstance(end, Exception) else None
        self.is_active = end == "goes on"
        self.is_starting = self.is_slow

    def close(self) -> None:
        self.closed_after = self.last_batch


class Clock:
    """Time passes by being asked for."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 0.5
        return self.seconds


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.0)


def test_a_run_ends_when_all_queries_have_read_everything() -> None:
    queries = [FakeQuery("a", (1, None)), FakeQuery("b", (5, None))]
    supervise(queries, Event(), now=Clock())
    assert [query.starts for query in queries] == [1, 1]
    assert [query.closed_after for query in queries] == [1, 5]


def test_a_query_waits_until_the_one_before_has_made_its_sources() -> None:
    first, second = FakeQuery("a", (1, "goes on")), FakeQuery("b", (5, "goes on"))
    first.is_slow = True
    starts: list[tuple[int, int]] = []

    class Looks(Event):
        """Between the looks of the supervisor, the first query becomes ready; it stops when both run."""

        def wait(self, timeout: float | None = None) -> bool:
            starts.append((first.starts, second.starts))
            first.is_starting = False
            return second.starts == 1

    supervise([first, second], Looks(), now=Clock())
    assert starts == [(1, 0), (1, 1)]


def test_queries_that_run_are_asked_no_more_than_whether_they_do() -> None:
    """Each question goes to Spark's process, ten times a second."""
    asked: list[str] = []

    class Asked(FakeQuery):
        def __getattribute__(self, name: str) -> object:
            if name in ("is_active", "is_starting", "last_batch"):
                asked.append(name)
            return super().__getattribute__(name)

    queries = [Asked(name, (1, "goes on")) for name in "abc"]

    class Looks(Event):
        """All queries run after three looks; the fourth is the one that counts."""

        looks = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.looks += 1
            if self.looks == 3:
                asked.clear()
            elif self.looks == 4:
                assert asked == ["is_active"] * 3
            return self.looks == 4

    stop = Looks()
    supervise(queries, stop, now=Clock())
    assert stop.looks == 4 and [query.starts for query in queries] == [1, 1, 1]


def test_a_query_is_started_again_after_a_failure_that_passes() -> None:
    query = FakeQuery("a", (0, "does not start"), (0, OSError("reset")), (2, None))
    clock = Clock()
    supervise([query], Event(), now=clock)
    assert query.starts == 3
    assert clock.seconds > FIRST_PAUSE * (1 + 2), "pauses double"


def test_queries_whose_broker_is_away_do_not_keep_another_from_its_own() -> None:
    clock = Clock()

    class Waits(FakeQuery):
        """It waits for a broker, as long as that takes."""

        def start(self) -> None:
            clock.seconds += 60
            super().start()

    away = [Waits(name, *[(0, "does not start")] * TRIES) for name in "ab"]
    other = FakeQuery("c", (1, "goes on"))
    with pytest.raises(QueryFailed, match="no broker"):
        supervise([*away, other], Event(), now=clock)
    assert other.starts == 1


def test_a_query_that_never_finishes_a_batch_is_given_up() -> None:
    query = FakeQuery("a", *[(0, OSError("reset"))] * 20)
    with pytest.raises(QueryFailed, match=rf"a failed {TRIES} times without a finished batch: reset"):
        supervise([query], Event(), now=Clock())
    assert query.starts == TRIES


def test_a_finished_batch_is_a_new_chance() -> None:
    runs: list[tuple[int, Exception | None]] = [(1, OSError("reset"))] * (TRIES + 3)
    query = FakeQuery("a", *runs, (1, None))
    supervise([query], Event(), now=Clock())
    assert query.starts == TRIES + 4


def test_a_failure_that_needs_somebody_ends_the_run_and_stops_the_others() -> None:
    failing, other = FakeQuery("a", (3, DataLost("gone. Do this"))), FakeQuery("b", (4, "goes on"))
    with pytest.raises(QueryFailed, match=r"a: gone\. Do this"):
        supervise([other, failing], Event(), now=Clock())
    assert other.closed_after == 4
    assert failing.starts == 1


def test_a_stop_waits_for_the_batch_that_is_under_way() -> None:
    query = FakeQuery("a", (1, "goes on"))
    query.is_between_batches = False
    stop = Event()
    stop.set()
    looks = 0

    def now() -> float:
        nonlocal looks
        looks += 1
        if looks == 10:
            query.last_batch = 2
        return float(looks)

    supervise([query], stop, now=now)
    assert query.closed_after == 2


def test_a_batch_that_never_ends_does_not_hold_a_stop_up_for_ever() -> None:
    query = FakeQuery("a", (1, "goes on"))
    query.is_between_batches = False
    stop = Event()
    stop.set()
    clock = Clock()
    supervise([query], stop, now=clock)
    assert query.closed_after == 1
    assert clock.seconds >= supervisor.FINISH_SECONDS
