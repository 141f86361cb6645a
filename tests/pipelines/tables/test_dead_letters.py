"""Dead letters that were promised reach their table, whatever happens between: a crash, upkeep, a removed table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from barnabas.cli.table.command import command
from barnabas.pipelines.loading.dead_letters import deliver, promised_files
from barnabas.pipelines.tables.errors import Fenced, FilesGone, UnusableTarget
from barnabas.pipelines.tables.files.writing import write_files
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.dead_letters import delivered, letters, promise
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import IDS, add


@pytest.mark.parametrize("kind", FORMATS)
def test_upkeep_leaves_what_is_promised(tmp_path: Path, kind: str) -> None:
    place, beside = str(tmp_path / "lake" / "t"), str(tmp_path / "lake" / "t_dead")
    with open_table(place, kind) as table, open_table(beside, kind) as dead:
        promise(table, dead, 0)
        deliver(table.outbox("p"), dead, "p", IDS)
        promise(table, dead, 1)
        orphan = write_files([letters(7)], dead.destination())
        assert len(orphan) == 1
    command(
        ["expire", beside, "--format", kind, "--older-than", "0s", "--orphans-older-than", "0s"], standalone_mode=False
    )
    assert len(promised_files(beside, kind, "default", None)) == 1
    assert not promised_files(place, kind, "default", None)
    with open_table(place, kind) as table, open_table(beside, kind) as dead:
        assert not dead.destination().has(orphan[0].path)
        deliver(table.outbox("p"), dead, "p", IDS)
        deliver(table.outbox("p"), dead, "p", IDS)
        assert delivered(dead) == [0, 1]


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_removed_table_of_dead_letters_begins_anew(tmp_path: Path, kind: str) -> None:
    with open_table(str(tmp_path / "t"), kind) as table:
        with open_table(str(tmp_path / "t_dead"), kind) as dead:
            promise(table, dead, 0)
            deliver(table.outbox("p"), dead, "p", IDS)
        shutil.rmtree(tmp_path / "t_dead")
        with open_table(str(tmp_path / "t_dead"), kind) as dead:
            deliver(table.outbox("p"), dead, "p", IDS)
            promise(table, dead, 1)
            deliver(table.outbox("p"), dead, "p", IDS)
            assert delivered(dead) == [1]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", [".", "t/.", "./", "more/../../t"])
def test_they_are_beside_a_table_that_is_named_by_dots(
    tmp_path: Path, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t" / "t").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "t")
    topic = MemoryTopic()
    topic.send(b'{"n": 1}', b"broken")
    assert load_from(topic, name, monkeypatch, format=kind).dead == 1
    assert Path(f"{Path(name).resolve()}_dead").is_dir()


def test_a_table_of_dead_letters_may_be_removed_under_a_load(tmp_path: Path) -> None:
    place = str(tmp_path / "t_dead")
    with open_table(str(tmp_path / "t"), "parquet") as table, open_table(place, "parquet") as dead:
        promise(table, dead, 0)
        deliver(table.outbox("p"), dead, "p", IDS)
        shutil.rmtree(place)
        promise(table, dead, 1)
        deliver(table.outbox("p"), dead, "p", IDS)
        assert delivered(dead) == [1]
        with open_table(place, "parquet") as other, pytest.raises(Fenced, match="lock is held"):
            other.claim()


@pytest.mark.parametrize("kind", FORMATS)
def test_letters_that_were_removed_are_missed_before_anything_is_added(tmp_path: Path, kind: str) -> None:
    with open_table(str(tmp_path / "t"), kind) as table, open_table(str(tmp_path / "t_dead"), kind) as dead:
        promise(table, dead, 0)
        deliver(table.outbox("p"), dead, "p", IDS)
        promise(table, dead, 1)
        [path] = promised_files(dead.location, kind, "default", None)
        lost = tmp_path / "t_dead" / path
        saved = lost.rename(tmp_path / "saved")
        with pytest.raises(FilesGone, match=r"t-0.*Restore it, or move all of .*t_dead away"):
            deliver(table.outbox("p"), dead, "p", IDS)
        dead.close()
    with open_table(str(tmp_path / "t"), kind) as table, open_table(str(tmp_path / "t_dead"), kind) as dead:
        dead.claim()
        assert delivered(dead) == [0]
        saved.rename(lost)
        deliver(table.outbox("p"), dead, "p", IDS)
        assert delivered(dead) == [0, 1]


def test_an_iceberg_table_without_its_files_is_told(tmp_path: Path) -> None:
    with open_table(str(tmp_path / "t"), "iceberg") as table:
        add(table, 0, 10)
    shutil.rmtree(tmp_path / "t")
    with pytest.raises(UnusableTarget, match=r"the catalog has default\.t, and its files are gone"):
        open_table(str(tmp_path / "t"), "iceberg")
