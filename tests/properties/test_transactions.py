"""Whatever producers do, in whichever order, with whatever epoch they remember: transactions keep their promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.machines.transactions.coordinator import TIMEOUT, TransactionTimer
from barnabas.machines.transactions.settings import TransactionSettings
from barnabas.machines.transactions.states import TransactionState
from barnabas.machines.transactions.steps import Markers, partitions_of, state_of
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.records.batch import MAX_PRODUCER_EPOCH
from tests.support.transactions import Coordinator

IDS = st.sampled_from(["a", "b"])
PLACES = st.frozensets(st.sampled_from([TopicPartition("t", index) for index in range(3)]), min_size=1)
VERSIONS = st.sampled_from([4, 5])
EPOCHS = st.sampled_from([0, MAX_PRODUCER_EPOCH - 3, MAX_PRODUCER_EPOCH - 2, MAX_PRODUCER_EPOCH - 1])


class Producers(RuleBasedStateMachine):
    """Producers that remember ids and epochs that they were told, and use any of them at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator(TransactionSettings(id_expiration_ms=2**40))
        self.known: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
        self.highest: dict[int, int] = {}
        """The highest epoch of each producer id."""
        self.owners: dict[int, str] = {}
        self.decided: dict[str, Markers] = {}
        """The end that was decided and is not written everywhere."""

    def producer(self, name: str, data: st.DataObject) -> tuple[int, int]:
        return data.draw(st.sampled_from([*self.known[name][-4:], (7, 0)]))

    def listen(self) -> None:
        """Hear of markers: a transaction has one end, and another begins only after it."""
        for marker in self.coordinator.markers:
            before = self.decided.get(marker.transactional_id)
            assert before is None or before == marker, "two ends of one transaction"
            self.decided[marker.transactional_id] = marker

    @initialize(epochs=st.fixed_dictionaries({"a": EPOCHS, "b": EPOCHS}))
    def grow_old(self, epochs: dict[str, int]) -> None:
        """Ids whose epochs are nearly used up, so that new producer ids are needed soon."""
        for name, epoch in epochs.items():
            if epoch:
                self.coordinator.register(name)
                self.known[name].append(self.coordinator.advance(epoch, name))

    @rule(name=IDS, data=st.data(), is_new=st.booleans())
    def register(self, name: str, data: st.DataObject, is_new: bool) -> None:
        claimed = (-1, -1) if is_new else self.producer(name, data)
        before = self.coordinator.machine.transactions.get(name)
        response = self.coordinator.init(claimed, transactional_id=name)
        self.listen()
        if response.error_code is ErrorCode.none:
            assert before is None or not state_of(before).is_open, "an open transaction was left behind"
            self.known[name].append((response.producer_id, response.producer_epoch))

    @rule(name=IDS, data=st.data(), places=PLACES)
    def add(self, name: str, data: st.DataObject, places: frozenset[TopicPartition]) -> None:
        producer = self.producer(name, data)
        before = self.coordinator.machine.transactions.get(name)
        if self.coordinator.add(producer, places, name=name) is ErrorCode.none:
            assert before is not None
            assert (before.producer_id, before.producer_epoch) == producer, "a fenced producer wrote"
            assert name not in self.decided, "a transaction began before the last one ended"
            assert partitions_of(self.coordinator.value(name)) >= places

    @rule(name=IDS, data=st.data(), commit=st.booleans(), version=VERSIONS)
    def end(self, name: str, data: st.DataObject, commit: bool, version: int) -> None:
        producer = self.producer(name, data)
        before = self.coordinator.machine.transactions.get(name)
        response = self.coordinator.end(producer, commit, version, name)
        self.listen()
        if response.error_code is not ErrorCode.none:
            assert self.coordinator.machine.transactions.get(name) == before
        elif response.producer_id >= 0:
            self.known[name].append((response.producer_id, response.producer_epoch))

    @precondition(lambda self: self.coordinator.markers)
    @rule()
    def write_markers(self) -> None:
        for marker in self.coordinator.markers:
            before = self.coordinator.value(marker.transactional_id)
            assert partitions_of(before) == set(marker.partitions)
        self.coordinator.write_markers()
        for name, marker in self.decided.items():
            done = TransactionState.COMPLETE_COMMIT if marker.commit else TransactionState.COMPLETE_ABORT
            assert self.coordinator.state(name) is done
        self.decided.clear()

    @rule(name=IDS)
    def take_too_long(self, name: str) -> None:
        if TransactionTimer(TIMEOUT, name) in self.coordinator.timers:
            self.coordinator.expire(TIMEOUT, name)
            self.listen()
            waits = any(each.transactional_id == name for each in self.coordinator.overdue)
            assert self.coordinator.state(name) is (
                TransactionState.ONGOING if waits else TransactionState.PREPARE_ABORT
            )

    @precondition(lambda self: self.coordinator.overdue)
    @rule()
    def give_ids(self) -> None:
        """Producer ids come that aborts wait for: in time, or when the transaction has ended."""
        self.coordinator.give_ids()
        self.listen()

    @rule()
    def move(self) -> None:
        self.coordinator.reload()
        assert {marker.transactional_id: marker for marker in self.coordinator.markers} == self.decided

    @invariant()
    def replaying_the_log_gives_the_same_state(self) -> None:
        assert self.coordinator.copy().transactions == self.coordinator.machine.transactions

    @invariant()
    def epochs_never_go_back_and_ids_are_never_shared(self) -> None:
        for name, value in self.coordinator.machine.transactions.items():
            assert value.producer_epoch >= self.highest.get(value.producer_id, 0)
            self.highest[value.producer_id] = value.producer_epoch
            assert self.owners.setdefault(value.producer_id, name) == name

    @invariant()
    def the_largest_epoch_is_nobodys_and_leads_to_a_new_id(self) -> None:
        for value in self.coordinator.machine.transactions.values():
            if value.producer_epoch == MAX_PRODUCER_EPOCH:
                assert state_of(value).is_ending
                assert value.next_producer_id not in (-1, value.producer_id)

    @invariant()
    def only_an_open_transaction_has_partitions_and_a_timer(self) -> None:
        for name, value in self.coordinator.machine.transactions.items():
            state = state_of(value)
            assert state.is_open or not partitions_of(value)
            assert (TransactionTimer(TIMEOUT, name) in self.coordinator.timers) == (state is TransactionState.ONGOING)


TestProducers = Producers.TestCase
TestProducers.settings = settings(deadline=None)
