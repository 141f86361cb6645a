from __future__ import annotations

import pytest

from barnabas.storage.log.epochs import EpochStart, LeaderEpochs


@pytest.fixture
def epochs() -> LeaderEpochs:
    return LeaderEpochs([EpochStart(1, 0), EpochStart(3, 10), EpochStart(4, 20)])


def test_epochs_are_kept_in_order(epochs: LeaderEpochs) -> None:
    assert epochs.latest == 4
    assert epochs.entries == (EpochStart(1, 0), EpochStart(3, 10), EpochStart(4, 20))
    assert epochs.changes == 0
    epochs.assign(4, 25)
    assert epochs.changes == 0
    epochs.assign(6, 30)
    assert (epochs.latest, epochs.changes) == (6, 1)


def test_a_new_entry_replaces_what_contradicts_it(epochs: LeaderEpochs, caplog: pytest.LogCaptureFixture) -> None:
    epochs.assign(5, 20)
    assert epochs.entries[-2:] == (EpochStart(3, 10), EpochStart(5, 20))
    assert not caplog.records
    epochs.assign(6, 5)
    assert epochs.entries == (EpochStart(1, 0), EpochStart(6, 5))
    assert "replaces the conflicting epochs" in caplog.text


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (4, 33)), (5, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_begins(epochs: LeaderEpochs, epoch: int, expected: tuple[int, int]) -> None:
    assert epochs.end_offset(epoch, 33) == expected


def test_nothing_is_known_of_an_empty_log() -> None:
    assert LeaderEpochs().end_offset(0, 0) == (-1, -1)
    assert LeaderEpochs().epoch_at(0) == LeaderEpochs().latest == -1


def test_an_offset_has_an_epoch(epochs: LeaderEpochs) -> None:
    assert [epochs.epoch_at(offset) for offset in (-1, 0, 9, 10, 19, 20, 99)] == [-1, 1, 1, 3, 3, 4, 4]


@pytest.mark.parametrize(("end", "kept"), [(0, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
def test_a_cut_log_loses_its_last_epochs(epochs: LeaderEpochs, end: int, kept: int) -> None:
    epochs.truncate_from_end(end)
    assert len(epochs.entries) == kept
    assert epochs.changes == (kept < 3)


@pytest.mark.parametrize(
    ("start", "expected"),
    [(0, [(1, 0), (3, 10), (4, 20)]), (5, [(1, 5), (3, 10), (4, 20)]), (10, [(3, 10), (4, 20)]), (99, [(4, 99)])],
)
def test_a_log_that_starts_later_keeps_the_epoch_of_its_start(
    epochs: LeaderEpochs, start: int, expected: list[tuple[int, int]]
) -> None:
    epochs.truncate_from_start(start)
    assert list(epochs.entries) == expected
    epochs.clear()
    assert (epochs.entries, epochs.latest) == ((), -1)
