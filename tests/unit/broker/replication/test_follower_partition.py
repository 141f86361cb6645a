"""What a follower does with its log when it compares it with its leader's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.broker.replication.follower_partition import FollowerPartition
from barnabas.model.errors import OffsetOutOfRange
from barnabas.model.ids import TopicPartition
from barnabas.protocol.messages.replica_fetch import Fetched
from tests.support.logs import NOW, append, batch, new_log, read_bytes, stored

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.log.log import Log


@pytest.mark.parametrize(
    ("answer", "agrees"), [((3, 2), True), ((4, 9), False)], ids=["an epoch that both have", "one it never saw"]
)
def test_an_epoch_without_records_is_forgotten_even_when_nothing_is_cut(
    tmp_path: Path, answer: tuple[int, int], agrees: bool
) -> None:
    """Otherwise it would ask for its end for ever, or take the next records for that epoch's."""
    log = new_log(tmp_path)
    append(log, batch(2), epoch=3)
    log.assign_epoch(6, log.log_end_offset)
    follower = FollowerPartition(TopicPartition("t", 0), UUID(int=1), log, leader_id=2, leader_epoch=7)
    assert follower.compare(6, *answer) is None
    assert (log.log_end_offset, log.latest_epoch, follower.agrees) == (2, 3, agrees)


def follower_of(log: Log) -> FollowerPartition:
    return FollowerPartition(TopicPartition("t", 0), UUID(int=1), log, leader_id=2, leader_epoch=7)


def test_a_log_of_which_the_leader_has_nothing_starts_anew(tmp_path: Path) -> None:
    """To cut it at its own start would leave it there, where the leader's log has something else, or nothing yet."""
    log = new_log(tmp_path)
    log.truncate_fully(100)
    append(log, *(batch(2) for _ in range(5)), epoch=5)
    follower = follower_of(log)
    assert (follower.compare(5, 5, 50), follower.agrees, follower.starts_anew) == (None, False, True)
    follower = follower_of(log)
    assert (follower.out_of_range(0, 50), follower.agrees, follower.starts_anew) == (None, False, True)
    follower = follower_of(log)
    assert (follower.out_of_range(200, 300), follower.agrees, follower.starts_anew) == (None, False, True)
    assert (log.log_start_offset, log.log_end_offset) == (100, 110)


def test_what_is_left_is_kept_where_the_leader_has_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, *(batch(2) for _ in range(5)), epoch=5)
    follower = follower_of(log)
    assert (follower.compare(5, 5, 4), follower.agrees, follower.starts_anew) == (4, False, False)
    assert (follower.out_of_range(0, 6), follower.agrees, follower.starts_anew) == (6, False, False)
    assert (follower.out_of_range(0, 10), follower.agrees, follower.starts_anew) == (None, False, False)


def test_an_empty_log_goes_on_where_the_leaders_starts(tmp_path: Path) -> None:
    """Without an epoch nothing shows that the leader has what should be before its end."""
    log = new_log(tmp_path)
    follower = follower_of(log)
    assert (follower.compare_without_epochs(), follower.agrees) == (None, True)
    log.truncate_fully(50)
    follower = follower_of(log)
    assert (follower.compare_without_epochs(), follower.agrees, follower.starts_anew) == (None, False, True)
    assert not follower.may_start_at(0)
    assert follower.may_start_at(50)
    assert (follower.agrees, follower.starts_anew) == (True, False)


def within(log_start: int) -> Fetched:
    """A leader's batch from 48 to 51, of a log that starts there."""
    records = memoryview((48).to_bytes(8, "big") + batch(4)[8:])
    return Fetched(UUID(int=1).bytes, 0, 0, 52, log_start, None, records)


def test_a_log_begins_within_a_batch_only_if_nothing_of_it_is_in_the_leaders(tmp_path: Path) -> None:
    """In any other, what is there may be other records than the leader's, and is compared first."""
    log = new_log(tmp_path)
    log.truncate_fully(50)
    assert follower_of(log).begins_within(within(50))
    for start in (48, 52):
        log.truncate_fully(start)
        assert not follower_of(log).begins_within(within(50))
    log.truncate_fully(49)
    append(log, batch(1), epoch=5)
    for leader_start in (48, 49):
        assert not follower_of(log).begins_within(within(leader_start))
    assert follower_of(log).begins_within(within(50))
    log.high_watermark = 50
    log.delete_records_before(50)
    assert not follower_of(log).begins_within(within(49))
    assert follower_of(log).begins_within(within(50))


def test_other_records_before_the_middle_of_the_batch_that_the_leaders_log_begins_with_are_replaced(
    tmp_path: Path,
) -> None:
    """The leader does not know any more where its last epoch before that batch ended: the follower kept its own."""
    leader, log = [new_log(tmp_path / name) for name in ("leader", "follower")]
    append(leader, batch(48), epoch=1)
    append(leader, batch(5), epoch=2)
    leader.high_watermark = 53
    leader.delete_records_before(50)
    append(log, batch(48), batch(2), epoch=1)
    follower = follower_of(log)
    assert follower.compare(1, *leader.offset_for_epoch(1)) is None
    assert follower.agrees
    fetched = within(50)._replace(records=memoryview(read_bytes(leader, log.log_end_offset)))
    with pytest.raises(OffsetOutOfRange):
        follower.take(fetched, NOW)
    assert follower.begins_within(fetched)
    log.start_within(fetched.records, now_ms=NOW)
    assert (log.log_start_offset, log.high_watermark, log.epochs.entries) == (50, 50, leader.epochs.entries)
    assert stored(log) == [read_bytes(leader, 50)]
