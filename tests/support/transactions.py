"""A transaction coordinator for tests: asked as the shell asks it, each decision replayed at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i16, i32Timedelta

from barnabas.machines.outcome import Asker
from barnabas.machines.transactions.coordinator import Overdue, TransactionCoordinator, TransactionTimer
from barnabas.machines.transactions.settings import TransactionSettings
from barnabas.machines.transactions.steps import Markers, state_of
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.coordinator_records.transaction_state import TransactionLogKey, TransactionRecord

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.machines.outcome import Outcome
    from barnabas.machines.transactions.states import TransactionState
    from barnabas.protocol.coordinator_records.transaction_state import TransactionLogValue

ID = "payments"
PLACE = TopicPartition("orders", 0)
TIMEOUT_MS = 60_000


@dataclass(eq=False)
class Client(Asker[object]):
    """Whoever asks."""

    version: int = 5
    client_id: str = "client"
    client_host: str = "/127.0.0.1"


@dataclass
class Coordinator:
    """The machine with its log, its timers and the markers that it wants to be written."""

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    now_ms: int = 1_000_000

    def __post_init__(self) -> None:
        self.machine = TransactionCoordinator(self.settings)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[Any, int] = {}
        self.markers: list[Markers] = []
        self.overdue: list[Overdue] = []
        """Aborts that wait for a producer id."""
        self._next_id = 100

    def apply(self, outcome: Outcome[Any, Any, Any]) -> Any:
        """What the shell does with a decision; gives the answer."""
        for record in outcome.changes:
            self.log.append(self.machine.encode(record))
            self.machine.replay(record)
        for timer in outcome.timers:
            if timer.at_ms is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer.at_ms
        for message in outcome.sends:
            if isinstance(message, Overdue):
                self.overdue.append(message)
            else:
                assert isinstance(message, Markers)
                self.markers.append(message)
        return outcome.replies[0][1] if outcome.replies else None

    def value(self, transactional_id: str = ID) -> TransactionLogValue:
        """What is stored of an id."""
        return self.machine.transactions[transactional_id]

    def state(self, transactional_id: str = ID) -> TransactionState:
        """The state of an id."""
        return state_of(self.value(transactional_id))

    def fresh_id(self) -> int:
        """A producer id that nobody has had."""
        self._next_id += 1
        return self._next_id

    def init(
        self, producer: tuple[int, int] = (-1, -1), timeout_ms: int = TIMEOUT_MS, transactional_id: str = ID
    ) -> InitProducerIdResponse:
        """InitProducerId."""
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(transactional_id),
            transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
            producer_id=ProducerId(producer[0]),
            producer_epoch=i16(producer[1]),
        )
        fresh_id = self.fresh_id() if self.machine.needs_producer_id(transactional_id) else -1
        response = self.apply(self.machine.init_producer_id(request, fresh_id, Client(), self.now_ms))
        assert isinstance(response, InitProducerIdResponse)
        return response

    def register(self, transactional_id: str = ID) -> tuple[int, int]:
        """The producer id and epoch that a new producer gets."""
        response = self.init(transactional_id=transactional_id)
        assert response.error_code is ErrorCode.none, response
        return response.producer_id, response.producer_epoch

    def add(
        self, producer: tuple[int, int], places: Collection[TopicPartition] = (PLACE,), version: int = 2, name: str = ID
    ) -> ErrorCode:
        """AddPartitionsToTxn."""
        code = self.apply(self.machine.add_partitions(name, *producer, places, version, Client(), self.now_ms))
        assert isinstance(code, ErrorCode)
        return code

    def verify(self, producer: tuple[int, int], places: Collection[TopicPartition] = (PLACE,)) -> list[ErrorCode]:
        """AddPartitionsToTxn that only verifies."""
        codes = self.apply(self.machine.verify_partitions(ID, *producer, places, Client(), self.now_ms))
        return [codes[place] for place in places]

    def end(
        self,
        producer: tuple[int, int],
        commit: bool = True,
        version: int = 5,
        name: str = ID,
        fresh_id: int | None = None,
    ) -> EndTxnResponse:
        """EndTxn, with a producer id that was fetched for it before, or as it is needed now."""
        request = EndTxnRequest(
            transactional_id=TransactionalId(name),
            producer_id=ProducerId(producer[0]),
            producer_epoch=i16(producer[1]),
            committed=commit,
        )
        if fresh_id is None:
            fresh_id = self.fresh_id() if self.machine.is_used_up(name) else -1
        response = self.apply(self.machine.end_txn(request, fresh_id, Client(version), self.now_ms))
        assert isinstance(response, EndTxnResponse)
        return response

    def advance(self, epoch: int, transactional_id: str = ID) -> tuple[int, int]:
        """Let an id's producer have come to this epoch."""
        value = self.value(transactional_id)._replace(producer_epoch=epoch)
        record = TransactionRecord(TransactionLogKey(transactional_id), value)
        self.log.append(self.machine.encode(record))
        self.machine.replay(record)
        return value.producer_id, epoch

    def write_markers(self) -> None:
        """All markers reach their partitions."""
        markers, self.markers = self.markers, []
        for each in markers:
            self.apply(self.machine.markers_written(each, self.now_ms))

    def expire(self, kind: str, transactional_id: str = "") -> None:
        """A timer fires at its time."""
        key = TransactionTimer(kind, transactional_id)
        self.now_ms = max(self.now_ms, self.timers.pop(key))
        self.apply(self.machine.expire(key, self.now_ms))

    def give_ids(self) -> None:
        """The producer ids come that aborts wait for."""
        overdue, self.overdue = self.overdue, []
        for each in overdue:
            self.apply(self.machine.abort_overdue(each, self.fresh_id(), self.now_ms))

    def reload(self) -> None:
        """Another broker takes the partition over."""
        self.machine = self.copy()
        self.timers, self.markers, self.overdue = {}, [], []
        self.apply(self.machine.loaded(self.now_ms))

    def copy(self) -> TransactionCoordinator:
        """The machine that the log makes."""
        machine = TransactionCoordinator(self.settings)
        for key, value in self.log:
            machine.replay_bytes(key, value, -1)
        return machine
