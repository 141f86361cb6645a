"""What `barnabas load` and `barnabas table` say, without Spark."""

from __future__ import annotations

import datetime
import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from click.testing import CliRunner

from barnabas.cli.common.values.durations import DURATION
from barnabas.cli.load.command import show
from barnabas.cli.load.progress import Bar, progress_text
from barnabas.cli.main import cli
from barnabas.clients.admin.topics import TopicInfo
from barnabas.model.ids import TopicPartition
from barnabas.pipelines.errors import DataLost, OffsetOutOfRange
from barnabas.pipelines.loading.plan import check_position, plan_round
from barnabas.pipelines.loading.progress import LoadProgress, LoadReport
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.files.writing import write_files
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.unit.cli.conftest import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("500ms", 0.5), ("5m", 300), ("2h", 7200), ("7d", 604800)])
def test_lengths_of_time(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == datetime.timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--every", "soon"], "is no length of time"),
        (["--every", "5s", "--available-now"], "Give --available-now or --every, not both."),
        (["--format", "orc"], "'orc' is not one of"),
        (["--option", "x"], "--option x is not of the form NAME=VALUE."),
        (["--conf", "y"], "--conf y is not of the form NAME=VALUE."),
    ],
)
def test_wrong_words(words: list[str], expected: str) -> None:
    done = CliRunner().invoke(cli, ["load", "orders", "--to", "somewhere", *words])
    assert done.exit_code == 2
    assert expected in done.output


def test_progress_in_words() -> None:
    progress = LoadProgress(records=50_000, size=5_000_000, done=60_000, lag=30_000, seconds=2)
    assert progress_text(progress) == "50,000 records, 5.0 MB, 25,000/s, lag 30,000, about 1 s left"


def test_one_record_is_one() -> None:
    progress = LoadProgress(records=1, size=32, done=1, lag=0, seconds=10)
    assert progress_text(progress) == "1 record, 32 B, 0/s, lag 0, about 0 s left"


def test_a_bar_shows_one_time_that_is_left(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """rich's own column would draw another one, by the pace of the last moments."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar("sales") as bar:
        for done in (100, 200, 300):
            bar.show(LoadProgress(records=done, size=5000, done=done, lag=1000 - done, seconds=10.0))
    drawn = capsys.readouterr().err
    assert "300 records, 5.0 KB, 30/s, lag 700, about 23 s left" in drawn
    assert not re.search(r"-:--:--|\d:\d\d:\d\d", drawn), drawn


def test_a_round_covers_so_much_and_notes_where_new_partitions_are() -> None:
    planned = plan_round({P0: 10, P1: 5}, {P0: 110, P1: 5}, {P0: 10}, tasks=2, most=40)
    assert planned.ranges == [OffsetRange("t", 0, 10, 50), OffsetRange("t", 1, 5, 5)]
    assert planned.pieces == [(OffsetRange("t", 0, 10, 50),)]


def test_large_rounds_are_cut_for_tasks() -> None:
    planned = plan_round({P0: 0}, {P0: 2_000_000}, {}, tasks=2)
    assert [[each.size for each in piece] for piece in planned.pieces] == [[500_000]] * 4


@pytest.mark.parametrize("tasks", [2, 100])
def test_small_ranges_share_tasks(tasks: int) -> None:
    places = [TopicPartition("t", number) for number in range(1000)]
    ends = {place: 1_000_000 if place.partition == 500 else 5 for place in places}
    planned = plan_round(dict.fromkeys(places, 0), ends, {}, tasks)
    assert [each for piece in planned.pieces for each in piece] == list(planned.ranges)
    assert 16 <= len(planned.pieces) <= max(64, tasks)
    assert max(map(len, planned.pieces)) <= 63


@pytest.mark.parametrize(("to", "named"), [("lake/t", "lake/t_dead"), ("lake/t/", "lake/t_dead")])
def test_the_dead_letters_are_named_as_they_can_be_opened(
    to: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(LoadReport(records=3, dead=1, size=30, commits=1, seconds=1.5), to, as_json=False)
    assert capsys.readouterr().out == f"Loaded 3 records (30 B) in 1.5 s (2/s) in 1 commit, of which 1 is in {named}.\n"


def test_a_load_that_never_waits_is_refused() -> None:
    done = CliRunner().invoke(cli, ["load", "t", "--to", "t", "--every", "0s", "--bootstrap-server", "127.0.0.1:1"])
    assert done.exit_code == 1
    assert "cannot look for new records every 0 s" in done.output


def test_the_lag_behind_another_topic_of_the_name_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Admin:
        def describe_topics(self, names: Sequence[str]) -> list[TopicInfo]:
            return [TopicInfo(name=name, topic_id=f"{name}-now", partitions=()) for name in names]

        def end_offsets(self, places: Sequence[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
            return dict.fromkeys(places, 7)

    with open_table(str(tmp_path), "parquet") as table:
        ranges = [OffsetRange("new", 0, 0, 5), OffsetRange("same", 0, 0, 5)]
        table.commit("p", ranges, {"new": "new-before", "same": "same-now"}, [], pa.schema([("n", pa.int64())]))
    monkeypatch.setattr("barnabas.cli.common.connection.open_cluster", lambda *_: FakeCluster(topics=Admin()))
    shown = CliRunner().invoke(cli, ["table", "describe", str(tmp_path), "--json"])
    assert [each["lag"] for each in json.loads(shown.stdout)["partitions"]] == [None, 2]
    assert "The lag of new is not known: the topic was deleted and made again" in shown.stderr


def test_a_position_that_the_topic_does_not_have_is_refused() -> None:
    with pytest.raises(OffsetOutOfRange, match="its log was truncated"):
        check_position({P0: 10}, {P0: 0}, {P0: 5}, fail_on_data_loss=False)
    with pytest.raises(DataLost, match="3 offsets were removed"):
        check_position({P0: 10}, {P0: 13}, {P0: 20}, fail_on_data_loss=True)
    with pytest.raises(DataLost, match="no such partition"):
        check_position({P1: 10}, {P0: 0}, {P0: 20}, fail_on_data_loss=False)
    check_position({P0: 10}, {P0: 13}, {P0: 20}, fail_on_data_loss=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_upkeep_of_a_table(tmp_path: Path, kind: str) -> None:
    place = str(tmp_path / "lake" / "numbers")
    with open_table(place, kind) as table:
        for start in (0, 10):
            batch = pa.record_batch({"n": list(range(start, start + 10))})
            files = write_files([batch], table.destination())
            table.commit("p", [OffsetRange("t", 0, start, start + 10)], {"t": "id"}, files, batch.schema)
    words = [place, "--format", kind]
    nobody = ["--bootstrap-server", "127.0.0.1:1", "--json"]
    shown = CliRunner().invoke(cli, ["table", "describe", *words, *nobody])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert (found["rows"], found["files"], found["pipeline"], found["commits"]) == (20, 2, "p", 2)
    assert found["partitions"] == [{"topic": "t", "partition": 0, "offset": 20, "lag": None}]
    assert found["columns"] == {"n": "BIGINT"}
    assert "The lag is not known" in shown.stderr
    assert CliRunner().invoke(cli, ["table", "compact", *words]).output == "Merged 2 files into 1.\n"
    assert CliRunner().invoke(cli, ["table", "compact", *words]).output == "There is nothing to merge.\n"
    dropped = CliRunner().invoke(cli, ["table", "expire", *words, "--older-than", "0s", "--orphans-older-than", "0s"])
    assert dropped.exit_code == 0, dropped.output
    with open_table(place, kind) as table:
        assert table.size().rows == 20


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["table", "describe", str(tmp_path / "none"), "--bootstrap-server", "127.0.0.1:1"])
    assert done.exit_code == 1
    assert "there is no table at" in done.output


def test_files_of_a_table_have_a_largest_size(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["table", "compact", str(tmp_path), "--target-size", str(10**14)])
    assert done.exit_code == 2
    assert "is not from 1 to 1048576." in done.output
