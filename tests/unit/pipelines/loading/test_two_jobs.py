"""What happens to the table and to the topic while tasks read: another job commits, or the topic is made again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.pipelines.decode.contract import METADATA
from barnabas.pipelines.loading.commits import LoadCommits
from barnabas.pipelines.loading.group import LoadGroup
from barnabas.pipelines.loading.job import LoadJob
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.errors import Fenced, ForeignTable, TopicReplaced
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import MemoryTopic, load_from, ranges_by
from tests.support.tables import content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from barnabas.model.ids import TopicPartition

pytestmark = pytest.mark.slow

KINDS = ["delta", "iceberg"]


class Eventful(MemoryTopic):
    """A topic where something `happens` when it is next read, or asked where it begins."""

    while_read: Callable[[], object] | None = None
    while_asked: Callable[[], object] | None = None

    def read(self, *given: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        happens, self.while_read = self.while_read, None
        if happens is not None:
            happens()
        return super().read(*given, **named)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        happens, self.while_asked = self.while_asked, None
        if happens is not None:
            happens()
        return super().earliest(partitions)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def die_before_delivery(patch: pytest.MonkeyPatch) -> None:
    """Let jobs end between their commit and its dead letters: once a round has told the group where it begins."""
    patch.setattr(LoadGroup, "commit", lambda *_: patch.setattr(LoadCommits, "deliver_letters", interrupted))


@pytest.mark.parametrize("kind", KINDS)
def test_a_promise_of_a_job_that_died_is_kept_by_one_that_lives(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one dies between its commit and its delivery, while this one waits for its next round."""
    topic, place = MemoryTopic(), str(tmp_path / "lake" / "t")
    rounds = iter([b'{"n": 2}', None])

    def other_dies(self: LoadJob, session: Any, _: object) -> bool:
        more = next(rounds)
        if more is None:
            return False
        topic.send(b"broken")
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(LoadJob, "_run_round", real)
            die_before_delivery(patch)
            load_from(topic, place, monkeypatch, format=kind)
        topic.send(more)
        return real(self, session, None)

    real = LoadJob._run_round
    topic.send(b'{"n": 1}')
    load_from(topic, place, monkeypatch, format=kind)
    monkeypatch.setattr(LoadJob, "_run_round", other_dies)
    assert load_from(topic, place, monkeypatch, format=kind).records == 1
    assert sorted(content(kind, place).column("n").to_pylist()) == [1, 2]
    assert content(kind, f"{place}_dead").column("value").to_pylist() == [b"broken"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_follows_another_one_than_was_seen_is_fenced(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other job loads another partition, so the offsets alone would not tell."""
    place = str(tmp_path / "lake" / "t")

    def meddle() -> None:
        other = MemoryTopic(partitions=2)
        other.values = [topic.values[0][:1], [*topic.values[1], b"broken"]]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            die_before_delivery(patch)
            load_from(other, place, patch, format=kind)
        monkeypatch.setattr("barnabas.pipelines.loading.tasks.task.read_ranges", ranges_by(topic.read))

    topic = Eventful(partitions=2)
    topic.send(b'{"n": 1}')
    topic.send(b'{"n": 2}', partition=1)
    load_from(topic, place, monkeypatch, format=kind)
    topic.send(b'{"n": 3}')
    topic.while_read = meddle
    with pytest.raises(Fenced, match="was changed while records were read for it"):
        load_from(topic, place, monkeypatch, format=kind)
    topic.send(b"broken", partition=1)
    assert load_from(topic, place, monkeypatch, format=kind).records == 1
    assert sorted(content(kind, place).column("n").to_pylist()) == [1, 2, 3]
    assert content(kind, f"{place}_dead").column("value").to_pylist() == [b"broken"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [[], [b'{"n": 1}']])
def test_letters_that_another_job_delivers_meanwhile_are_the_tables_own(
    tmp_path: Path, kind: str, before: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other job commits and delivers while this one, which has seen the table, asks where the topic begins."""
    topic, place = Eventful(), str(tmp_path / "lake" / "t")
    topic.send(*before)
    load_from(topic, place, monkeypatch, format=kind)
    topic.send(b"broken")
    topic.while_asked = partial(load_from, topic, place, monkeypatch, format=kind)
    assert load_from(topic, place, monkeypatch, format=kind).records == 0
    assert content(kind, f"{place}_dead").column("value").to_pylist() == [b"broken"]


def test_a_topic_that_is_made_again_meanwhile_is_not_loaded_under_the_old_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Eventful()
    topic.send(b'{"n": 1}')
    topic.while_read = lambda: setattr(topic, "id", "topic-two")
    with pytest.raises(TopicReplaced, match="created again while it was read"):
        load_from(topic, str(tmp_path / "t"), monkeypatch)
    with open_table(str(tmp_path / "t"), "parquet") as table:
        assert table.position("p") is None


@pytest.mark.parametrize("kind", ["parquet", *KINDS])
@pytest.mark.parametrize(("made", "named"), [(["t"], "t"), (["t", "t_dead"], "t"), (["t_dead"], "t_dead")])
def test_a_table_of_another_topic_is_refused_for_its_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, made: list[str], named: str
) -> None:
    """It is also of another pipeline, since a load is called after its topic; that name would not help."""
    ranges = [OffsetRange("other", 0, 0, 0)]
    for name in made:
        with open_table(str(tmp_path / name), kind) as table:
            table.commit("load-other", ranges, {"other": "id"}, [], METADATA)
    with pytest.raises(ForeignTable, match=f"/{named} holds the topic other, not t: load into another table"):
        load_from(MemoryTopic(), str(tmp_path / "t"), monkeypatch, format=kind)
