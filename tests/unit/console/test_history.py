"""A day of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.console.history import GAP_SECONDS, KEPT_SECONDS, History, Point, thinned

if TYPE_CHECKING:
    from pathlib import Path


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
