"""Produce v3–13: append record batches to the partitions that this broker leads.

- acks 0: no response; an error closes the connection. acks 1 and -1 (all): the response waits where there is something
  to wait for (a sync for flush.messages, replicas for acks=all), at most for the request's timeout.
- Everything is checked first, then everything is appended; once it is, the connection's next request may start while
  this response waits.
- Each partition has its own result; one that fails takes nothing away from the others.
- Batches are stored as they are. Where a topic's settings need them opened (compression.type, compaction, a limit on
  old timestamps), that happens in a thread before the append, and the connection waits, so that order is kept.
- v13: topics by id. A repeated idempotent batch is answered with the offset of the first, once that is committed.

Not implemented: transactions. A transactional batch is refused with INVALID_TXN_STATE.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.errors import ApiError, ErrorCode, InvalidRecord, InvalidRequiredAcks, InvalidTxnState
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol import produce as wire
from barnabas.storage.validation import needs_rewrite, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.broker.replicas import Partition
    from barnabas.protocol.records.batch import BatchHeader


class Accepted(NamedTuple):
    """A batch that may be appended."""

    partition: Partition
    batch: bytes | memoryview
    header: BatchHeader


Checked = list[tuple["str | UUID", list[tuple[int, "Accepted | ApiError"]]]]
"""Topics, and for each partition what is to be appended or why not."""


def produce(
    broker: Broker, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """Store the request's batches."""
    request = wire.unpack(frame, body, version)
    now_ms = broker.clock.now_ms()
    opened = False
    checked: Checked = []
    for topic, partitions in request.topics:
        outcomes: list[tuple[int, Accepted | ApiError]] = []
        for index, records in partitions:
            try:
                accepted = _check(broker, request, topic, index, records, now_ms, version)
            except ApiError as error:
                outcomes.append((index, error))
                continue
            opened = opened or needs_rewrite(accepted.header, accepted.partition.log.config)
            outcomes.append((index, accepted))
        checked.append((topic, outcomes))
    appending = Appending(request.acks, request.timeout_ms, version, correlation_id)
    if opened:
        return _open_first(broker, checked, appending, version)
    return appending.run(checked, now_ms)


def _check(
    broker: Broker,
    request: wire.ProduceRequest,
    topic: str | UUID,
    index: int,
    records: memoryview | None,
    now_ms: int,
    version: int,
) -> Accepted:
    acks = request.acks
    if not -1 <= acks <= 1:
        raise InvalidRequiredAcks(f"acks is {acks}; it should be 0, 1 or -1 (all)")
    if records is None:
        raise InvalidRecord("the request has no records for this partition")
    partition = broker.replicas.find(topic, index)
    if acks == -1:
        partition.check_enough_replicas()
    header = partition.check(records, now_ms, version)
    if header.is_transactional or request.transactional_id is not None:
        raise InvalidTxnState("this broker has no transactions yet: leave transactional.id unset")
    return Accepted(partition, records, header)


def _open_first(broker: Broker, checked: Checked, appending: Appending, version: int) -> Parked:
    """Open and rewrite batches in a thread, then append everything; the connection waits meanwhile."""
    parked = Parked()
    now_ms = broker.clock.now_ms()
    owned = [
        (topic, [(i, o._replace(batch=bytes(o.batch)) if isinstance(o, Accepted) else o) for i, o in outcomes])
        for topic, outcomes in checked
    ]

    def rewrite_all() -> Checked:
        return [(topic, [(index, _rewritten(one, now_ms, version)) for index, one in rows]) for topic, rows in owned]

    def append_all(done: asyncio.Future[Checked]) -> None:
        parked.follow(HANG_UP if done.exception() else appending.run(done.result(), broker.clock.now_ms()))

    asyncio.get_running_loop().run_in_executor(broker.executor, rewrite_all).add_done_callback(append_all)
    return parked


def _rewritten(outcome: Accepted | ApiError, now_ms: int, version: int) -> Accepted | ApiError:
    if isinstance(outcome, ApiError) or not needs_rewrite(outcome.header, outcome.partition.log.config):
        return outcome
    try:
        batch = rewrite(outcome.batch, outcome.partition.log.config, now_ms)
        return Accepted(outcome.partition, batch, outcome.partition.check(batch, now_ms, version))
    except ApiError as error:
        return error


class Appending:
    """One request from its first append to its response."""

    __slots__ = ("_acks", "_correlation_id", "_left", "_parked", "_timeout_ms", "_timer", "_topics", "_version")

    def __init__(self, acks: int, timeout_ms: int, version: int, correlation_id: int) -> None:
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._version = version
        self._correlation_id = correlation_id
        self._topics: list[wire.TopicResult] = []
        self._left: set[tuple[int, int]] = set()
        """Results that wait to be committed, by topic and partition position."""
        self._parked: Parked | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run(self, checked: Checked, now_ms: int) -> Answer | Parked:
        """Append what was accepted; answers at once if there is nothing to wait for."""
        waiting: list[tuple[Partition, int, Callable[[ApiError | None], None]]] = []
        failed = False
        for topic, outcomes in checked:
            results: list[wire.PartitionResult] = []
            for index, outcome in outcomes:
                if isinstance(outcome, ApiError):
                    failed = True
                    results.append(_error(index, outcome))
                    continue
                try:
                    info = outcome.partition.append(outcome.batch, outcome.header, now_ms)
                except ApiError as error:
                    failed = True
                    results.append(_error(index, error))
                    continue
                end_offset = info.last_offset + 1
                if outcome.partition.must_wait(end_offset, self._acks):
                    waiting.append((outcome.partition, end_offset, self._waiter(len(self._topics), len(results))))
                results.append(
                    wire.PartitionResult(
                        index, ErrorCode.none, info.base_offset, info.append_time, info.log_start_offset
                    )
                )
            self._topics.append(wire.TopicResult(topic, results))
        if self._acks == 0:
            return HANG_UP if failed else None
        if not waiting:
            return wire.pack(self._correlation_id, self._version, self._topics)
        self._parked = Parked(overtakable=True)
        self._timer = asyncio.get_running_loop().call_later(self._timeout_ms / 1000, self._timed_out)
        for partition, end_offset, done in waiting:
            partition.when_committed(end_offset, done)
        return self._parked

    def _waiter(self, topic: int, partition: int) -> Callable[[ApiError | None], None]:
        place = (topic, partition)
        self._left.add(place)

        def done(error: ApiError | None) -> None:
            if place not in self._left:
                return
            if error is not None:
                self._fail(place, int(error.code), str(error))
            self._left.discard(place)
            if not self._left:
                self._finish()

        return done

    def _timed_out(self) -> None:
        for place in self._left:
            self._fail(place, ErrorCode.request_timed_out, "the records are stored, but not committed in time")
        self._left.clear()
        self._finish()

    def _fail(self, place: tuple[int, int], code: int, message: str) -> None:
        topic, partition = place
        results = self._topics[topic].partitions
        results[partition] = wire.PartitionResult(results[partition].partition, code, message=message)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._parked is not None:
            self._parked.resolve(wire.pack(self._correlation_id, self._version, self._topics))


def _error(index: int, error: ApiError) -> wire.PartitionResult:
    return wire.PartitionResult(index, int(error.code), message=str(error))
