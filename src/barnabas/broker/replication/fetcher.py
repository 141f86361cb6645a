"""A replica fetcher: one task fetches partitions that this broker follows from one leader, all of them if they are few.

    compare    partitions whose log may have records that the leader lacks: ask the leader where the last epoch of our
               log ends (OffsetForLeaderEpoch), and have the log truncated there
    flush      partitions for which flush.messages is reached, before the next fetch tells the leader our end offset:
               the leader counts those records as replicated
    fetch      all partitions that are consistent with the leader, in one request of a fetch session

Partitions at rest are fetched with the others, and cost nothing: the leader knows their positions from an earlier
request of the session, nothing keeps them from being fetched, and only an answer can change that (`_put_to_rest`).

A partition with an error waits for replica.fetch.backoff.ms while the others go on. A leader that cannot be reached is
tried again after the same time, until the controller elects another.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7 import response as offsets_response
from kio.schema.offset_for_leader_epoch.v4 import request as epochs_request
from kio.schema.offset_for_leader_epoch.v4 import response as epochs_response
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_writer
from kio.static.primitive import i8, i32, i64

from barnabas.broker.replication.cold_logs import open_all
from barnabas.model.errors import ApiError, CorruptMessage, ErrorCode, InvalidFrame, OffsetOutOfRange
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.list_offsets import EARLIEST, LATEST
from barnabas.protocol.messages import replica_fetch
from barnabas.protocol.wire import bounds
from barnabas.storage.log.runs import first_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.broker.replication.fetcher_manager import FetcherContext
    from barnabas.broker.replication.follower_partition import FollowerPartition
    from barnabas.net.channel import Channel
    from barnabas.protocol.messages.replica_fetch import Fetched, FetchPosition, Place
    from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)

APPENDED_TOGETHER: Final = 500
"""How many batches are appended in one turn of the event loop, of all partitions: some milliseconds of work."""
_SESSION_GONE: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)
_NOT_YET: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_id,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.offset_out_of_range,
    }
)
"""Errors that pass soon: the controller has not updated the leader yet, or its log has changed meanwhile."""
_OUT_OF_RANGE: Final = ErrorCode.offset_out_of_range.value
_NOT_YET_WAIT: Final = 0.02
"""Seconds until the first retry then. Every further retry waits twice as long, up to replica.fetch.backoff.ms."""
_DOUBLINGS: Final = 10
_SHORTEST_WAIT: Final = 0.01


class FollowerSession:
    """The fetch session with the leader: what it remembers of the last fetch."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self._positions: dict[Place, FetchPosition | None] = {}
        """Where each partition was in the last fetch; None if what the leader told of it then was dropped."""

    def next(
        self, positions: dict[Place, FetchPosition], absent: Iterable[Place]
    ) -> tuple[dict[Place, FetchPosition], list[Place]]:
        """What the next request has to name: partitions that are new or have moved on, and those to forget.

        `absent` has the partitions that are not fetched now. All others stay where the last requests have told.
        """
        if self.id == 0:
            return positions, []
        last = self._positions
        changed = {place: position for place, position in positions.items() if last.get(place) != position}
        return changed, [place for place in absent if place in last]

    def advance(self, session_id: int, changed: dict[Place, FetchPosition], forgotten: Iterable[Place]) -> None:
        """The leader answered a request that named these partitions."""
        self.id = session_id
        self.epoch = self.epoch % (2**31 - 1) + 1 if session_id else 0
        self._positions.update(changed)
        for place in forgotten:
            del self._positions[place]

    def name_again(self, place: Place) -> None:
        """Name a partition in the next request, wherever it is: the leader tells again what was dropped."""
        if place in self._positions:
            self._positions[place] = None

    def restart(self) -> None:
        """Begin a new session with the next request."""
        self.id = self.epoch = 0
        self._positions = {}


class ReplicaFetcher:
    """Fetches from one leader."""

    def __init__(
        self,
        leader_id: int,
        channel: Channel,
        context: FetcherContext,
        share: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """`share` is the part of replica.fetch.response.max.bytes that an answer may have."""
        self.leader_id = leader_id
        self._share = share
        self._channel = channel
        self._broker_id = context.broker_id
        self._broker_epoch = context.broker_epoch
        self._settings = context.settings
        self._clock = context.clock
        self._executor = context.executor
        self._throttle = context.throttle
        self._logs = context.logs
        self._followers: dict[Place, FollowerPartition] = {}
        self._awake: dict[Place, FollowerPartition] = {}
        """Those of them that are not at rest."""
        self._unasked: dict[Place, None] = {}
        """Partitions that the last request does not fetch: they had to wait, or were added or removed since."""
        self._log_start_moves = 0
        """How often the start of a log had moved when the positions were last compared."""
        self._session = FollowerSession()
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher from {leader_id}")

    def __len__(self) -> int:
        return len(self._followers)

    def add(self, follower: FollowerPartition) -> None:
        """Begin to fetch a partition."""
        place = follower.place
        self._followers[place] = self._awake[place] = follower
        self._unasked[place] = None
        self._changed.set()

    def remove(self, follower: FollowerPartition) -> None:
        """Stop fetching a partition; an answer that is under way for it is dropped."""
        if self._is_followed(follower):
            del self._followers[follower.place]
            self._awake.pop(follower.place, None)
            self._unasked[follower.place] = None

    async def stop(self) -> None:
        """Fetch nothing more."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._channel.close()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                if not await self._round():
                    await self._wait()
            except ChannelBroken as error:
                logger.info(
                    "Could not fetch %d partitions from broker %d. It is tried again: %s",
                    len(self._followers),
                    self.leader_id,
                    error,
                )
                self._restart_session()
                await self._wait()
            except Exception:
                logger.exception(
                    "Fetching %d partitions from broker %d failed. It is tried again.",
                    len(self._followers),
                    self.leader_id,
                )
                self._restart_session()
                await self._wait()

    def _restart_session(self) -> None:
        """Begin a new session with the next request, which names every partition."""
        self._session.restart()
        self._awake.update(self._followers)

    async def _wait(self) -> None:
        """Wait for a new partition, or until it is time to try again."""
        now = asyncio.get_running_loop().time()
        longest = max(self._settings.number("replica.fetch.backoff.ms") / 1000, _SHORTEST_WAIT)
        due = min((each.not_before for each in self._awake.values() if each.not_before > now), default=now + longest)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(max(min(due, now + longest), now + _SHORTEST_WAIT)):
                await self._changed.wait()

    async def _round(self) -> bool:
        """Compare, flush and fetch once; False if no partition could be fetched."""
        now = asyncio.get_running_loop().time()
        if self._log_start_moves != (moves := self._logs.log_start_moves):
            self._log_start_moves = moves
            self._awake.update(self._followers)
        ready = self._ready(now)
        if len(ready) < len(self._awake):
            apart = [each for each in self._awake.values() if not each.agrees and each.not_before <= now]
            await self._open([follower.log for follower in apart if not follower.log.is_open])
            sound = [follower for follower in apart if self._is_followed(follower) and not follower.log.is_failed]
            await self._compare(sound)
            ready = self._ready(now)
        if unsynced := [follower for follower in ready.values() if follower.log.flush_required]:
            await self._flush(unsynced)
            ready = {place: each for place, each in self._ready(now).items() if not each.log.flush_required}
        if not ready and len(self._awake) == len(self._followers):
            return False
        await self._fetch(ready)
        return True

    def _ready(self, now: float) -> dict[Place, FollowerPartition]:
        """The partitions that can be fetched now, without those at rest."""
        return {
            place: follower
            for place, follower in self._awake.items()
            if follower.agrees and follower.not_before <= now and not self._is_throttled(follower, now)
        }

    def _is_throttled(self, follower: FollowerPartition, now: float) -> bool:
        """Whether the partition lags, and the rate for throttled replicas is used up."""
        if follower.caught_up or not self._throttle.is_for(follower.log, follower.tp.partition):
            return False
        return self._throttle.is_exhausted(now)

    async def _flush(self, followers: Iterable[FollowerPartition]) -> None:
        """Sync the logs; a partition whose sync fails is retried later."""
        syncs = {
            asyncio.wrap_future(self._logs.flush_through(follower.log, follower.log.log_end_offset)): follower
            for follower in followers
        }
        await asyncio.wait(syncs)  # which does not cancel them when this task is cancelled: others wait for them too
        for sync, follower in syncs.items():
            if (error := sync.exception()) is not None:
                logger.error("Could not sync the log of %s. It is tried again: %s", follower, error)
                self._retry_later(follower, ErrorCode.kafka_storage_error)

    # Comparing

    async def _open(self, logs: list[Log]) -> None:
        """Load logs that were not used since the start, in a thread."""
        if logs:
            await asyncio.get_running_loop().run_in_executor(self._executor, open_all, logs)

    async def _compare(self, followers: Sequence[FollowerPartition]) -> None:
        last_epochs: dict[tuple[str, int], tuple[FollowerPartition, int]] = {}
        for follower in followers:
            epoch = follower.log.latest_epoch
            if follower.starts_anew:
                continue
            if epoch < 0:
                self._truncate_to(follower, follower.compare_without_epochs())
            else:
                last_epochs[follower.tp] = follower, epoch
        if last_epochs:
            await self._compare_epochs(last_epochs)
        for follower in followers:
            if follower.starts_anew and self._is_followed(follower):
                await self._start_where_leader_does(follower)

    async def _compare_epochs(self, last_epochs: dict[tuple[str, int], tuple[FollowerPartition, int]]) -> None:
        """Ask the leader where the last epoch of each log ends, and truncate what it does not have."""
        response = await self._ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            4,
            epochs_request.OffsetForLeaderEpochRequest(
                replica_id=BrokerId(self._broker_id),
                topics=tuple(
                    epochs_request.OffsetForLeaderTopic(
                        topic=TopicName(topic),
                        partitions=(
                            epochs_request.OffsetForLeaderPartition(
                                partition=i32(index),
                                current_leader_epoch=i32(follower.leader_epoch),
                                leader_epoch=i32(epoch),
                            ),
                        ),
                    )
                    for (topic, index), (follower, epoch) in last_epochs.items()
                ),
            ),
            epochs_response.OffsetForLeaderEpochResponse,
        )
        for topic in response.topics:
            for part in topic.partitions:
                follower, epoch = last_epochs[topic.topic, part.partition]
                if not self._is_followed(follower):
                    continue
                if part.error_code is ErrorCode.none:
                    self._truncate_to(follower, follower.compare(epoch, part.leader_epoch, part.end_offset))
                else:
                    self._retry_later(follower, part.error_code)

    # Fetching

    async def _fetch(self, ready: dict[Place, FollowerPartition]) -> None:
        number = self._settings.number
        positions = {place: follower.position for place, follower in ready.items()}
        absent = dict.fromkeys(place for place in (*self._unasked, *self._awake) if place not in positions)
        self._unasked = {place: None for place in absent if place in self._awake}
        changed, forgotten = self._session.next(positions, absent)
        wait_ms = number("replica.fetch.wait.max.ms")
        body = replica_fetch.pack_request(
            max_wait_ms=wait_ms,
            min_bytes=number("replica.fetch.min.bytes"),
            max_bytes=int(number("replica.fetch.response.max.bytes") * self._share()),
            partition_max_bytes=number("replica.fetch.max.bytes"),
            session=(self._session.id, self._session.epoch),
            positions=changed,
            forgotten=forgotten,
            replica=(self._broker_id, self._broker_epoch()),
        )
        data = await self._channel.ask(
            ApiKey.FETCH,
            replica_fetch.VERSION,
            [body],
            flexible=True,
            seconds=(wait_ms + number("replica.socket.timeout.ms")) / 1000,
        )
        response = replica_fetch.read_response(data)
        if response.error:
            self._restart_session()
            if ErrorCode(response.error) not in _SESSION_GONE:
                raise ChannelBroken(f"broker {self.leader_id} answered {ErrorCode(response.error).name}")
            return
        self._session.advance(response.session_id, changed, forgotten)
        await self._take(response.partitions)
        if response.session_id:
            self._put_to_rest(ready, positions)
        else:
            self._restart_session()

    async def _take(self, partitions: Iterable[Fetched]) -> None:
        """Append what the leader sent; an answer for a partition that was not asked for is dropped."""
        now_ms, left = self._clock.now_ms(), APPENDED_TOGETHER
        for fetched in partitions:
            place = fetched.topic_id, fetched.partition
            follower = self._followers.get(place)
            if follower is None or place in self._unasked:
                self._session.name_again(place)
                continue
            self._awake[place] = follower
            if fetched.error == _OUT_OF_RANGE:
                await self._find_range(follower)
                continue
            if fetched.records and not follower.log.is_ready:
                await self._make_file(follower)
                if not self._is_followed(follower):
                    continue
            left = await self._append_in_pieces(follower, fetched, now_ms, left)

    def _put_to_rest(self, fetched: dict[Place, FollowerPartition], positions: dict[Place, FetchPosition]) -> None:
        """Look no more at partitions that were fetched and are where they were, until the leader tells of them.

        What keeps a partition from being fetched comes with an answer: an error, a log that diverges or lags, records
        that have to be synced. Its position changes with an answer, or as `log_start_moves` shows.
        """
        now = asyncio.get_running_loop().time()
        for place, follower in fetched.items():
            if (
                follower.log.log_end_offset == positions[place].offset
                and (follower.caught_up or not self._throttle.is_for(follower.log, follower.tp.partition))
                and follower.agrees
                and follower.not_before <= now
                and self._is_followed(follower)
                and follower.position == positions[place]
                and not follower.log.flush_required
            ):
                del self._awake[place]

    async def _append_in_pieces(self, follower: FollowerPartition, fetched: Fetched, now_ms: int, left: int) -> int:
        """Append what was fetched for a partition; returns how many batches may still follow in this turn of the loop.

        A follower that is far behind gets megabytes of small batches at once, and others want to be served meanwhile.
        """
        while True:
            end, count = first_batches(fetched.records, left)
            left -= count or 1
            if end == len(fetched.records):
                self._append(follower, fetched, now_ms)
            elif not self._append(follower, fetched._replace(records=fetched.records[:end]), now_ms):
                return left
            if left <= 0:
                await asyncio.sleep(0)
                left = APPENDED_TOGETHER
            if end == len(fetched.records) or not self._is_followed(follower):
                return left
            fetched = fetched._replace(records=fetched.records[end:])

    async def _make_file(self, follower: FollowerPartition) -> None:
        """Make the file of the first records in a thread. If that fails, so does their append, which says so."""
        with contextlib.suppress(ApiError):
            await asyncio.get_running_loop().run_in_executor(self._executor, follower.log.prepare)

    def _append(self, follower: FollowerPartition, fetched: Fetched, now_ms: int) -> bool:
        """Append records; False if that failed, and is tried again."""
        if fetched.error:
            self._retry_later(follower, ErrorCode(fetched.error))
        else:
            follower.refusals = 0
            try:
                self._truncate_to(follower, follower.take(fetched, now_ms))
                self._count(follower, fetched)
                return True
            except CorruptMessage as error:
                logger.error("The records fetched for %s are damaged. They are fetched again: %s", follower, error)
                self._retry_later(follower, error.code)
            except ApiError as error:
                if isinstance(error, OffsetOutOfRange) and follower.begins_within(fetched):
                    logger.warning(
                        "The leader's log of %s begins at offset %d, within a batch. Ours begins anew with that batch.",
                        follower,
                        fetched.log_start,
                    )
                    self._count(follower, fetched)
                    self._logs.start_within(follower, fetched.records, now_ms)
                    return False
                logger.error("Could not append the records fetched for %s. It is tried again: %s", follower, error)
                self._retry_later(follower, error.code)
        return False

    def _count(self, follower: FollowerPartition, fetched: Fetched) -> None:
        """Count what was fetched, for metrics and for the throttle."""
        if fetched.records:
            follower.traffic.replicated_in += len(fetched.records)
            if self._throttle.is_for(follower.log, follower.tp.partition):
                self._throttle.record(len(fetched.records), asyncio.get_running_loop().time())

    def _truncate_to(self, follower: FollowerPartition, offset: int | None) -> None:
        if offset is not None:
            self._logs.truncate(follower, offset)

    async def _find_range(self, follower: FollowerPartition) -> None:
        """Our end offset is not in the leader's log: ask where that begins and ends."""
        start, end = [await self._offset(follower, timestamp) for timestamp in (EARLIEST, LATEST)]
        if self._is_followed(follower) and start is not None and end is not None:
            self._retry_later(follower, ErrorCode.offset_out_of_range)
            self._truncate_to(follower, follower.out_of_range(start, end))

    async def _start_where_leader_does(self, follower: FollowerPartition) -> None:
        start = await self._offset(follower, EARLIEST)
        if start is not None and self._is_followed(follower) and not follower.may_start_at(start):
            self._logs.truncate_fully(follower, start)

    async def _offset(self, follower: FollowerPartition, timestamp: int) -> int | None:
        response = await self._ask(
            ApiKey.LIST_OFFSETS,
            7,
            offsets_request.ListOffsetsRequest(
                replica_id=BrokerId(self._broker_id),
                isolation_level=i8(0),
                topics=(
                    offsets_request.ListOffsetsTopic(
                        name=TopicName(follower.tp.topic),
                        partitions=(
                            offsets_request.ListOffsetsPartition(
                                partition_index=i32(follower.tp.partition),
                                current_leader_epoch=i32(follower.leader_epoch),
                                timestamp=i64(timestamp),
                            ),
                        ),
                    ),
                ),
            ),
            offsets_response.ListOffsetsResponse,
        )
        part = response.topics[0].partitions[0]
        if part.error_code is not ErrorCode.none:
            self._retry_later(follower, part.error_code)
            return None
        return int(part.offset)

    async def _ask(self, key: ApiKey, version: int, request: Any, response_class: type) -> Any:
        body = BytesIO()
        entity_writer(type(request))(body, request)
        data = await self._channel.ask(
            key,
            version,
            [body.getvalue()],
            flexible=True,
            seconds=self._settings.number("replica.socket.timeout.ms") / 1000,
        )
        try:
            return bounds.read(response_class, data, 1, bounds.MAX_INTERNAL_ELEMENTS)
        except InvalidFrame as error:
            raise ChannelBroken(f"broker {self.leader_id} sent an invalid response: {error}") from error

    def _is_followed(self, follower: FollowerPartition) -> bool:
        return self._followers.get(follower.place) is follower

    def _retry_later(self, follower: FollowerPartition, code: ErrorCode) -> None:
        longest = backoff = self._settings.number("replica.fetch.backoff.ms") / 1000
        if code in _NOT_YET:
            backoff = min(backoff, _NOT_YET_WAIT * 2 ** min(follower.refusals, _DOUBLINGS))
            follower.refusals += 1
        follower.not_before = asyncio.get_running_loop().time() + backoff
        expected = backoff < longest or code is ErrorCode.fenced_leader_epoch  # an update of the controller follows
        level = logging.DEBUG if expected else logging.INFO
        logger.log(level, "Replication of %s stopped: %s. It is tried again in %g s.", follower, code.name, backoff)
