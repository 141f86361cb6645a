"""The rules of transactions, for clients that get an epoch with each end and for those that do not."""

from __future__ import annotations

import pytest

from barnabas.machines.transactions.coordinator import EXPIRY, MOST_FORGOTTEN, TIMEOUT, TransactionTimer
from barnabas.machines.transactions.settings import TransactionSettings
from barnabas.machines.transactions.states import TRANSITIONS, TransactionState
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.records.batch import MAX_PRODUCER_EPOCH
from tests.support.transactions import ID, PLACE, TIMEOUT_MS, Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def opened(coordinator: Coordinator) -> tuple[int, int]:
    producer = coordinator.register()
    assert coordinator.add(producer) is ErrorCode.none
    return producer


class TestRegistering:
    def test_the_first_producer_gets_epoch_0_and_the_next_one_more(self, coordinator: Coordinator) -> None:
        producer_id, epoch = coordinator.register()
        assert epoch == 0
        assert coordinator.register() == (producer_id, 1)
        assert coordinator.state() is TransactionState.EMPTY

    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    def test_a_timeout_beyond_the_limits_is_refused(self, coordinator: Coordinator, timeout_ms: int) -> None:
        assert coordinator.init(timeout_ms=timeout_ms).error_code is ErrorCode.invalid_transaction_timeout
        assert not coordinator.log

    def test_a_producer_that_says_who_it_is_goes_on(self, coordinator: Coordinator) -> None:
        producer_id, _ = coordinator.register()
        assert coordinator.init((producer_id, 0)).producer_epoch == 1
        assert coordinator.init((producer_id, 0)).producer_epoch == 1, "it asks again, having heard no answer"
        assert coordinator.init((producer_id, 1)).producer_epoch == 2

    def test_a_producer_that_was_replaced_is_fenced(self, coordinator: Coordinator) -> None:
        producer = coordinator.register()
        coordinator.register()
        assert coordinator.init(producer).error_code is ErrorCode.producer_fenced
        assert coordinator.init((producer[0] + 1, 1)).error_code is ErrorCode.producer_fenced

    def test_an_open_transaction_is_aborted_first_and_its_epoch_is_fenced_at_once(
        self, coordinator: Coordinator
    ) -> None:
        producer_id, epoch = opened(coordinator)
        assert coordinator.init().error_code is ErrorCode.concurrent_transactions
        (markers,) = coordinator.markers
        assert (markers.transactional_id, markers.commit, markers.partitions) == (ID, False, frozenset((PLACE,)))
        assert (markers.producer_id, markers.producer_epoch) == (producer_id, epoch + 1)
        assert markers.transaction_version == 2
        assert coordinator.init().error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        assert coordinator.register() == (producer_id, epoch + 2)
        assert coordinator.end((producer_id, epoch)).error_code is ErrorCode.producer_fenced
        assert coordinator.add((producer_id, epoch)) is ErrorCode.producer_fenced

    def test_a_zombie_cannot_abort_what_its_heir_has_open(self, coordinator: Coordinator) -> None:
        zombie = coordinator.register()
        heir = opened(coordinator)
        assert coordinator.init(zombie).error_code is ErrorCode.producer_fenced
        assert coordinator.end(heir).error_code is ErrorCode.none

    def test_a_producer_whose_transaction_is_open_has_it_aborted_and_goes_on(self, coordinator: Coordinator) -> None:
        producer_id, epoch = producer = opened(coordinator)
        assert coordinator.init(producer).error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        response = coordinator.init(producer)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (
            ErrorCode.none,
            producer_id,
            epoch + 1,
        )

    @pytest.mark.parametrize("version", [4, 5])
    def test_a_producer_that_heard_no_answer_to_its_end_goes_on(self, coordinator: Coordinator, version: int) -> None:
        producer_id, epoch = producer = opened(coordinator)
        coordinator.end(producer, version=version)
        assert coordinator.init(producer).error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        for _ in ("it asks", "it asks again, having heard no answer"):
            response = coordinator.init(producer)
            assert response.error_code is ErrorCode.none
            assert (response.producer_id, response.producer_epoch) == (producer_id, epoch + 1)
        assert coordinator.add((producer_id, epoch + 1)) is ErrorCode.none
        assert coordinator.init(producer).error_code is ErrorCode.producer_fenced, "it has gone on, and this is a copy"
        assert coordinator.state() is TransactionState.ONGOING

    def test_a_producer_that_heard_no_answer_goes_on_with_a_new_id(self, coordinator: Coordinator) -> None:
        coordinator.register()
        old = coordinator.advance(MAX_PRODUCER_EPOCH - 1)
        coordinator.add(old)
        end = coordinator.end(old)
        coordinator.write_markers()
        response = coordinator.init(old)
        assert response.error_code is ErrorCode.none
        assert (response.producer_id, response.producer_epoch) == (end.producer_id, 0)

    def test_a_producer_whose_epochs_are_used_up_gets_a_new_id(self, coordinator: Coordinator) -> None:
        coordinator.register()
        old = coordinator.advance(MAX_PRODUCER_EPOCH - 1)
        response = coordinator.init(old)
        assert response.producer_id != old[0]
        assert response.producer_epoch == 0
        assert coordinator.init(old) == response, "it asks again, having heard no answer"
        assert coordinator.register() == (response.producer_id, 1)
        assert coordinator.init(old).error_code is ErrorCode.producer_fenced


class TestPartitions:
    def test_partitions_are_noted_and_can_be_verified(self, coordinator: Coordinator) -> None:
        producer = opened(coordinator)
        other = TopicPartition("orders", 1)
        assert coordinator.verify(producer, (PLACE, other)) == [ErrorCode.none, ErrorCode.transaction_abortable]
        assert coordinator.add(producer, (other,)) is ErrorCode.none
        assert coordinator.verify(producer, (PLACE, other)) == [ErrorCode.none, ErrorCode.none]

    def test_what_is_noted_is_not_stored_again(self, coordinator: Coordinator) -> None:
        producer = opened(coordinator)
        count = len(coordinator.log)
        assert coordinator.add(producer) is ErrorCode.none
        assert len(coordinator.log) == count

    def test_whoever_is_not_the_producer_is_refused(self, coordinator: Coordinator) -> None:
        assert coordinator.add((7, 0)) is ErrorCode.invalid_producer_id_mapping
        producer_id, epoch = coordinator.register()
        assert coordinator.add((producer_id + 1, epoch)) is ErrorCode.invalid_producer_id_mapping
        assert coordinator.add((producer_id, epoch + 1)) is ErrorCode.producer_fenced
        assert coordinator.verify((producer_id, epoch)) == [ErrorCode.transaction_abortable]

    def test_nothing_is_added_while_the_last_transaction_is_being_ended(self, coordinator: Coordinator) -> None:
        producer = opened(coordinator)
        coordinator.end(producer, version=4)
        assert coordinator.add(producer) is ErrorCode.concurrent_transactions
        assert coordinator.verify(producer) == [ErrorCode.concurrent_transactions]
        coordinator.write_markers()
        assert coordinator.add(producer) is ErrorCode.none


class TestEndingWithEpochs:
    @pytest.mark.parametrize("commit", [True, False])
    def test_each_end_brings_an_epoch(self, coordinator: Coordinator, commit: bool) -> None:
        producer_id, epoch = opened(coordinator)
        response = coordinator.end((producer_id, epoch), commit)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (
            ErrorCode.none,
            producer_id,
            epoch + 1,
        )
        coordinator.write_markers()
        done = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        assert coordinator.state() is done
        assert coordinator.add((producer_id, epoch + 1)) is ErrorCode.none

    def test_a_late_end_cannot_end_the_next_transaction(self, coordinator: Coordinator) -> None:
        producer_id, epoch = opened(coordinator)
        coordinator.end((producer_id, epoch), commit=False)
        coordinator.write_markers()
        coordinator.add((producer_id, epoch + 1))
        assert coordinator.end((producer_id, epoch), commit=False).error_code is ErrorCode.producer_fenced
        assert coordinator.state() is TransactionState.ONGOING

    def test_an_end_that_is_repeated_is_answered_as_before(self, coordinator: Coordinator) -> None:
        producer = opened(coordinator)
        first = coordinator.end(producer)
        assert coordinator.end(producer).error_code is ErrorCode.concurrent_transactions
        assert coordinator.end(producer, commit=False).error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        assert coordinator.end(producer) == first
        assert coordinator.end(producer, commit=False).error_code is ErrorCode.invalid_txn_state

    def test_nothing_can_be_committed_that_was_not_begun_but_aborted(self, coordinator: Coordinator) -> None:
        producer_id, epoch = coordinator.register()
        assert coordinator.end((producer_id, epoch)).error_code is ErrorCode.invalid_txn_state
        assert coordinator.end((producer_id, epoch), commit=False).producer_epoch == epoch + 1
        coordinator.write_markers()
        assert coordinator.end((producer_id, epoch + 1)).error_code is ErrorCode.invalid_txn_state
        assert coordinator.end((producer_id, epoch + 1), commit=False).producer_epoch == epoch + 2

    def test_the_last_epoch_gives_way_to_a_new_id(self, coordinator: Coordinator) -> None:
        coordinator.register()
        old = coordinator.advance(MAX_PRODUCER_EPOCH - 1)
        assert coordinator.add(old) is ErrorCode.none
        response = coordinator.end(old)
        new = response.producer_id, response.producer_epoch
        assert new[0] != old[0]
        assert new[1] == 0
        assert coordinator.markers[0].producer_id == old[0]
        assert coordinator.markers[0].producer_epoch == MAX_PRODUCER_EPOCH
        coordinator.write_markers()
        assert coordinator.end(old).producer_id == new[0], "it asks again, having heard no answer"
        assert coordinator.add(new) is ErrorCode.none

    def test_an_id_that_was_fetched_while_the_end_was_written_is_not_needed_any_more(
        self, coordinator: Coordinator
    ) -> None:
        coordinator.register()
        producer = coordinator.advance(MAX_PRODUCER_EPOCH - 1)
        coordinator.add(producer)
        next_id = coordinator.end(producer).producer_id
        assert coordinator.machine.is_used_up(ID)
        fetched = coordinator.fresh_id()
        coordinator.write_markers()
        response = coordinator.end((next_id, 0), commit=False, fresh_id=fetched)
        assert (response.producer_id, response.producer_epoch) == (next_id, 1)

    def test_a_new_id_has_to_wait_for_the_markers_of_the_old_one(self, coordinator: Coordinator) -> None:
        coordinator.register()
        old = coordinator.advance(MAX_PRODUCER_EPOCH - 1)
        coordinator.add(old)
        response = coordinator.end(old)
        new = response.producer_id, response.producer_epoch
        assert coordinator.add(new) is ErrorCode.concurrent_transactions
        assert coordinator.end(new, commit=False).error_code is ErrorCode.concurrent_transactions
        assert coordinator.init(new).error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        assert coordinator.add(new) is ErrorCode.none


class TestEndingWithoutEpochs:
    def test_the_epoch_stays(self, coordinator: Coordinator) -> None:
        producer = opened(coordinator)
        response = coordinator.end(producer, version=4)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (ErrorCode.none, -1, -1)
        assert coordinator.markers[0].producer_epoch == producer[1]
        assert coordinator.end(producer, version=4).error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        assert coordinator.end(producer, version=4).error_code is ErrorCode.none
        assert coordinator.end(producer, commit=False, version=4).error_code is ErrorCode.invalid_txn_state

    def test_an_abort_after_a_commit_is_refused_even_if_the_next_transaction_was_suggest_command(
        self, coordinator: Coordinator
    ) -> None:
        """Without epochs nobody can tell it from an abort of what was committed. librdkafka sends one when it aborts a
        transaction whose AddPartitionsToTxn was refused, and then ends for good, as it does with Kafka."""
        producer = opened(coordinator)
        coordinator.end(producer, version=4)
        assert coordinator.end(producer, commit=False, version=4).error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        assert coordinator.end(producer, commit=False, version=4).error_code is ErrorCode.invalid_txn_state
        assert coordinator.add(producer) is ErrorCode.none
        assert coordinator.end(producer, commit=False, version=4).error_code is ErrorCode.none

    def test_nothing_can_be_ended_that_was_not_begun(self, coordinator: Coordinator) -> None:
        producer = coordinator.register()
        assert coordinator.end(producer, version=4).error_code is ErrorCode.invalid_txn_state
        assert coordinator.end(producer, commit=False, version=4).error_code is ErrorCode.invalid_txn_state
        assert coordinator.end((producer[0], 5), version=4).error_code is ErrorCode.producer_fenced
        assert coordinator.end((5, 0), version=4).error_code is ErrorCode.invalid_producer_id_mapping
        assert coordinator.end((5, 0), name="nobody").error_code is ErrorCode.invalid_producer_id_mapping


class TestTime:
    def test_a_transaction_that_takes_too_long_is_aborted_and_fenced(self, coordinator: Coordinator) -> None:
        producer = opened(coordinator)
        assert coordinator.timers[TransactionTimer(TIMEOUT, ID)] == coordinator.now_ms + TIMEOUT_MS
        coordinator.expire(TIMEOUT, ID)
        assert coordinator.state() is TransactionState.PREPARE_ABORT
        assert coordinator.add(producer) is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        assert coordinator.add(producer) is ErrorCode.producer_fenced
        assert coordinator.end(producer, version=4).error_code is ErrorCode.producer_fenced

    def test_a_producer_that_took_too_long_learns_its_epoch_when_it_aborts(self, coordinator: Coordinator) -> None:
        """As with Apache Kafka 4.3, where the abort of the coordinator brings one epoch and not two."""
        producer_id, epoch = producer = opened(coordinator)
        coordinator.expire(TIMEOUT, ID)
        assert coordinator.end(producer, commit=False).error_code is ErrorCode.concurrent_transactions
        coordinator.write_markers()
        assert coordinator.end(producer, commit=True).error_code is ErrorCode.invalid_txn_state
        response = coordinator.end(producer, commit=False)
        assert response.error_code is ErrorCode.none
        assert (response.producer_id, response.producer_epoch) == (producer_id, epoch + 1)
        assert coordinator.add((producer_id, epoch + 1)) is ErrorCode.none

    def test_a_producer_that_took_too_long_may_register_under_its_name(self, coordinator: Coordinator) -> None:
        producer_id, epoch = producer = opened(coordinator)
        coordinator.expire(TIMEOUT, ID)
        coordinator.write_markers()
        response = coordinator.init(producer)
        assert response.error_code is ErrorCode.none
        assert (response.producer_id, response.producer_epoch) == (producer_id, epoch + 1)

    def test_a_transaction_whose_producer_has_no_epoch_left_is_aborted_with_a_new_id(
        self, coordinator: Coordinator
    ) -> None:
        coordinator.register()
        slow = coordinator.advance(MAX_PRODUCER_EPOCH - 1)
        coordinator.add(slow)
        coordinator.expire(TIMEOUT, ID)
        assert coordinator.state() is TransactionState.ONGOING
        coordinator.overdue.clear()  # no id could be had
        coordinator.expire(TIMEOUT, ID)
        coordinator.give_ids()
        assert coordinator.state() is TransactionState.PREPARE_ABORT
        assert (coordinator.markers[0].producer_id, coordinator.markers[0].producer_epoch) == (
            slow[0],
            MAX_PRODUCER_EPOCH,
        )
        assert TransactionTimer(TIMEOUT, ID) not in coordinator.timers
        coordinator.write_markers()
        response = coordinator.end(slow, commit=False)
        assert response.producer_id != slow[0]
        assert response.producer_epoch == 0
        assert coordinator.add((response.producer_id, 0)) is ErrorCode.none
        assert coordinator.end(slow, commit=False).error_code is ErrorCode.invalid_producer_id_mapping

    def test_an_id_that_comes_late_aborts_nothing_else(self, coordinator: Coordinator) -> None:
        coordinator.register()
        slow = coordinator.advance(MAX_PRODUCER_EPOCH - 1)
        coordinator.add(slow)
        coordinator.expire(TIMEOUT, ID)
        coordinator.end(slow, version=4)
        coordinator.write_markers()
        coordinator.now_ms += 1
        coordinator.add(slow)
        coordinator.give_ids()
        assert coordinator.state() is TransactionState.ONGOING

    def test_the_largest_epoch_is_given_to_nobody(self, coordinator: Coordinator) -> None:
        """It is in logs of brokers that fenced with it when a producer with no epoch left took too long."""
        coordinator.end(opened(coordinator), commit=False)
        coordinator.write_markers()
        producer_id, _ = coordinator.advance(MAX_PRODUCER_EPOCH)
        slow = producer_id, MAX_PRODUCER_EPOCH - 1
        assert coordinator.end(slow, commit=False).error_code is ErrorCode.producer_fenced
        assert coordinator.register()[1] == 0

    def test_an_end_stops_the_clock(self, coordinator: Coordinator) -> None:
        coordinator.end(opened(coordinator))
        assert TransactionTimer(TIMEOUT, ID) not in coordinator.timers

    def test_an_id_that_nobody_uses_is_forgotten(self) -> None:
        coordinator = Coordinator(TransactionSettings(id_expiration_ms=1000, expiration_check_ms=1000))
        coordinator.reload()
        coordinator.register()
        opened_by_another = coordinator.register("other")
        coordinator.add(opened_by_another, name="other")
        coordinator.expire(EXPIRY)
        assert set(coordinator.machine.transactions) == {"other"}
        assert EXPIRY in {key.kind for key in coordinator.timers}
        assert set(coordinator.copy().transactions) == {"other"}

    def test_many_ids_are_forgotten_in_several_passes(self) -> None:
        coordinator = Coordinator(TransactionSettings(id_expiration_ms=1000, expiration_check_ms=60_000))
        coordinator.reload()
        for number in range(MOST_FORGOTTEN + 1):
            coordinator.register(f"id-{number}")
        coordinator.expire(EXPIRY)
        assert len(coordinator.machine.transactions) == 1
        assert coordinator.timers[TransactionTimer(EXPIRY)] < coordinator.now_ms + 1000, "it goes on soon"
        coordinator.expire(EXPIRY)
        assert not coordinator.machine.transactions
        assert coordinator.timers[TransactionTimer(EXPIRY)] == coordinator.now_ms + 60_000


class TestReloading:
    def test_what_was_decided_is_brought_to_its_end(self, coordinator: Coordinator) -> None:
        coordinator.end(opened(coordinator))
        sent = list(coordinator.markers)
        coordinator.reload()
        assert coordinator.markers == sent
        coordinator.write_markers()
        assert coordinator.state() is TransactionState.COMPLETE_COMMIT

    @pytest.mark.parametrize("hours", [0, 20, -20])
    def test_what_is_open_has_its_time_again_whatever_the_new_clock_says(
        self, coordinator: Coordinator, hours: int
    ) -> None:
        opened(coordinator)
        coordinator.now_ms += hours * 3_600_000
        coordinator.reload()
        assert coordinator.timers[TransactionTimer(TIMEOUT, ID)] == coordinator.now_ms + TIMEOUT_MS

    def test_markers_that_come_late_change_nothing(self, coordinator: Coordinator) -> None:
        producer = opened(coordinator)
        response = coordinator.end(producer)
        late = list(coordinator.markers)
        coordinator.write_markers()
        coordinator.add((producer[0], response.producer_epoch))
        coordinator.markers = late
        coordinator.write_markers()
        assert coordinator.state() is TransactionState.ONGOING

    def test_a_damaged_record_is_passed_over(self, coordinator: Coordinator) -> None:
        coordinator.machine.replay_bytes(b"\0", None, -1)
        coordinator.machine.replay_bytes(b"\0\7\0\0", b"", -1)
        assert not coordinator.machine.transactions


def test_every_state_but_the_first_can_be_reached_and_only_the_last_is_an_end() -> None:
    assert {row.after for row in TRANSITIONS.rows} == set(TransactionState)
    assert {row.before for row in TRANSITIONS.rows} == set(TransactionState) - {TransactionState.DEAD}
