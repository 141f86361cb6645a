"""Fetch v4–18: slices of log files, sent without being read.

- Sessions (KIP-227): see `machines/fetch_session`.
- Long poll: with less than min_bytes to send, the request waits for appends, at most max_wait_ms; an error, or
  something to tell about another leader epoch, is answered at once.
- Limits: max_bytes of the request and fetch.max.bytes for the whole, partition_max_bytes for each; the first batch
  found is sent whatever its size, so that a consumer always gets on.
- Consumers see what is below the high watermark, and with read_committed below the last stable offset, together with
  the aborted transactions that they are to skip.
- v12+: a fetcher that names the epoch of its last record is told where its log leaves ours. v13+: topics by id.

- Followers, which say which replica they are, get everything there is, and what they ask for tells how far they are.
  One that has not proved to be that broker gets TOPIC_AUTHORIZATION_FAILED. Followers are told of deleted records at
  once. While batches come one after the other, followers wait and get several together
  (`broker/fetching/fetch_batching`).
- v11+: with replica.selector.class, a consumer that names its rack is sent from the leader to a replica in sync in that
  rack. Any replica is read from, up to the high watermark that it knows.

- With an authorizer, each topic needs Read, and another one has TOPIC_AUTHORIZATION_FAILED; followers need
  ClusterAction. What a session fetches is judged again when the rules have changed, and so is a fetch that waits.

- With client quotas, a consumer that has used up its share gets no records, and is told how long it has to wait. It
  gets no more at once than it may have in a whole window. What followers fetch does not count.

Not implemented: tiered storage.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.fetching.leases import lease_files
from barnabas.broker.fetching.partition_read import DiskReadNeeded, divergence, nearer_replica, read_for_consumer
from barnabas.broker.permissions.records import unreadable
from barnabas.broker.replication.cold_logs import open_all
from barnabas.machines.fetch_session import UNKNOWN, without_session
from barnabas.machines.partition import NO_EPOCH
from barnabas.machines.security.acls import Operation
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    OffsetOutOfRange,
    StorageFailed,
    TopicAuthorizationFailed,
)
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.messages import fetch_response as wire
from barnabas.protocol.messages.fetch_request import FetchRequest, unpack
from barnabas.storage.files import ColdRead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.fetching.partition_read import Fetched
    from barnabas.broker.replication.follower_partition import FollowerPartition
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.security.metering import Meter
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.fetch_session import FetchContext, ReplicaSession, SessionPartition
    from barnabas.machines.resting import RestingPlace

logger = logging.getLogger(__name__)

CURRENT_LEADER_ERRORS: Final = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
NOT_LOOKED_FOR: Final = frozenset(
    {ErrorCode.topic_authorization_failed, ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id}
)
"""Errors of partitions that Kafka answers without looking at a log, and with an empty list of aborted transactions."""


def fetch(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """Answer with what there is, or wait for more."""
    request = unpack(frame, body, version)
    if request.replica_id >= 0 and broker.permissions is not None:
        access = broker.permissions.of(caller, "FETCH")
        if not access.allows_cluster(Operation.CLUSTER_ACTION):
            return Fetch(broker, caller, request, without_session(request.partitions), version, correlation_id).refuse()
    if request.replica_id >= 0 and request.replica_id != caller.broker_id:
        logger.warning(
            "Denied a Fetch of client %s at %s: it did not prove to be broker %d, whose replica id it sent.",
            *caller.named,
            request.replica_id,
        )
        return Fetch(broker, caller, request, without_session(request.partitions), version, correlation_id).refuse()
    return Fetch(broker, caller, request, _context(broker, request, version), version, correlation_id).start()


def _context(broker: BrokerContext, request: FetchRequest, version: int) -> FetchContext:
    """What is fetched, by the session or without one."""
    return broker.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        request.partitions,
        request.forgotten,
        use_ids=version >= wire.TOPIC_IDS,
        follower=request.replica_id >= 0,
        now_ms=broker.clock.now_ms(),
    )


def fetch_metered(
    broker: BrokerContext,
    caller: Caller,
    version: int,
    correlation_id: int,
    frame: memoryview,
    body: int,
    meter: Meter,
) -> Answer | Parked:
    """Answer a consumer as far as its quotas allow."""
    request = unpack(frame, body, version)
    if request.replica_id >= 0:  # it is no broker, which would not be metered, and is refused
        meter.check_time()
        return fetch(broker, caller, version, correlation_id, frame, body)
    context = _context(broker, request, version)
    return MeteredFetch(broker, caller, request, context, version, correlation_id, meter).start()


class Fetch:
    """One fetch, from its request to its response; a watcher of its partitions while it waits."""

    __slots__ = (
        "_broker",
        "_caller",
        "_context",
        "_correlation_id",
        "_deferred",
        "_defers",
        "_limit",
        "_now",
        "_parked",
        "_request",
        "_throttled",
        "_timer",
        "_unreadable",
        "_version",
        "_watched",
    )

    def __init__(
        self,
        broker: BrokerContext,
        caller: Caller,
        request: FetchRequest,
        context: FetchContext,
        version: int,
        correlation_id: int,
    ) -> None:
        self._broker = broker
        self._caller = caller
        self._request = request
        self._context = context
        self._version = version
        self._correlation_id = correlation_id
        self._limit = min(request.max_bytes, broker.settings.number("fetch.max.bytes"))
        self._defers = False
        """Whether records may be left for the next batch of fetches (`broker/fetching/fetch_batching`)."""
        self._deferred = False
        """Whether some records were left for it."""
        self._now = 0.0
        """When the fetch last looked, on the event loop's clock; for followers alone."""
        self._parked: Parked | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._throttled: frozenset[object] = frozenset()
        """Partitions whose replication is throttled, by their key."""
        self._unreadable: dict[object, ApiError] = {}
        """Partitions that could not be read from disk, or may not be read by the caller, by their key."""
        self._watched: list[LeaderPartition | FollowerPartition | RestingPlace] = []
        """Partitions that wake this fetch."""

    def start(self) -> Answer | Parked:
        """Read for the first time; a follower that can wait is answered with the next batch of fetches."""
        if self._request.replica_id >= 0:
            self._arrive()
            self._defers = self._request.max_wait_ms > 0
        try:
            results, size, urgent = self._read()
        except DiskReadNeeded as cold:
            self._defers = False
            self._parked = Parked(on_abandon=self._forget)
            self._warm_up(cold)
            return self._parked
        self._defers = False
        enough = size >= self._request.min_bytes and not self._deferred
        if enough or urgent or self._request.max_wait_ms <= 0 or (not results and self._context.is_empty):
            return self._answer(results)
        self._parked = Parked(on_abandon=self._forget)
        self._watch()
        if self._deferred:
            self._broker.replicas.fetch_batching.arrived(self)
        return self._parked

    def _arrive(self) -> None:
        request = self._request
        now = asyncio.get_running_loop().time()
        self._context.arrive(request.replica_id, request.replica_epoch, self._broker.replicas.log_start_moves, now)

    def refuse(self) -> Answer:
        """Refuse all partitions to a caller that only claims to be a broker."""
        error = TopicAuthorizationFailed("Only a broker may fetch with a replica id.")
        return self._answer([self._failed(wanted, error) for wanted in self._context.partitions])

    def wake(self) -> None:
        """Look again, because a partition has more records or another leader."""
        self._look_again(False)

    def _look_again(self, at_last: bool) -> None:
        """Answer if there is enough now, or if the time is over."""
        if self._parked is None or self._parked.abandoned or self._parked.resolved:
            return
        try:
            if self._request.replica_id >= 0:
                self._context.look_again(self._broker.replicas.log_start_moves)
            results, size, urgent = self._read()
            if at_last or urgent or size >= self._request.min_bytes:
                self._forget()
                self._parked.resolve(self._answer(results))
            else:
                self._watch()
        except DiskReadNeeded as cold:
            self._forget()
            self._warm_up(cold)
        except Exception:
            logger.exception("FETCH failed while it waited for records; closed the connection.")
            self._forget()
            self._parked.resolve(HANG_UP)

    def _watch(self) -> None:
        """Be woken by the partitions that there are now: with a new leader epoch, a partition is another object.

        And at the latest when the client wants to wait no more.
        """
        if self._timer is None:
            seconds = self._request.max_wait_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look_again, True)
        if self._request.replica_id >= 0:
            self._context.wait(self)
        partitions = self._partitions()
        if partitions == self._watched:
            return
        for watched in self._watched:
            watched.remove_watcher(self)
        self._watched = [*partitions]
        for partition in partitions:
            partition.add_watcher(self, follower=self._request.replica_id >= 0)

    def watch_also(self, place: RestingPlace) -> None:
        """Be woken by a partition that was at rest, and is stirred."""
        place.add_watcher(self, follower=True)
        self._watched.append(place)

    def _partitions(self) -> list[LeaderPartition | FollowerPartition]:
        replicas = self._broker.replicas
        found = [
            replicas.led(one.topic, one.partition) or replicas.followed(one.topic, one.partition)
            for one in self._context.partitions
        ]
        return [partition for partition in found if partition is not None]

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._request.replica_id >= 0:
            self._context.end_wait(self)
        for partition in self._watched:
            partition.remove_watcher(self)

    def _warm_up(self, cold: DiskReadNeeded) -> None:
        """Let a thread read what is needed, then answer with it.

        A thread that loads a log loads the others that were asked for, too.
        """
        self._broker.replicas.partitions.cold_reads += 1
        others = [each.log for each in self._partitions() if not each.log.is_open] if cold.is_load else []

        def look() -> object:
            open_all(others)
            return cold.look()

        def looked(done: asyncio.Future[object]) -> None:
            if (error := done.exception()) is not None:
                logger.error("Could not read %r from disk: %s", cold.wanted, error)
                failure = error if isinstance(error, ApiError) else StorageFailed(f"Reading the log failed: {error}")
                self._unreadable[cold.wanted.key] = failure
            self._look_again(True)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._broker.executor, look).add_done_callback(looked)

    def _read(self) -> tuple[list[Fetched], int, bool]:
        """What every partition has now, the total size, and whether the response must be sent at once."""
        results: list[Fetched] = []
        left = self._limit
        total = 0
        urgent = False
        follows = self._request.replica_id >= 0
        if follows:
            self._now = asyncio.get_running_loop().time()
        elif self._broker.permissions is not None:
            self._unreadable.update(
                unreadable(self._broker.permissions, self._caller, self._broker.metadata, self._context.partitions)
            )
        for wanted in self._context.partitions:
            try:
                result = self._read_one(wanted, left, total == 0)
            except ApiError as error:
                result = self._failed(wanted, error)
                urgent = True
            except OSError as error:  # the others have nothing to do with it
                logger.error("Could not read %r from disk: %s", wanted, error)
                result = self._failed(wanted, StorageFailed(f"Reading the log failed: {error}"))
                urgent = True
            total += result.size
            left -= result.size
            urgent = urgent or result.diverging_epoch is not None or result.preferred_read_replica >= 0
            if follows and UNKNOWN < wanted.sent_log_start_offset < result.log_start_offset:
                urgent = True  # somebody waits for the records to be gone everywhere
            results.append(result)
        return results, total, urgent

    def _read_one(self, wanted: SessionPartition, left: int, first: bool) -> Fetched:
        request = self._request
        if self._unreadable and wanted.key in self._unreadable:
            raise self._unreadable[wanted.key]
        partition = self._broker.replicas.led(wanted.topic, wanted.partition)
        if partition is None:
            follower = self._broker.replicas.followed(wanted.topic, wanted.partition)
            if follower is None or request.replica_id >= 0 or self._version < wire.PREFERRED_REPLICA:
                raise self._broker.replicas.not_led(wanted.topic, wanted.partition)
            follower.check_epoch(wanted.current_leader_epoch)
            return read_for_consumer(wanted, follower, follower.log.high_watermark, request.read_committed, left, first)
        leader = partition.leader
        if wanted.current_leader_epoch not in (leader.leader_epoch, NO_EPOCH):  # nearly never, so it is asked here
            leader.check_epoch(wanted.current_leader_epoch)
        if request.replica_id >= 0:
            return self._read_for_follower(wanted, partition, left, first)
        if request.rack and (nearer := self._nearer_replica(wanted, partition)) is not None:
            log_start = partition.log.log_start_offset
            return wire.FetchedPartition(wanted, 0, leader.high_watermark, -1, log_start, preferred_read_replica=nearer)
        return read_for_consumer(wanted, partition, leader.high_watermark, request.read_committed, left, first)

    def _nearer_replica(self, wanted: SessionPartition, partition: LeaderPartition) -> int | None:
        """The replica from which a consumer that named its rack had better read; None for this one."""
        if not self._broker.settings.text_or_none("replica.selector.class"):
            return None
        return nearer_replica(wanted, partition, self._broker.metadata.image.brokers, self._request.rack)

    def _read_for_follower(
        self, wanted: SessionPartition, partition: LeaderPartition, left: int, first: bool
    ) -> Fetched:
        """Everything from the follower's end on; that it asks there says that it has what is before."""
        leader, log, offset = partition.leader, partition.log, wanted.fetch_offset
        if not log.is_open:
            raise DiskReadNeeded(wanted, log.open, is_load=True)
        start, end = log.log_start_offset, log.log_end_offset
        is_first_look = self._parked is None or not partition.is_followed_by(self)
        if is_first_look and wanted.last_fetched_epoch >= 0:
            diverging = divergence(wanted, partition)
            if diverging is not None:
                return wire.FetchedPartition(wanted, 0, leader.high_watermark, -1, start, diverging_epoch=diverging)
        if not start <= offset <= end:
            raise OffsetOutOfRange(f"{partition.tp} has offsets {start} to {end}, not {offset}.")
        if is_first_look:
            partition.fetched_by(
                self._request.replica_id, self._request.replica_epoch, wanted.log_start_offset, offset, self._now
            )
        most = min(wanted.max_bytes, left)
        if offset == end or (most <= 0 and not first) or self._holds_back(wanted, partition):
            return wire.FetchedPartition(wanted, 0, leader.high_watermark, -1, start)
        if self._defers:
            self._deferred = True
            return wire.FetchedPartition(wanted, 0, leader.high_watermark, -1, start)
        try:
            slices, size, _ = log.read(offset, most, end, first, may_block=False)
        except ColdRead:
            raise DiskReadNeeded(wanted, lambda: log.read(offset, most, end, first)) from None
        return wire.FetchedPartition(wanted, 0, leader.high_watermark, -1, start, None, size, slices)

    def _holds_back(self, wanted: SessionPartition, partition: LeaderPartition) -> bool:
        """Whether a follower that is not in sync must wait, because replication is throttled."""
        throttle = self._broker.leader_throttle
        if not throttle.is_for(partition.log, wanted.partition):
            return False
        self._throttled |= {wanted.key}
        return self._request.replica_id not in partition.leader.isr and throttle.is_exhausted(self._now)

    def _failed(self, wanted: SessionPartition, error: ApiError) -> Fetched:
        leader = None
        if error.code in CURRENT_LEADER_ERRORS:
            leader = self._broker.replicas.current_leader(wanted.topic, wanted.partition)
        aborted = () if self._request.read_committed or error.code in NOT_LOOKED_FOR else None
        return wire.FetchedPartition(wanted, int(error.code), aborted=aborted, leader=leader)

    def _answer(self, results: list[Fetched]) -> Answer:
        session_id, error, told = self._context.finish(results, self._broker.clock.now_ms())
        if self._request.replica_id >= 0 and (session := self._context.resting_session) is not None:
            self._put_to_rest(session, results)
        told = lease_files(told)
        self._count(told)
        if self._throttled:
            copied = sum(one.size for one in told if one.partition.key in self._throttled)
            self._broker.leader_throttle.record(copied, asyncio.get_running_loop().time())
        return wire.pack(self._correlation_id, self._version, error, session_id, told)

    def _put_to_rest(self, session: ReplicaSession, results: list[Fetched]) -> None:
        """Have the follower's next fetches not look at what they cannot change and will not be told of."""
        for result in results:
            if result.size or result.error or result.diverging_epoch is not None:
                continue
            partition = self._broker.replicas.led(result.partition.topic, result.partition.partition)
            if partition is not None:
                partition.put_to_rest(session, result.partition)

    def _count(self, told: Sequence[Fetched]) -> None:
        """Count what partitions are answered; what there is nothing new to tell of is not counted."""
        replicas = self._broker.replicas
        for result in told:
            wanted = result.partition
            partition = replicas.led(wanted.topic, wanted.partition) or replicas.followed(
                wanted.topic, wanted.partition
            )
            if partition is None:
                continue
            traffic = partition.traffic
            traffic.fetches += 1
            if result.error:
                traffic.failed_fetches += 1
            elif self._request.replica_id >= 0:
                traffic.replicated_out += result.size
            else:
                traffic.bytes_out += result.size


class MeteredFetch(Fetch):
    """One fetch of a consumer, while there are quotas."""

    __slots__ = ("_meter",)

    def __init__(
        self,
        broker: BrokerContext,
        caller: Caller,
        request: FetchRequest,
        context: FetchContext,
        version: int,
        correlation_id: int,
        meter: Meter,
    ) -> None:
        super().__init__(broker, caller, request, context, version, correlation_id)
        self._meter = meter
        self._limit = min(self._limit, meter.most_fetched)
        self._request = request._replace(min_bytes=min(request.min_bytes, self._limit))

    def start(self) -> Answer | Parked:
        """Read for the first time, unless the client has to wait for what it did before."""
        self._meter.check_time()
        return self._hold_back() if self._meter.throttle_ms else super().start()

    def _answer(self, results: list[Fetched]) -> Answer:
        if self._meter.fetched(sum(one.size for one in results)):
            return super()._answer(results)
        return self._hold_back()

    def _hold_back(self) -> Answer:
        """Send no records; the client asks for them again when it has waited."""
        session_id, error = self._context.hold_back()
        return wire.pack(self._correlation_id, self._version, error, session_id, (), self._meter.throttle_ms)
