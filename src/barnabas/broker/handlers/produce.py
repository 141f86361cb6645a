"""Produce v3–13: append record batches to the partitions that this broker leads.

- acks 0: no response; an error closes the connection. acks 1 and -1 (all): the response waits where there is something
  to wait for, at most for the request's timeout: with acks 1 for a sync that flush.messages wants now, with all until
  the records are committed. They wait on where this broker leads on in a new leader epoch.
- Once everything is appended, the connection's next request may start while this response waits.
- Each partition has its own result; one that fails takes nothing away from the others.
- Records are gone over before their batch is stored. Where that takes long, something is wrong with them, or a topic's
  settings need them opened (compression.type, compaction, a limit on old timestamps), it happens in a thread before the
  append, and the connection waits, so that order is kept. So does making the files of a log that is written to for the
  first time.
- v8+: a batch that is refused because of some of its records is answered with which, and why.
- v13: topics by id. A repeated idempotent batch is answered with the offset of the first, once that is committed.
  OUT_OF_ORDER_SEQUENCE_NUMBER is returned only after a follower has fetched, since a leader that was replaced
  meanwhile may lack the batches before.
- The first batch of a transaction in a partition is stored after the transaction's coordinator has noted the partition:
  by this request (v12+), or before, which is verified. The connection waits meanwhile.
- With an authorizer, each topic needs Write; another one has TOPIC_AUTHORIZATION_FAILED. A request with a transactional
  id needs Write on that, too, or all of it has TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Brokers of this cluster, which
  write dead letters of share groups, need ClusterAction instead.
- With client quotas, the response has the time that the client has to wait. A request counts when it comes, with all of
  its bytes, whatever becomes of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.broker.permissions.records import unwritable
from barnabas.broker.serving.validation_pool import yield_interpreter
from barnabas.machines.partition import ACKS_ALL
from barnabas.model.errors import (
    ApiError,
    InvalidRecord,
    NotEnoughReplicas,
    OutOfOrderSequence,
    RecordsRefused,
    RequestTimedOut,
    TransactionalIdAuthorizationFailed,
)
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.messages import produce as wire
from barnabas.protocol.records.batch import TRANSACTIONAL
from barnabas.storage.log.validation import ZSTD_SINCE, Allowance, is_sound, rewrite
from barnabas.storage.producers.recall import ReadBackNeeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.verification import Verification
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.security.metering import Meter
    from barnabas.broker.serving.caller import Caller
    from barnabas.storage.log.log import AppendInfo

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CONFIRMATION: Final = -1
"""Instead of an offset: what is waited for is that this broker still leads."""


class Preparation(Enum):
    """What must happen in a thread before a batch can be appended."""

    FILES = "the log's files are made"
    OPENING = "the batch is opened"
    RECALL = "what a snapshot left out of producers' last batches is read back"


def produce(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """Store the request's batches.

    One plain batch has a straight way, on which no object is made for the request or its result unless the answer has
    to wait.
    """
    one = wire.unpack_one(frame, body, version)
    if one is not None:
        acks, timeout_ms, topic, index, records = one
        partition = broker.replicas.led(topic, index)
        if (
            partition is not None
            and acks != 0
            and (broker.permissions is None or (caller.session.principal, topic) in caller.session.memo.writable)
        ):
            try:
                info = partition.append_plain(records, acks, broker.clock.now_ms())
            except OutOfOrderSequence:
                info = None
            except ApiError as error:
                partition.traffic.refused_batches += 1
                caller.session.retried_batches.note(topic, index, records, error)
                return wire.pack(correlation_id, version, [wire.failure(topic, index, error.code, str(error))])
            if info is not None:
                base_offset, last_offset, append_time, log_start_offset, _ = info
                if partition.leader.high_watermark > last_offset or not partition.must_wait(acks, last_offset):
                    return wire.pack_one(correlation_id, topic, index, base_offset, append_time, log_start_offset)
                result = topic, index, 0, base_offset, append_time, log_start_offset, None, ()
                request = wire.ProduceRequest(None, acks, timeout_ms, [])
                return Produce(broker, caller, version, correlation_id, request).wait(
                    result, partition, last_offset + 1
                )
    return Produce(broker, caller, version, correlation_id, wire.unpack(frame, body, version)).run()


def produce_metered(
    broker: BrokerContext,
    caller: Caller,
    version: int,
    correlation_id: int,
    frame: memoryview,
    body: int,
    meter: Meter,
) -> Answer | Parked:
    """Store the request's batches, while there are quotas."""
    request = wire.unpack(frame, body, version)
    meter.produced(len(frame))
    if request.acks != 0:
        meter.check_time()
    return Produce(broker, caller, version, correlation_id, request, meter).run()


def _store(
    partition: LeaderPartition,
    acks: int,
    records: bytes | memoryview,
    now_ms: int,
    version: int,
    verification: Verification | None,
    place: int,
    done: Preparation | None,
) -> AppendInfo | Preparation:
    """Check and append one batch, or say what must happen first; `done` is what has happened already."""
    partition.check_acks(acks)
    header = partition.check(records, now_ms, version)
    if header.attributes & TRANSACTIONAL and verification is None:
        raise TransactionalIdAuthorizationFailed("A transactional batch needs a transactional id in its request.")
    if done is None and not partition.log.is_ready:
        return Preparation.FILES
    if done is not Preparation.OPENING and not is_sound(records, header, partition.log.config, now_ms):
        return Preparation.OPENING
    if verification is not None:
        verification.admit(place, partition, header)
    return partition.append(records, header, now_ms)


def _owned(partitions: list[wire.Records]) -> list[wire.Records]:
    """The records out of a buffer that others need meanwhile."""
    return [
        (topic, index, None if records is None else memoryview(bytes(records))) for topic, index, records in partitions
    ]


class Produce:
    """One request, from its first append to its response."""

    __slots__ = (
        "_broker",
        "_caller",
        "_correlation_id",
        "_denied",
        "_meter",
        "_parked",
        "_request",
        "_results",
        "_retried_batches",
        "_timer",
        "_verification",
        "_version",
        "_waiting",
    )

    def __init__(
        self,
        broker: BrokerContext,
        caller: Caller,
        version: int,
        correlation_id: int,
        request: wire.ProduceRequest,
        meter: Meter | None = None,
    ) -> None:
        self._broker = broker
        self._caller = caller
        self._retried_batches = caller.session.retried_batches
        self._version = version
        self._correlation_id = correlation_id
        self._request = request
        self._meter = meter
        """Counts the request against its client's quotas, if there are any."""
        self._results: list[wire.Result] = []
        self._denied: list[wire.Result] = []
        """Results of what the caller may not write; they come after the others."""
        self._waiting: dict[int, tuple[LeaderPartition, int]] = {}
        """Results that wait, by their place: the partition, and the offset that must be passed to be safe."""
        self._verification: Verification | None = None
        """For a transactional producer: which of its batches may be stored."""
        self._parked: Parked | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run(self) -> Answer | Parked:
        """Append everything; answers at once if there is nothing to wait for."""
        permissions = self._broker.permissions
        if permissions is not None:
            refusals = unwritable(permissions, self._caller, self._broker.metadata, self._request)
            if refusals:
                self._leave_out(refusals)
        if self._request.partitions and self._request.transactional_id is not None:
            from barnabas.broker.coordinators.verification import Verification

            self._verification = Verification(self._broker, self._version, self._request)
            if self._verification.is_needed and not self._verification.run_at_once():
                return self._verify(self._verification)
        return self._append_all()

    def _leave_out(self, refusals: Mapping[wire.Topic, ApiError]) -> None:
        """Keep of the request what the caller may write."""
        partitions = self._request.partitions
        self._request = self._request._replace(partitions=[one for one in partitions if one[0] not in refusals])
        self._denied = [
            wire.failure(topic, index, refusals[topic].code, str(refusals[topic]))
            for topic, index, _ in partitions
            if topic in refusals
        ]

    def _verify(self, verification: Verification) -> Parked:
        """Ask the transaction's coordinator, then append; the connection waits meanwhile."""
        parked = Parked()
        self._request = self._request._replace(partitions=_owned(self._request.partitions))

        async def verify() -> None:
            try:
                await verification.run()
                parked.follow(self._append_all())
            except asyncio.CancelledError:  # the broker stops, and the coordinator has not answered
                parked.resolve(HANG_UP)
                raise
            except Exception:
                logger.exception("PRODUCE failed while its transaction was verified; closed the connection.")
                parked.resolve(HANG_UP)

        self._broker.transactions.spawn(verify())
        return parked

    def _append_all(self) -> Answer | Parked:
        return self._append_these(self._request.partitions)

    def _append_these(self, partitions: list[wire.Records], done: Preparation | None = None) -> Answer | Parked:
        """Append what is left of the request; `done` is what has happened for all of it already."""
        now_ms = self._broker.clock.now_ms()
        acks = self._request.acks
        results, led = self._results, self._broker.replicas.led
        may_be_plain = self._verification is None and self._version >= ZSTD_SINCE
        for place, (topic, index, records) in enumerate(partitions):
            result: wire.Result | Preparation
            try:
                partition = led(topic, index)
                if (
                    may_be_plain
                    and partition is not None
                    and records is not None
                    and (info := partition.append_plain(records, acks, now_ms)) is not None
                ):
                    results.append(self._stored(partition, topic, index, info))
                    continue
                result = self._append(topic, index, records, now_ms, done)
            except ReadBackNeeded:
                result = Preparation.RECALL
            except ApiError as error:
                result = self._refused(topic, index, error, records)
            if result is Preparation.FILES:
                return self._make_files(partitions[place:])
            if result is Preparation.RECALL:
                return self._recall(partitions[place:])
            if result is Preparation.OPENING:
                return self._open(partitions[place:])
            results.append(result)
        return self._respond()

    def _stored(self, partition: LeaderPartition, topic: wire.Topic, index: int, info: AppendInfo) -> wire.Result:
        """The result of a batch that is in its log; if that is not enough for its acks, the response waits."""
        base_offset, last_offset, append_time, log_start_offset, _ = info
        if partition.leader.high_watermark <= last_offset and partition.must_wait(self._request.acks, last_offset):
            self._waiting[len(self._results)] = partition, last_offset + 1
        return topic, index, 0, base_offset, append_time, log_start_offset, None, ()

    def _refused(
        self, topic: wire.Topic, index: int, error: ApiError, records: bytes | memoryview | None
    ) -> wire.Result:
        """The result of a batch that was not stored.

        A leader that was replaced without knowing it misses batches, and would end a producer for good by saying that
        its next one is out of order. So that is said when a follower has fetched here, and otherwise never. Nor is it
        said of a batch behind one that was turned away (`retried_batches`).
        """
        partition = self._broker.replicas.led(topic, index)
        if partition is not None:
            partition.traffic.refused_batches += 1
        if isinstance(error, OutOfOrderSequence):
            if partition is not None and records is not None:
                error = self._retried_batches.reason(topic, index, records, partition.log) or error
            if (
                isinstance(error, OutOfOrderSequence)
                and self._request.acks == ACKS_ALL
                and partition is not None
                and len(partition.leader.isr) > 1
            ):
                self._waiting[len(self._results)] = partition, _CONFIRMATION
        if records is not None:
            self._retried_batches.note(topic, index, records, error)
        refusals = error.records if isinstance(error, RecordsRefused) else ()
        return wire.failure(topic, index, error.code, str(error), refusals)

    def _append(
        self, topic: wire.Topic, index: int, records: bytes | memoryview | None, now_ms: int, done: Preparation | None
    ) -> wire.Result | Preparation:
        """Append one batch, or say what must happen in a thread first."""
        verification, place = self._verification, len(self._results)
        partition = self._broker.replicas.find(topic, index)
        if records is None:
            raise InvalidRecord("The request has no records for this partition.")
        if verification is not None:
            verification.check(place)
        info = _store(partition, self._request.acks, records, now_ms, self._version, verification, place, done)
        return info if isinstance(info, Preparation) else self._stored(partition, topic, index, info)

    def wait(self, result: wire.Result, partition: LeaderPartition, end_offset: int) -> Answer | Parked:
        """Answer with this one result once everything before `end_offset` is as safe as its acks want it."""
        self._results.append(result)
        self._waiting[0] = partition, end_offset
        return self._respond()

    def _respond(self) -> Answer | Parked:
        if self._request.acks == 0:
            return HANG_UP if self._denied or any(result[2] for result in self._results) else None
        if not self._waiting:
            return self._packed()
        self._request = self._request._replace(partitions=[])  # they are views of a buffer that others need now
        self._parked = Parked(overtakable=True, on_abandon=self._abandoned)
        self._timer = asyncio.get_running_loop().call_later(self._request.timeout_ms / 1000, self._timed_out)
        for place, (partition, end_offset) in list(self._waiting.items()):
            if end_offset == _CONFIRMATION:
                partition.when_confirmed(self._waiter(place))
            elif self._request.acks == ACKS_ALL:
                partition.when_committed(end_offset, self._waiter(place))
            else:
                partition.when_synced(end_offset, self._waiter(place))
        return self._parked

    # What happens in threads before the append

    def _make_files(self, rest: list[wire.Records]) -> Parked:
        """Make the files of all logs that are left, then go on; the connection waits meanwhile."""
        owned = _owned(rest)
        led = [self._broker.replicas.led(topic, index) for topic, index, _ in owned]

        def prepare_all() -> None:
            for partition in led:
                if partition is not None:
                    with contextlib.suppress(ApiError):  # the append finds it too, and says so
                        partition.log.prepare()

        running = asyncio.get_running_loop().run_in_executor(self._broker.executor, prepare_all)
        return self._after(running, lambda _: self._append_these(owned, Preparation.FILES))

    def _recall(self, rest: list[wire.Records]) -> Parked:
        """Read back the last batches of the first log's producers, then go on; the connection waits meanwhile."""
        owned = _owned(rest)
        log = self._broker.replicas.find(*owned[0][:2]).log

        def recall() -> None:
            with contextlib.suppress(ApiError):  # as of a topic that was deleted: the append finds it too, and says so
                log.producers.recall()

        running = asyncio.get_running_loop().run_in_executor(self._broker.executor, recall)
        return self._after(running, lambda _: self._append_these(owned, Preparation.FILES))

    def _open(self, rest: list[wire.Records]) -> Answer | Parked:
        """Open what is left in a thread, then append it; the connection waits meanwhile."""
        now_ms = self._broker.clock.now_ms()
        owned = _owned(rest)
        size = sum(len(records) for _, _, records in owned if records is not None)
        allowance = Allowance(size)

        def open_all() -> list[bytes | memoryview | ApiError | None]:
            return [self._opened(topic, index, records, now_ms, allowance) for topic, index, records in owned]

        def append_all(opened: list[bytes | memoryview | ApiError | None]) -> Answer | Parked:
            for (topic, index, records), outcome in zip(owned, opened, strict=True):
                self._results.append(self._append_opened(topic, index, records, outcome))
            return self._respond()

        job = open_all if self._meter is None else self._meter.timed(open_all)
        running = self._broker.validation_pool.start(size, job)
        if running is None:
            logger.warning(
                "Closed the connection of a Produce request of %d bytes: the batches that wait to be validated use up "
                "queued.max.request.bytes.",
                size,
            )
            return HANG_UP
        return self._after(running, append_all)

    def _after(self, running: asyncio.Future[T], go_on: Callable[[T], Answer | Parked]) -> Parked:
        """What the connection waits for: what a thread does, and what is done with it."""
        parked = Parked()

        def done(ran: asyncio.Future[T]) -> None:
            try:
                parked.follow(go_on(ran.result()))
            except asyncio.CancelledError:  # the broker stops
                parked.resolve(HANG_UP)
            except Exception:
                logger.exception("PRODUCE failed after its work in a thread; closed the connection.")
                parked.resolve(HANG_UP)

        running.add_done_callback(done)
        return parked

    def _opened(
        self, topic: wire.Topic, index: int, records: memoryview | None, now_ms: int, allowance: Allowance
    ) -> bytes | memoryview | ApiError | None:
        """The batch as it is to be stored, or why it cannot be. Runs in a thread."""
        if records is None:
            return None
        try:
            partition = self._broker.replicas.find(topic, index)
            partition.log.prepare()
            partition.log.producers.recall_for(partition.check(records, now_ms, self._version))
            return rewrite(records, partition.log.config, now_ms, allowance, yield_interpreter)
        except ApiError as error:
            return error

    def _append_opened(
        self,
        topic: wire.Topic,
        index: int,
        records: bytes | memoryview | None,
        outcome: bytes | memoryview | ApiError | None,
    ) -> wire.Result:
        try:
            if isinstance(outcome, ApiError):
                raise outcome
            result = self._append(topic, index, outcome, self._broker.clock.now_ms(), Preparation.OPENING)
            assert not isinstance(result, Preparation)
            return result
        except ReadBackNeeded:
            error: ApiError = NotEnoughReplicas("The state of this producer is being read from disk. Try again.")
            return self._refused(topic, index, error, records)
        except ApiError as error:
            return self._refused(topic, index, error, records)

    # Waiting for replicas, or a sync

    def _waiter(self, place: int) -> Callable[[ApiError | None], None]:
        def done(error: ApiError | None) -> None:
            waited = self._waiting.pop(place, None)
            if waited is None:
                return
            partition, end_offset = waited
            if error is None and self._request.acks == ACKS_ALL and end_offset != _CONFIRMATION:
                error = partition.present.too_few_in_sync()
            if error is not None:
                self._fail(place, error)
            if not self._waiting:
                self._finish()

        return done

    def _timed_out(self) -> None:
        for place in self._waiting:
            self._fail(place, RequestTimedOut("The followers or the disk did not confirm the records in time."))
        self._waiting.clear()
        self._finish()

    def _fail(self, place: int, error: ApiError) -> None:
        topic, index, *_ = self._results[place]
        self._results[place] = wire.failure(topic, index, error.code, str(error))

    def _abandoned(self) -> None:
        """The client is gone; what was appended stays, and nobody is told of it."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._parked is not None:
            self._parked.resolve(self._packed())

    def _packed(self) -> bytes:
        throttle_ms = 0 if self._meter is None else self._meter.throttle_ms
        return wire.pack(self._correlation_id, self._version, self._results + self._denied, throttle_ms)
