"""What an exactly-once sink does with its rows, by the notes that are there."""

from __future__ import annotations

import pytest

from barnabas.pipelines.errors import MarkerRefused
from barnabas.pipelines.spark.write.markers import (
    EpochNote,
    TaskNote,
    TaskOfEpoch,
    Verdict,
    check_replay,
    compare,
    earlier_writers,
    replay_verdict,
    task_of,
    verdict,
)
from barnabas.pipelines.spark.write.rows import Fingerprint

ROWS = Fingerprint(3, 0xABC)


def task(epoch: int) -> TaskOfEpoch:
    return TaskOfEpoch("query", "run", epoch, 1)


def done(epoch: int) -> EpochNote:
    return EpochNote(epoch, "run", 2)


def written(epoch: int) -> TaskNote:
    return TaskNote(epoch, "run", ROWS)


def test_the_first_epoch_is_written() -> None:
    assert verdict(task(0), None, None) is Verdict.WRITE


def test_the_epoch_after_a_finished_one_is_written() -> None:
    assert verdict(task(5), done(4), written(4)) is Verdict.WRITE
    assert verdict(task(5), done(4), None) is Verdict.WRITE, "a task that had no rows before has no note"


def test_a_task_that_was_done_is_only_compared() -> None:
    assert verdict(task(0), None, written(0)) is Verdict.COMPARE
    assert verdict(task(5), done(4), written(5)) is Verdict.COMPARE


def test_an_epoch_that_was_done_is_skipped() -> None:
    assert verdict(task(5), done(5), written(5)) is Verdict.SKIP
    assert verdict(task(5), done(5), None) is Verdict.SKIP


def test_nothing_is_written_when_the_note_of_the_epoch_before_is_gone() -> None:
    with pytest.raises(MarkerRefused, match=r"no note that epoch 4 was written.*offsets\.retention\.minutes"):
        verdict(task(5), None, None)
    with pytest.raises(MarkerRefused, match="no note that epoch 4"):
        verdict(task(5), done(3), None)


def test_nothing_is_written_from_a_checkpoint_that_is_older_than_the_topic() -> None:
    with pytest.raises(MarkerRefused, match="epochs up to 7 are written already"):
        verdict(task(5), done(7), None)
    with pytest.raises(MarkerRefused, match="epoch 6 is written already"):
        verdict(task(5), done(4), written(6))


def test_a_task_that_was_done_and_has_other_rows_now_is_refused() -> None:
    compare(task(5), written(5), ROWS)
    with pytest.raises(MarkerRefused, match="had 3 rows before, and now has 4"):
        compare(task(5), written(5), Fingerprint(4, 0xABC))
    with pytest.raises(MarkerRefused, match="number of tasks must not change"):
        compare(task(5), written(5), Fingerprint(3, 0xABD))


def test_only_other_runs_wrote_earlier() -> None:
    notes = {0: TaskNote(5, "before", ROWS), 1: TaskNote(5, "run", ROWS), 2: TaskNote(4, "before", ROWS)}
    assert earlier_writers(notes, 5, "run") == {0}


def test_a_task_without_a_note_in_an_epoch_that_was_written_in_part_is_surveyed_first() -> None:
    assert replay_verdict(task(5), None, None) is Verdict.SURVEY
    assert replay_verdict(task(5), done(4), written(4)) is Verdict.SURVEY, "that was another replay"


def test_it_writes_what_was_surveyed_and_approved() -> None:
    assert replay_verdict(task(5), done(5), written(5)) is Verdict.WRITE_SURVEYED
    for survey in (None, written(4), TaskNote(5, "another run", ROWS)):
        with pytest.raises(MarkerRefused, match="no rows when the replay was surveyed"):
            replay_verdict(task(5), done(5), survey)


def test_a_replay_without_a_task_that_wrote_is_refused() -> None:
    check_replay("query", 5, set(), 2, done(5))
    check_replay("query", 5, set(), 3, done(4))
    with pytest.raises(MarkerRefused, match="tasks 3, 4 wrote rows of it before, and have none now"):
        check_replay("query", 5, {4, 3}, 2, None)
    with pytest.raises(MarkerRefused, match="had 2 tasks when it was surveyed, and now has 3"):
        check_replay("query", 5, set(), 3, done(5))


def test_groups_of_tasks_are_told_from_others() -> None:
    assert task_of("barnabas-sink-query-12", "query") == 12
    for other in ("barnabas-sink-query", "barnabas-sink-query-replay", "barnabas-sink-query-survey-1", "x-12"):
        assert task_of(other, "query") is None


def test_notes_survive_their_text() -> None:
    assert TaskNote.of(6, written(5).text()) == written(5)
    assert EpochNote.of(6, done(5).text()) == done(5)
    assert EpochNote.of(1, EpochNote(0, "", 1).text()) == EpochNote(0, "", 1)


def test_an_offset_that_somebody_else_committed_is_refused() -> None:
    with pytest.raises(MarkerRefused, match="somebody else committed"):
        TaskNote.of(6, "")
