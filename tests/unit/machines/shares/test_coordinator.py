"""The share coordinator: states that are begun, read, written, fenced and forgotten, and a log that stays short."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.machines.shares.coordinator import COLD, NO_STATE, PRUNE, Prune, ShareKey
from barnabas.machines.shares.settings import ShareCoordinatorSettings
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.protocol.coordinator_records.share_state import ShareSnapshotValue, ShareUpdateValue
from tests.support.share_state import KEY, Coordinator

OTHER = KEY._replace(partition=1)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def code(answer: object) -> ErrorCode:
    return answer.code if isinstance(answer, ApiError) else ErrorCode.none


class TestStates:
    def test_who_may_not_fence_leaders_can_only_look(self, coordinator: Coordinator) -> None:
        coordinator.initialize(state_epoch=1, start_offset=5)
        coordinator.read(leader_epoch=3)
        written = len(coordinator.log)
        refused = coordinator.read(leader_epoch=4, may_fence=False)
        assert code(refused) is ErrorCode.cluster_authorization_failed
        assert coordinator.read(leader_epoch=3, may_fence=False).start_offset == 5
        assert len(coordinator.log) == written
        assert code(coordinator.write(leader_epoch=3, state_epoch=1)) is ErrorCode.none

    def test_what_is_written_is_read_with_the_batches_combined(self, coordinator: Coordinator) -> None:
        assert coordinator.initialize(state_epoch=2, start_offset=10) is NO_STATE
        assert code(coordinator.write([(10, 14, 2, 1), (15, 19, 0, 1)], state_epoch=2, complete=5)) is ErrorCode.none
        assert code(coordinator.write([(15, 17, 2, 2)], state_epoch=2, complete=8)) is ErrorCode.none
        state = coordinator.read()
        assert (state.state_epoch, state.start_offset, state.complete_count) == (2, 10, 8)
        assert state.batches == ((10, 14, 2, 1), (15, 17, 2, 2), (18, 19, 0, 1))

    def test_a_new_start_offset_cuts_off_what_is_before_it(self, coordinator: Coordinator) -> None:
        coordinator.initialize()
        coordinator.write([(0, 9, 2, 1), (10, 19, 0, 1)])
        coordinator.write(start=12)
        assert coordinator.read().batches == ((12, 19, 0, 1),)
        assert coordinator.summary().start_offset == 12

    def test_a_write_that_arrives_late_does_not_move_the_start_back(self, coordinator: Coordinator) -> None:
        coordinator.initialize()
        coordinator.write([(0, 4, 2, 1)], start=0)
        coordinator.write([(6, 6, 2, 1)], start=6)
        coordinator.write([(5, 5, 2, 1)], start=0)
        state = coordinator.read()
        assert (state.start_offset, state.batches) == (6, ((6, 6, 2, 1),)), "0 to 4 were acknowledged"

    def test_a_state_that_has_begun_is_not_begun_again_by_a_request_that_arrives_late(
        self, coordinator: Coordinator
    ) -> None:
        coordinator.initialize(state_epoch=1, start_offset=-1)
        coordinator.write([(5, 9, 2, 1)], start=5, state_epoch=1)
        assert coordinator.initialize(state_epoch=1, start_offset=-1) is NO_STATE
        assert coordinator.read().batches == ((5, 9, 2, 1),)
        coordinator.initialize(state_epoch=1, start_offset=0)
        assert coordinator.read().start_offset == 0, "its offsets are reset"

    def test_nothing_is_read_or_written_before_the_state_is_initialized(self, coordinator: Coordinator) -> None:
        assert code(coordinator.read()) is ErrorCode.invalid_request
        assert code(coordinator.write()) is ErrorCode.invalid_request
        assert coordinator.summary() == (0, 0, -1, -1, ())
        assert coordinator.log == []

    def test_partitions_that_are_not_there_are_refused(self, coordinator: Coordinator) -> None:
        nowhere, negative = KEY._replace(partition=9), KEY._replace(partition=-1)
        assert code(coordinator.initialize(key=nowhere)) is ErrorCode.unknown_topic_or_partition
        assert code(coordinator.initialize(key=negative)) is ErrorCode.invalid_request
        assert code(coordinator.summary(nowhere)) is ErrorCode.unknown_topic_or_partition
        assert code(coordinator.delete(nowhere)) is ErrorCode.unknown_topic_or_partition

    def test_a_state_is_forgotten_once_and_again_without_an_error(self, coordinator: Coordinator) -> None:
        coordinator.initialize()
        assert code(coordinator.delete()) is ErrorCode.none
        assert code(coordinator.read()) is ErrorCode.invalid_request
        written = len(coordinator.log)
        assert code(coordinator.delete()) is ErrorCode.none
        assert len(coordinator.log) == written

    def test_the_states_of_a_deleted_topic_are_forgotten(self, coordinator: Coordinator) -> None:
        elsewhere = ShareKey("workers", UUID(int=8), 0)
        coordinator.initialize()
        coordinator.initialize(key=elsewhere)
        coordinator.take(coordinator.machine.topics_deleted({KEY.topic_id}))
        assert set(coordinator.machine.states) == {elsewhere}


class TestEpochs:
    def test_a_leader_that_was_replaced_cannot_write_or_read(self, coordinator: Coordinator) -> None:
        coordinator.initialize()
        coordinator.read(leader_epoch=5)
        assert code(coordinator.write(leader_epoch=4)) is ErrorCode.fenced_leader_epoch
        assert code(coordinator.read(leader_epoch=4)) is ErrorCode.fenced_leader_epoch
        assert code(coordinator.write(leader_epoch=5)) is ErrorCode.none
        assert code(coordinator.write(leader_epoch=-1)) is ErrorCode.none, "it names no epoch"
        assert coordinator.summary().leader_epoch == 5

    def test_a_leader_fences_by_reading_also_after_a_reload(self, coordinator: Coordinator) -> None:
        coordinator.initialize()
        coordinator.read(leader_epoch=5)
        coordinator.machine = coordinator.reloaded()
        assert code(coordinator.write(leader_epoch=4)) is ErrorCode.fenced_leader_epoch

    def test_the_same_leader_reads_again_without_a_record(self, coordinator: Coordinator) -> None:
        coordinator.initialize()
        coordinator.read(leader_epoch=5)
        written = len(coordinator.log)
        coordinator.read(leader_epoch=5)
        assert len(coordinator.log) == written

    def test_a_state_that_was_begun_anew_takes_no_writes_of_the_state_before(self, coordinator: Coordinator) -> None:
        coordinator.initialize(state_epoch=1)
        coordinator.write([(0, 9, 2, 1)], state_epoch=1)
        coordinator.initialize(state_epoch=2, start_offset=100)
        assert code(coordinator.write([(0, 9, 2, 1)], state_epoch=1)) is ErrorCode.fenced_state_epoch
        assert code(coordinator.initialize(state_epoch=1)) is ErrorCode.fenced_state_epoch
        assert coordinator.read().batches == ()


class TestLog:
    def test_every_so_many_updates_there_is_a_snapshot_of_everything(self) -> None:
        coordinator = Coordinator(ShareCoordinatorSettings(updates_per_snapshot=2))
        coordinator.initialize()
        for offset in range(6):
            coordinator.write([(offset, offset, 2, 1)])
        kinds = [type(record.value) for record in coordinator.log]
        snapshot, update = ShareSnapshotValue, ShareUpdateValue
        assert kinds == [snapshot, update, update, snapshot, update, update, snapshot]
        last = coordinator.log[-1].value
        assert isinstance(last, ShareSnapshotValue)
        assert (last.snapshot_epoch, last.state_batches) == (2, ((0, 5, 2, 1),))

    def test_a_reloaded_machine_has_the_states_of_the_one_that_decided(self) -> None:
        coordinator = Coordinator(ShareCoordinatorSettings(updates_per_snapshot=3))
        coordinator.initialize(state_epoch=1, start_offset=-1)
        coordinator.initialize(key=OTHER)
        for offset in range(10):
            coordinator.write([(offset, offset + 3, offset % 2 * 2, 1 + offset % 3)], state_epoch=1, complete=offset)
        coordinator.delete(OTHER)
        assert coordinator.reloaded().states == coordinator.machine.states

    def test_what_does_not_change_is_snapshotted_after_a_while_but_not_for_ever(self) -> None:
        coordinator = Coordinator()
        coordinator.initialize()
        coordinator.expire(COLD)
        assert len(coordinator.log) == 1, "it is not old yet"
        coordinator.now_ms += coordinator.settings.cold_snapshot_interval_ms
        coordinator.expire(COLD)
        assert len(coordinator.log) == 2
        coordinator.now_ms += coordinator.settings.cold_snapshot_interval_ms
        coordinator.expire(COLD)
        assert len(coordinator.log) == 2, "all are cold, and nothing was written since"

    def test_records_are_redundant_when_every_state_has_a_newer_snapshot(self) -> None:
        coordinator = Coordinator(ShareCoordinatorSettings(updates_per_snapshot=1))
        coordinator.initialize()
        coordinator.initialize(key=OTHER)
        assert coordinator.prune() is None, "there was no end to compare with"
        for _ in range(2):
            coordinator.write([(0, 0, 2, 1)])
        assert coordinator.prune() is None, "the other has none yet"
        for _ in range(2):
            coordinator.write([(0, 0, 2, 1)], key=OTHER)
        before = coordinator.prune()
        assert before == 2
        states = coordinator.machine.states
        del coordinator.log[:before]
        assert coordinator.reloaded().states == states

    def test_a_snapshot_makes_nothing_redundant_that_is_decided_while_earlier_records_are_committed(self) -> None:
        coordinator = Coordinator(ShareCoordinatorSettings(updates_per_snapshot=1))
        coordinator.initialize()
        coordinator.prune()
        coordinator.expire(PRUNE)
        for _ in range(2):
            coordinator.write([(0, 0, 2, 1)])
        assert coordinator.sent == [], "it may be lost with the leader, and what is deleted is gone"
        coordinator.expire(PRUNE)
        assert coordinator.sent == [Prune(1)]

    def test_a_record_that_cannot_be_read_is_passed_over(
        self, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
    ) -> None:
        coordinator.machine.replay_bytes(b"\0", None, -1)
        coordinator.machine.replay_bytes(b"\0\x63any", b"any", -1)
        assert coordinator.machine.states == {}
        assert "cannot be read" in caplog.text
