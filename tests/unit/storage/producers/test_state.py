from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from barnabas.model.errors import (
    ClusterAuthorizationFailed,
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.files import FileSystem
from barnabas.storage.producers.recall import ReadBackNeeded
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.producers.state import CompletedTransaction, Duplicate, ProducerEntry, ProducerStates
from barnabas.storage.segments.segment import Segment
from tests.support.logs import NOW, append, batch, new_log, recovered, reopened, store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.log.log import AppendInfo, Log

LAST = 2**31 - 1


def send(
    states: ProducerStates, epoch: int, sequence: int, count: int = 1, *, transactional: bool = False
) -> Duplicate | None:
    """Store a batch of producer 7, if it may be."""
    found = states.check(7, epoch, sequence, count - 1, transactional)
    if found is None:
        states.record(7, epoch, sequence, states.end_offset, count - 1, NOW, transactional)
        states.end_offset += count
    return found


def marker(kind: ControlType, epoch: int, offset: int) -> tuple[bytes, EndOfTransaction]:
    end = EndOfTransaction(kind, 3)
    data = build_marker(end, timestamp=NOW, producer_id=7, producer_epoch=epoch)
    return offset.to_bytes(8, "big") + data[8:], end


def stored(log: Log, data: bytes) -> AppendInfo:
    """Append a batch, and do first what must be done in a thread, as Produce does."""
    try:
        return log.append(data, leader_epoch=0, now_ms=NOW)
    except ReadBackNeeded:
        log.producers.recall()
        return log.append(data, leader_epoch=0, now_ms=NOW)


def test_sequences_follow_each_other() -> None:
    states = ProducerStates()
    assert send(states, 0, 0, 5) is None
    assert send(states, 0, 5, 5) is None
    for sequence in (4, 9, 11, 0):
        with pytest.raises(OutOfOrderSequence):
            send(states, 0, sequence, 3)


def test_the_last_five_batches_are_known_again() -> None:
    states = ProducerStates()
    for number in range(6):
        send(states, 0, 2 * number, 2)
    for number in range(1, 6):
        assert send(states, 0, 2 * number, 2) == Duplicate(2 * number, 2 * number + 1, NOW)
    with pytest.raises(OutOfOrderSequence):
        send(states, 0, 0, 2)
    with pytest.raises(OutOfOrderSequence):
        send(states, 0, 8, 1)


def test_sequences_wrap() -> None:
    states = ProducerStates()
    assert send(states, 0, LAST - 1, 4) is None
    assert send(states, 0, 2, 1) is None
    assert send(states, 0, LAST - 1, 4) == Duplicate(0, 3, NOW)
    other = ProducerStates()
    assert send(other, 0, LAST, 1) is None
    assert send(other, 0, 0, 1) is None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert send(ProducerStates(), 3, 100) is None


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    states = ProducerStates()
    send(states, 0, 0)
    with pytest.raises(OutOfOrderSequence):
        send(states, 1, 1)
    assert send(states, 1, 0) is None
    with pytest.raises(InvalidProducerEpoch):
        send(states, 0, 1)


def test_transactions_begin_and_end() -> None:
    states = ProducerStates()
    send(states, 0, 0)
    send(states, 0, 1, transactional=True)
    send(states, 0, 2, transactional=True)
    assert states.first_open_transaction() == 1
    with pytest.raises(InvalidTxnState):
        send(states, 0, 3)
    data, end = marker(ControlType.ABORT, 0, 3)
    assert states.end_transaction(read_header(data), end) == CompletedTransaction(7, 1, 3, True)
    assert states.end_transaction(read_header(data), end) is None
    assert states.first_open_transaction() is None
    assert states.describe() == [(7, 0, 2, NOW, 3, -1)]
    assert send(states, 0, 3) is None


@pytest.mark.parametrize("restarted", [False, True])
def test_the_oldest_open_transaction_is_found_without_looking_at_every_producer(restarted: bool) -> None:
    class Uncounted(dict[int, ProducerEntry]):
        def values(self) -> NoReturn:
            raise AssertionError("every batch of a transaction would look at all producers")

    states = ProducerStates()
    states.record(8, 0, 0, 0, 0, NOW, False)
    send(states, 0, 0, transactional=True)
    states.record(8, 0, 1, 1, 0, NOW, True)
    if restarted:
        states = ProducerStates.decode(states.encode(), 2)
    states._entries = Uncounted(states._entries)
    assert states.first_open_transaction() == 0
    data, end = marker(ControlType.COMMIT, 0, 2)
    states.end_transaction(read_header(data), end)
    assert states.first_open_transaction() == 1


def test_a_marker_may_bring_a_new_epoch() -> None:
    states = ProducerStates()
    send(states, 0, 0, transactional=True)
    data, end = marker(ControlType.COMMIT, 1, 1)
    assert states.end_transaction(read_header(data), end) == CompletedTransaction(7, 0, 1, False)
    assert send(states, 1, 0) is None


def test_producers_are_forgotten_in_time() -> None:
    states = ProducerStates()
    states.record(1, 0, 0, 0, 0, NOW - 10, False)
    states.record(2, 0, 0, 1, 0, NOW, False)
    states.record(3, 0, 0, 2, 0, NOW - 10, True)
    states.expire(NOW - 10)
    assert sorted(found.producer_id for found in states.describe()) == [2, 3]


def test_a_snapshot_holds_the_state() -> None:
    states = ProducerStates()
    states.record(1, 4, 5, 100, 2, NOW, False)
    states.record(2, 0, 0, 103, 0, NOW, True)
    data, end = marker(ControlType.COMMIT, 5, 104)
    states.end_transaction(read_header(data), end)
    again = ProducerStates.decode(states.encode(), 105)
    assert again.end_offset == 105
    assert again.describe() == states.describe()
    assert again.check(1, 4, 5, 2, False) == Duplicate(100, 102, NOW)
    assert again.first_open_transaction() == 103


def test_a_damaged_snapshot_is_refused() -> None:
    states = ProducerStates()
    states.record(1, 4, 5, 100, 2, NOW, False)
    data = states.encode()
    assert len(data) == 10 + 46
    for damaged in (b"", data[:5], data[:-1], data + b"x", b"\x00\x02" + data[2:], data[:20] + b"\xff" + data[21:]):
        with pytest.raises(CorruptMessage):
            ProducerStates.decode(damaged, 0)


def test_the_newest_readable_snapshot_is_taken(tmp_path: Path) -> None:
    snapshots = Snapshots(FileSystem(), str(tmp_path))
    for offset in (10, 20, 30):
        states = ProducerStates(offset)
        states.record(offset, 0, 0, 0, 0, NOW, False)
        snapshots.take(states, sync=False)
    (tmp_path / "00000000000000000020.snapshot").write_bytes(b"damaged")

    found = snapshots.load(29)

    assert found is not None
    assert found.end_offset == 10
    assert snapshots.offsets == [10, 30]
    assert snapshots.load(9) is None
    snapshots.remove_after(10)
    assert [path.name for path in tmp_path.iterdir()] == ["00000000000000000010.snapshot"]


def test_strays_are_removed_but_not_the_newest(tmp_path: Path) -> None:
    snapshots = Snapshots(FileSystem(), str(tmp_path), [5, 10, 15, 20])
    snapshots.remove_strays([0, 10])
    assert snapshots.offsets == [10, 20]


@pytest.mark.parametrize("again", [reopened, recovered], ids=["stop", "crash"])
def test_a_repeated_batch_is_stored_once_also_after_a_restart(tmp_path: Path, again: type) -> None:
    log: Log = new_log(tmp_path)
    batches = [batch(2, producer_id=7, sequence=2 * number) for number in range(8)]
    append(log, *batches)
    assert [log.append(data, leader_epoch=0, now_ms=NOW)[:2] for data in batches[3:]] == [
        (2 * number, 2 * number + 1) for number in range(3, 8)
    ]
    log = again(log)
    for number in range(3, 8):
        info = stored(log, batches[number])
        assert info.duplicate
        assert (info.base_offset, info.last_offset, log.log_end_offset) == (2 * number, 2 * number + 1, 16)
    for sequence in (4, 18):
        with pytest.raises(OutOfOrderSequence):
            stored(log, batch(2, producer_id=7, sequence=sequence))


def test_what_a_snapshot_left_out_is_read_back_from_earlier_segments_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: Log = new_log(tmp_path, LogConfig(segment_bytes=1000))
    batches = [batch(1, producer_id=7, sequence=number, size=300) for number in range(5)]
    append(log, *batches)
    assert len(log.segments) > 1
    log = reopened(log)
    log.prepare()
    scans: list[str] = []
    headers = Segment.headers

    def counted(self: Segment, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        scans.append(self.path)
        return headers(self, position, end)

    monkeypatch.setattr(Segment, "headers", counted)
    assert log.append(batches[4], leader_epoch=0, now_ms=NOW).duplicate
    assert not scans, "the snapshot has the last one"
    assert all(stored(log, each).duplicate for each in batches)
    count = len(scans)
    assert count > 1
    with pytest.raises(OutOfOrderSequence):
        stored(log, batch(1, producer_id=7, sequence=9))
    assert len(scans) == count


def test_nothing_is_read_back_from_beyond_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = new_log(tmp_path, LogConfig(index_interval_bytes=100))
    batches = [batch(1, producer_id=7, sequence=number, size=300) for number in range(5)]
    append(log, *batches)
    monkeypatch.setattr("barnabas.storage.producers.recall.LOOK_BACK", 2 * len(batches[0]))
    log = reopened(log)
    assert stored(log, batches[3]).duplicate
    with pytest.raises(OutOfOrderSequence):
        stored(log, batches[0])


def test_a_log_that_cannot_be_read_back_refuses_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = new_log(tmp_path)
    batches = [batch(1, producer_id=7, sequence=number) for number in range(3)]
    append(log, *batches)
    log = reopened(log)
    log.prepare()

    def damaged(*_: object) -> None:
        raise CorruptMessage("no batch there")

    monkeypatch.setattr(Segment, "headers", damaged)
    with pytest.raises(OutOfOrderSequence):
        stored(log, batches[0])


def test_what_is_read_back_does_not_displace_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: Log = new_log(tmp_path)
    batches = [batch(1, producer_id=7, sequence=number) for number in range(7)]
    others = [batch(1, producer_id=8, sequence=number) for number in range(2)]
    append(log, *batches[:5], *others)
    log = reopened(log)
    log.prepare()
    headers = Segment.headers

    def late(self: Segment, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        yield from headers(self, position, end)
        append(log, *batches[5:])
        append(log, batch(1, producer_id=8, producer_epoch=1, sequence=0))

    with pytest.raises(ReadBackNeeded):
        append(log, batches[1])
    monkeypatch.setattr(Segment, "headers", late)
    log.producers.recall()
    assert all(stored(log, each).duplicate for each in batches[2:])
    with pytest.raises(OutOfOrderSequence):
        stored(log, batches[1])
    with pytest.raises(InvalidProducerEpoch):
        stored(log, others[1])


@pytest.mark.parametrize("again", [reopened, recovered], ids=["stop", "crash"])
def test_transactions_survive_a_restart(tmp_path: Path, again: type) -> None:
    log: Log = new_log(tmp_path)
    append(log, batch(2, producer_id=7, sequence=0, transactional=True), batch(1))
    append(log, marker(ControlType.ABORT, 0, 0)[0], batch(1, producer_id=7, sequence=2, transactional=True))
    for _ in range(2):
        assert log.segments[-1].txn_index.entries() == [(7, 0, 3, 4)]
        assert [(found.coordinator_epoch, found.current_txn_start_offset) for found in log.producers.describe()] == [
            (3, 4)
        ]
        log = again(log)


def test_producers_of_a_log_expire(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(1, producer_id=7, timestamp=NOW))
    log.producers.expire(NOW + 86_399_999)
    assert log.producers.describe()
    log.producers.expire(NOW + 86_400_000)
    assert not log.producers.describe()
    assert store(tmp_path).producer_expiration_ms == 86_400_000


class TestMarkers:
    def test_of_a_producer_that_is_not_known_are_taken(self) -> None:
        ProducerStates().check_marker(7, 0, 0, True)

    @pytest.mark.parametrize(("epoch", "bumped"), [(1, False), (2, False), (2, True)])
    def test_of_the_open_transaction_are_taken(self, epoch: int, bumped: bool) -> None:
        states = ProducerStates()
        send(states, 1, 0, transactional=True)
        assert states.has_open_transaction(7, 1)
        assert not states.has_open_transaction(7, 0)
        states.check_marker(7, epoch, 3, bumped)

    @pytest.mark.parametrize(("epoch", "bumped"), [(0, False), (0, True), (1, True)])
    def test_that_come_too_late_are_refused(self, epoch: int, bumped: bool) -> None:
        states = ProducerStates()
        send(states, 1, 0, transactional=True)
        with pytest.raises(InvalidProducerEpoch):
            states.check_marker(7, epoch, 3, bumped)

    def test_may_come_twice_but_not_of_a_coordinator_that_was_replaced(self) -> None:
        states = ProducerStates()
        send(states, 1, 0, transactional=True)
        data, end = marker(ControlType.COMMIT, 2, 1)
        states.end_transaction(read_header(data), end)
        states.check_marker(7, 2, 3, True)
        with pytest.raises(TransactionCoordinatorFenced):
            states.check_marker(7, 2, 2, True)

    def test_bring_a_higher_coordinator_epoch_by_brokers_only(self) -> None:
        states = ProducerStates()
        states.check_marker(7, 0, 0, False, False)
        with pytest.raises(ClusterAuthorizationFailed):
            states.check_marker(7, 0, 1, False, False)
        send(states, 1, 0, transactional=True)
        data, end = marker(ControlType.COMMIT, 1, 1)
        states.end_transaction(read_header(data), end)
        states.check_marker(7, 1, 3, False, False)
        with pytest.raises(ClusterAuthorizationFailed):
            states.check_marker(7, 1, 4, False, False)
        states.check_marker(7, 1, 4, False)


def test_a_coordinators_batches_are_held_against_the_epoch_alone() -> None:
    states = ProducerStates()
    for offset in (0, 3):
        states.check_epoch(7, 1)
        states.record(7, 1, 0, offset, 2, NOW, True)
    assert states.ends() == {7: (5, 1)}
    states.check_epoch(7, 2)
    with pytest.raises(InvalidProducerEpoch):
        states.check_epoch(7, 0)


def test_batches_without_a_sequence_get_that_of_a_coordinator() -> None:
    states = ProducerStates()
    states.record(7, 1, -1, 0, 2, NOW, True)
    states.record(8, 1, 5, 3, 2, NOW, False)
    assert states.give_sequences()
    assert not states.give_sequences()
    again = ProducerStates.decode(states.encode(), 6)
    assert [(each.producer_id, each.last_sequence) for each in again.describe()] == [(7, 2), (8, 7)]
