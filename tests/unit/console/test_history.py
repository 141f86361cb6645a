"""A day of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.console import history as module
from barnabas.console.history import GAP_SECONDS, KEPT_SECONDS, History, Point, thinned

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def values(history: History, name: str, since: float, until: float, most: int) -> list[float | None]:
    return [point.value for point in history.read_here(name, since, until, most)]


def test_a_value_holds_until_the_next_and_a_gap_is_a_gap() -> None:
    points = [Point(100, 5.0), Point(120, 7.0), Point(120 + 2 * GAP_SECONDS, 9.0)]
    found = [point.value for point in thinned(points, 100, 120 + 2 * GAP_SECONDS + 20, 40)]
    assert found[:2] == [5.0, 7.0]
    assert None in found
    assert found[-1] == 9.0


def test_figures_survive_a_restart_and_clusters_are_apart(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add_here("one", 1000, {"records": 1.0})
    history.add_here("one", 1010, {"records": 2.0})
    history.add_here("two", 1010, {"records": 50.0})
    history.close()
    again = History(tmp_path)
    again.add_here("one", 1020, {"lag": 3.0})
    assert values(again, "records", 1000, 1020, 2) == [1.0, 2.0]
    again.close()


def test_a_value_that_stays_is_stored_now_and_then_only(tmp_path: Path) -> None:
    history = History(tmp_path)
    for second in range(0, 600, 10):
        history.add_here("one", 10_000 + second, {"records": 1.0})
    connection = history._open(tmp_path / "history-one.sqlite")
    assert connection.execute("SELECT count(*) FROM points").fetchone() == (2,)
    assert set(values(history, "records", 10_000, 10_600, 60)) == {1.0}
    history.close()


def test_what_is_older_than_a_day_goes(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add_here("one", 1000, {"old": 1.0})
    history.add_here("one", 1000 + KEPT_SECONDS + 700, {"new": 1.0})
    connection = history._open(tmp_path / "history-one.sqlite")
    assert connection.execute("SELECT name FROM series").fetchall() == [("new",)]
    history.close()


def names(history: History, folder: Path) -> set[str]:
    return {name for (name,) in history._open(folder / "history-one.sqlite").execute("SELECT name FROM series")}


def test_totals_and_what_is_at_work_have_places_before_what_rests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 topics the first 5,000 by name had the places, and the totals that came last had none."""
    monkeypatch.setattr(module, "MOST_SERIES", 10)
    monkeypatch.setattr(module, "MOST_RESTING", 5)
    history = History(tmp_path)
    resting = {f"records:idle-{number}": 0.0 for number in range(20)}
    busy = {f"records:busy-{number}": 1.0 for number in range(4)}
    totals = {"records": 4.0, "lag": 0.0, "bytes-in": 7.0, "under-replicated": 0.0}
    history.add_here("one", 990, {"records": 1.0})
    history.add_here("one", 1000, {**resting, **busy, **totals})
    assert names(history, tmp_path) == {f"records:idle-{number}" for number in range(4)} | busy.keys() | totals.keys()
    more = {f"records:more-{number}": 1.0 for number in range(9)}
    history.add_here("one", 1010, {**more, "bytes-out": 1.0})
    assert "bytes-out" in names(history, tmp_path)
    assert not names(history, tmp_path) & more.keys(), "all places are taken"
    history.add_here("one", 1010 + module.PRUNE_SECONDS, busy)
    history.add_here("one", 1020 + module.PRUNE_SECONDS, {**resting, **more})
    found = names(history, tmp_path)
    assert busy.keys() | totals.keys() <= found, "totals stay also where they are nought"
    assert found & more.keys(), "what rested all the time has made room"
    assert not found & resting.keys()
    history.close()


def test_what_is_cleared_out_is_found_without_a_look_at_every_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every ten minutes all points were gone over while there were many series: 0.1 s for each million."""
    monkeypatch.setattr(module, "MOST_RESTING", 5)
    history = History(tmp_path)
    history.add_here("one", 1000, {"records:rest": 0.0, "lag": 0.0})
    connection = history._open(tmp_path / "history-one.sqlite")
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def pruning(first: int, points: int) -> int:
        """Instructions of SQLite, in hundreds, that it takes once there are these points, too."""
        nonlocal steps
        for at in range(first, first + points):
            history.add_here("one", at, {f"records:busy-{number}": float(at) for number in range(10)})
        steps = 0
        connection.set_progress_handler(count, 100)
        history._prune(connection, first + points)
        connection.set_progress_handler(None, 0)
        return steps

    few = pruning(1000, 10)
    assert names(history, tmp_path) == {f"records:busy-{number}" for number in range(10)} | {"lag"}
    assert pruning(1010, 500) <= 2 * few + 10
    history.close()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "history-one.sqlite").write_bytes(b"this is no database, but long enough to be taken for one" * 100)
    history = History(tmp_path)
    history.add_here("one", 1000, {"records": 1.0})
    assert values(history, "records", 990, 1010, 1) == [1.0]
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1
    history.close()


async def test_a_folder_that_cannot_be_written_costs_the_history_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "below")
    await history.add("one", 1000, {"records": 1.0})
    assert await history.read("records", 990, 1010, 1) == []
    history.close()


def test_a_cluster_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    history = History(tmp_path / "here")
    history.add_here("../../elsewhere", 1000, {"records": 1.0})
    history.close()
    assert {path.parent for path in tmp_path.rglob("*.sqlite")} == {tmp_path / "here"}
