"""What is committed on a leader, and which clients it refuses."""

from __future__ import annotations

import pytest

from barnabas.machines.partition import ACKS_ALL, NO_EPOCH, UNKNOWN_OFFSET, PartitionLeader
from barnabas.model.errors import ErrorCode, FencedLeaderEpoch, UnknownLeaderEpoch


def leader(
    replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3), *, end: int = 10, high_watermark: int = 0
) -> PartitionLeader:
    return PartitionLeader(
        broker_id=1, leader_epoch=5, replicas=replicas, isr=isr, log_end_offset=end, high_watermark=high_watermark
    )


class TestOneReplica:
    def test_everything_there_is_committed_at_once(self) -> None:
        alone = leader((1,), (1,), end=10, high_watermark=4)
        assert alone.high_watermark == 10
        assert alone.knows_high_watermark

    def test_what_is_appended_is_committed(self) -> None:
        alone = leader((1,), (1,), end=0)
        assert alone.appended(3)
        assert alone.high_watermark == 3


class TestHighWatermark:
    def test_it_is_the_lowest_log_end_in_the_isr(self) -> None:
        partition = leader()
        assert not partition.appended(20)
        assert not partition.fetched(2, 15)
        assert partition.fetched(3, 12)
        assert partition.high_watermark == 12
        assert partition.fetched(3, 20)
        assert partition.high_watermark == 15

    def test_a_replica_outside_the_isr_holds_nothing_up(self) -> None:
        partition = leader(isr=(1, 2))
        partition.fetched(3, 1)
        assert partition.fetched(2, 10)
        assert partition.high_watermark == 10

    def test_it_never_goes_back(self) -> None:
        partition = leader(isr=(1, 2), high_watermark=8)
        assert partition.high_watermark == 8
        assert not partition.fetched(2, 5)
        assert not partition.commit_isr((1, 2, 3), 1)
        assert partition.high_watermark == 8

    def test_a_sync_that_is_heard_of_late_takes_nothing_back(self) -> None:
        partition = leader()
        partition.appended(20)
        assert not partition.appended(15)
        partition.fetched(2, 20)
        assert partition.fetched(3, 20)
        assert partition.high_watermark == 20

    def test_it_starts_at_the_log_end_at_most(self) -> None:
        assert leader(end=3, high_watermark=9).high_watermark == 3

    def test_a_proposed_replica_counts_before_it_is_committed(self) -> None:
        partition = leader(isr=(1,), end=10)
        assert partition.high_watermark == 10
        partition.fetched(2, 10)
        partition.propose((1, 2))
        assert partition.maximal_isr == {1, 2}
        assert not partition.appended(20)
        assert partition.fetched(2, 20)
        partition.appended(30)
        assert partition.commit_isr((1,), 1)
        assert partition.high_watermark == 30

    def test_a_removed_replica_counts_until_the_controller_agrees(self) -> None:
        partition = leader(isr=(1, 2))
        partition.fetched(2, 4)
        partition.propose((1,))
        assert not partition.appended(20)
        assert partition.high_watermark == 4
        assert partition.commit_isr((1,), 1)
        assert partition.high_watermark == 20

    def test_a_new_leader_does_not_know_it_until_followers_reach_its_epoch(self) -> None:
        partition = leader(isr=(1, 2), end=10, high_watermark=7)
        assert not partition.knows_high_watermark
        partition.fetched(2, 10)
        assert partition.knows_high_watermark


class TestProposals:
    def caught_up(self, now: float = 0.0) -> PartitionLeader:
        """Leader 1 with 2 in sync; 3 has everything too."""
        partition = leader(isr=(1, 2))
        for replica in (2, 3):
            partition.fetched(replica, 10, now)
        return partition

    def test_whoever_caught_up_is_to_join_and_whoever_lags_is_to_leave(self) -> None:
        partition = self.caught_up()
        assert partition.next_isr(1.0, 10.0) == (1, 2, 3)
        partition.appended(20)
        partition.fetched(3, 20, 20.0)
        assert partition.next_isr(20.0, 10.0) == (1, 3)
        assert partition.next_isr(1.0, 10.0, max_messages=9) == (1, 3)

    def test_there_is_nothing_to_propose_when_all_is_as_it_should_be(self) -> None:
        partition = leader(isr=(1, 2))
        partition.fetched(2, 10)
        assert partition.next_isr(1.0, 10.0) is None

    def test_a_proposal_without_an_answer_is_made_again(self) -> None:
        partition = self.caught_up()
        partition.propose((1, 2, 3))
        assert partition.next_isr(1.0, 10.0) == (1, 2, 3)

    def test_a_doubt_is_ended_by_proposing_the_isr_as_it_is(self) -> None:
        partition = self.caught_up()
        partition.propose((1, 2, 3))
        partition.appended(20)
        partition.fetched(2, 20, 20.0)
        assert partition.next_isr(20.0, 10.0) == (1, 2)
        assert partition.high_watermark == 10
        assert partition.commit_isr((1, 2), 1)
        assert partition.high_watermark == 20

    def test_a_refusal_ends_the_proposal(self) -> None:
        partition = self.caught_up()
        partition.propose((1, 2, 3))
        partition.refused(ErrorCode.ineligible_replica)
        assert partition.maximal_isr == {1, 2}

    def test_a_refusal_says_nothing_of_an_earlier_proposal(self) -> None:
        partition = self.caught_up()
        partition.propose((1, 2, 3))
        partition.propose((1, 2, 3))
        partition.refused(ErrorCode.ineligible_replica)
        assert partition.maximal_isr == {1, 2, 3}

    def test_who_is_refused_keeps_nobody_from_leaving(self) -> None:
        partition = leader(isr=(1, 2))
        partition.fetched(3, 10, now=100)
        partition.appended(11)
        assert partition.next_isr(100, 30) == (1, 3)
        partition.propose((1, 3))
        partition.refused(ErrorCode.ineligible_replica)
        assert partition.next_isr(100, 30) == (1,)
        partition.fetched(3, 10, now=101)
        assert partition.next_isr(101, 30) == (1, 3)

    def test_who_is_refused_is_left_out_of_what_ends_a_doubt(self) -> None:
        partition = self.caught_up()
        partition.propose((1, 2, 3))
        partition.propose((1, 2, 3))
        partition.refused(ErrorCode.ineligible_replica)
        assert partition.next_isr(0, 30) == (1, 2)

    def test_a_refusal_that_ends_the_leadership_may_have_taken_the_proposal(self) -> None:
        partition = self.caught_up()
        partition.propose((1, 2, 3))
        partition.refused(ErrorCode.new_leader_elected)
        assert partition.maximal_isr == {1, 2, 3}

    @pytest.mark.parametrize("epoch", [3, 4])
    def test_old_news_change_nothing(self, epoch: int) -> None:
        partition = self.caught_up()
        partition.commit_isr((1, 2), 4)
        partition.propose((1, 2, 3))
        assert not partition.commit_isr((1,), epoch)
        assert partition.isr == {1, 2}
        assert partition.maximal_isr == {1, 2, 3}
        assert partition.partition_epoch == 4

    def test_what_a_follower_said_before_it_registered_anew_is_of_no_account(self) -> None:
        partition = leader(isr=(1, 2, 3))
        partition.fetched(2, 3, broker_epoch=8)
        partition.fetched(2, 10, broker_epoch=7)
        partition.fetched(3, 10)
        assert partition.high_watermark == 3
        assert partition.broker_epochs((1, 2, 3)) == (-1, 8, -1)


def caught_up() -> PartitionLeader:
    """A partition whose follower 2 has all records, which are committed; its log starts at 3."""
    partition = leader(isr=(1, 2))
    partition.fetched(2, 10, 5.0, 8, 3)
    return partition


class TestFollowersAtRest:
    def test_a_follower_in_sync_that_has_all_that_is_committed_is_at_rest(self) -> None:
        assert caught_up().is_at_rest(2, 8, 10, 3)

    @pytest.mark.parametrize(
        "asked", [(3, -1, 10, -1), (2, 7, 10, 3), (2, 8, 9, 3), (2, 8, 10, 4)], ids=["who", "when", "end", "start"]
    )
    def test_another_fetch_than_its_last_one_would_change_something(self, asked: tuple[int, int, int, int]) -> None:
        assert not caught_up().is_at_rest(*asked)

    def test_it_is_not_at_rest_while_others_lag(self) -> None:
        partition = leader(isr=(1, 2, 3))
        partition.fetched(2, 10, 5.0, 8, 3)
        assert not partition.is_at_rest(2, 8, 10, 3)

    def test_it_is_not_at_rest_while_it_is_not_in_sync(self) -> None:
        partition = caught_up()
        partition.commit_isr((1,), 1)
        assert not partition.is_at_rest(2, 8, 10, 3)

    def test_it_is_not_at_rest_when_there_is_more(self) -> None:
        partition = caught_up()
        partition.appended(11)
        assert not any(partition.is_at_rest(2, 8, end, 3) for end in (10, 11))

    def test_it_lags_from_its_last_fetch_on_not_from_the_last_one_that_was_looked_at(self) -> None:
        partition = caught_up()
        partition.fetched_at_rest(2, 100.0)
        partition.appended(11)
        assert [partition.lagging(now, 30.0) for now in (129.0, 131.0)] == [frozenset(), frozenset({2})]

    def test_a_session_that_the_follower_has_left_takes_nothing_back(self) -> None:
        partition = caught_up()
        partition.fetched_at_rest(2, 1.0)
        partition.appended(11)
        assert partition.lagging(34.0, 30.0) == frozenset()


class TestDeletedRecords:
    def test_what_every_broker_that_is_up_has_deleted_is_gone(self) -> None:
        partition = leader(isr=(1, 2))
        everyone = frozenset({1, 2, 3})
        assert partition.low_watermark(5, everyone) == UNKNOWN_OFFSET
        partition.fetched(2, 10, log_start_offset=5)
        assert partition.low_watermark(5, everyone) == UNKNOWN_OFFSET
        assert partition.low_watermark(5, {1, 2}) == 5
        partition.fetched(3, 10, log_start_offset=4)
        assert partition.low_watermark(5, everyone) == 4
        partition.fetched(3, 10, log_start_offset=6)
        assert partition.low_watermark(5, everyone) == 5

    def test_a_leader_without_followers_decides_alone(self) -> None:
        assert leader((1,), (1,)).low_watermark(7, {1}) == 7


class TestAcks:
    @pytest.mark.parametrize(("isr", "accepted"), [((1, 2, 3), True), ((1, 2), True), ((1,), False)])
    def test_acks_all_needs_min_insync_replicas(self, isr: tuple[int, ...], accepted: bool) -> None:
        assert leader(isr=isr).accepts(ACKS_ALL, 2) is accepted

    def test_replicas_that_are_only_proposed_do_not_count(self) -> None:
        partition = leader(isr=(1,))
        partition.propose((1, 2))
        assert not partition.accepts(ACKS_ALL, 2)
        partition.commit_isr((1, 2), 1)
        assert partition.accepts(ACKS_ALL, 2)

    @pytest.mark.parametrize(("acks", "accepted"), [(0, True), (1, True), (2, False), (-2, False)])
    def test_other_acks_need_the_leader_alone_and_are_0_or_1(self, acks: int, accepted: bool) -> None:
        assert leader(isr=(1,)).accepts(acks, 2) is accepted


class TestLeaderEpochs:
    @pytest.mark.parametrize("epoch", [NO_EPOCH, 5])
    def test_the_current_epoch_and_none_are_welcome(self, epoch: int) -> None:
        leader().check_epoch(epoch)

    def test_an_older_epoch_is_fenced(self) -> None:
        with pytest.raises(FencedLeaderEpoch, match="has leader epoch 4, but it is 5"):
            leader().check_epoch(4)

    def test_a_newer_epoch_is_unknown(self) -> None:
        with pytest.raises(UnknownLeaderEpoch, match="has leader epoch 6, but this broker still has 5"):
            leader().check_epoch(6)
