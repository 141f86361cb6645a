"""Dead letters beside a table are its own: those of a table or topic that was there before are not mixed with them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.tables.errors import ForeignTable
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ["parquet", "delta"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("id", ["topic-one", "topic-two"])
def test_a_table_that_was_removed_leaves_letters_that_are_not_added_to(
    tmp_path: Path, kind: str, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, place = MemoryTopic(), tmp_path / "t"
    topic.send(b'{"n": 1}', b"broken")
    load_from(topic, str(place), monkeypatch, format=kind)
    shutil.rmtree(place)
    topic.id = id
    with pytest.raises(
        ForeignTable, match=r"t_dead has dead letters of a table that was here before, .* \(the table is"
    ):
        load_from(topic, str(place), monkeypatch, format=kind)
    assert not list(place.rglob("*.parquet")), "nothing is written before that is found"
    assert content(kind, tmp_path / "t_dead").num_rows == 1
    (tmp_path / "t_dead").rename(tmp_path / "away")
    assert load_from(topic, str(place), monkeypatch, format=kind).dead == 1
    assert content(kind, tmp_path / "t_dead").num_rows == 1


@pytest.mark.parametrize(
    ("id", "more", "found"), [("topic-one", 1, "reach to offset 2"), ("topic-two", 9, "the topic")]
)
def test_letters_of_another_table_are_not_taken_for_its_own(
    tmp_path: Path, id: str, more: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = MemoryTopic()
    topic.send(b'{"n": 1}', b"broken")
    load_from(topic, str(tmp_path / "old"), monkeypatch)
    topic = MemoryTopic()
    topic.id = id
    topic.send(*[b'{"n": 1}'] * more)
    load_from(topic, str(tmp_path / "t"), monkeypatch)
    (tmp_path / "old_dead").rename(tmp_path / "t_dead")
    topic.send(b"also broken")
    with pytest.raises(ForeignTable, match=found):
        load_from(topic, str(tmp_path / "t"), monkeypatch)
    with open_table(str(tmp_path / "t"), "parquet") as table:
        assert table.outbox("p") is None, "nothing was promised"
