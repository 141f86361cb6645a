"""Following: one task per leader fetches for all partitions that this broker follows there.

    compare    partitions that do not agree yet: where does our last epoch end at the leader's? have cut what it lacks
    fetch      all that agree, in one request of a session; write what comes, and go on from there
    flush      where flush.messages is reached, before the leader is told: it may count on what it hears of

A partition that meets an error waits a little (replica.fetch.backoff.ms) while the others go on. A leader that cannot
be reached is asked again after the same time, until the controller names another.
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

from barnabas.broker.cold_logs import open_all
from barnabas.model.errors import ApiError, CorruptMessage, ErrorCode, InvalidFrame
from barnabas.net.channel import ChannelBroken
from barnabas.protocol import bounds, replica_fetch
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from concurrent.futures import Executor, Future

    from barnabas.broker.follower import Follower
    from barnabas.broker.replication_throttle import ReplicationThrottle
    from barnabas.model.clock import Clock
    from barnabas.model.config.values import Values
    from barnabas.net.channel import Channel
    from barnabas.protocol.replica_fetch import Fetched, Place, Position
    from barnabas.storage.log import Log

logger = logging.getLogger(__name__)

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
"""Errors that soon are none: of a leader that the controller has not told yet, or whose log has moved on meanwhile."""
_OUT_OF_RANGE: Final = ErrorCode.offset_out_of_range.value
_NOT_YET_WAIT: Final = 0.02
"""Seconds until the first new attempt then; every further one takes twice as long, up to replica.fetch.backoff.ms."""
_DOUBLINGS: Final = 10
_SHORTEST_WAIT: Final = 0.01
_EARLIEST: Final = -2
_LATEST: Final = -1


class Session:
    """What the leader remembers of the last fetch."""

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self._known: dict[Place, Position] = {}

    def next(self, positions: dict[Place, Position]) -> tuple[dict[Place, Position], list[Place]]:
        """What must be said: partitions that are new or elsewhere, and those that are no more."""
        if self.id == 0:
            return positions, []
        known = self._known
        changed = {place: position for place, position in positions.items() if known.get(place) != position}
        return changed, [place for place in known if place not in positions]

    def told(self, session_id: int, positions: dict[Place, Position]) -> None:
        """The leader answered."""
        self.id = session_id
        self.epoch = self.epoch % (2**31 - 1) + 1 if session_id else 0
        self._known = positions

    def forget(self) -> None:
        """Begin a new one."""
        self.id = self.epoch = 0
        self._known = {}


class ReplicaFetcher:
    """Fetches from one leader."""

    def __init__(
        self,
        leader_id: int,
        channel: Channel,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        settings: Values,
        clock: Clock,
        executor: Executor,
        throttle: ReplicationThrottle,
        flush_through: Callable[[Log, int], Future[int]],
        cut: Callable[[Follower, int], None],
        start_anew: Callable[[Follower, int], None],
    ) -> None:
        self.leader_id = leader_id
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._clock = clock
        self._executor = executor
        self._throttle = throttle
        self._flush_through = flush_through
        self._cut = cut
        self._start_anew = start_anew
        self._followers: dict[Place, Follower] = {}
        self._session = Session()
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetcher from {leader_id}")

    def __len__(self) -> int:
        return len(self._followers)

    def add(self, follower: Follower) -> None:
        """Fetch for a partition too."""
        self._followers[follower.place] = follower
        self._changed.set()

    def remove(self, follower: Follower) -> None:
        """Fetch for a partition no more; what is under way for it is thrown away."""
        if self._is_followed(follower):
            del self._followers[follower.place]

    async def stop(self) -> None:
        """Fetch no more."""
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
                logger.info("broker %d cannot be followed, trying again: %s", self.leader_id, error)
                self._session.forget()
                await self._wait()
            except Exception:
                logger.exception("following broker %d failed, trying again", self.leader_id)
                self._session.forget()
                await self._wait()

    async def _wait(self) -> None:
        """Until something is new, or it is time to try again."""
        now = asyncio.get_running_loop().time()
        longest = max(self._settings.number("replica.fetch.backoff.ms") / 1000, _SHORTEST_WAIT)
        due = min(
            (each.not_before for each in self._followers.values() if each.not_before > now), default=now + longest
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(max(min(due, now + longest), now + _SHORTEST_WAIT)):
                await self._changed.wait()

    async def _round(self) -> bool:
        """Compare and fetch once; False if there was nobody to do it for."""
        now = asyncio.get_running_loop().time()
        ready = self._ready(now)
        if len(ready) < len(self._followers):
            apart = [each for each in self._followers.values() if not each.agrees and each.not_before <= now]
            await self._open([follower.log for follower in apart if not follower.log.is_open])
            sound = [follower for follower in apart if self._is_followed(follower) and not follower.log.is_failed]
            await self._compare(sound)
            ready = self._ready(now)
        if unsynced := [follower for follower in ready.values() if follower.log.flush_required]:
            await self._flush(unsynced)
            ready = {place: each for place, each in self._ready(now).items() if not each.log.flush_required}
        if ready:
            await self._fetch(ready)
        return bool(ready)

    def _ready(self, now: float) -> dict[Place, Follower]:
        """Those that can be fetched for."""
        return {
            place: follower
            for place, follower in self._followers.items()
            if follower.agrees and follower.not_before <= now and not self._must_wait(follower, now)
        }

    def _must_wait(self, follower: Follower, now: float) -> bool:
        """Whether it is being copied, and others are to have their share of disk and network first."""
        if follower.caught_up or not self._throttle.is_for(follower.log, follower.tp.partition):
            return False
        return self._throttle.is_exhausted(now)

    async def _flush(self, followers: Iterable[Follower]) -> None:
        """Have the logs synced; a partition for which that fails is put off."""
        syncs = {
            asyncio.wrap_future(self._flush_through(follower.log, follower.log.log_end_offset)): follower
            for follower in followers
        }
        await asyncio.wait(syncs)  # which does not cancel them when this task is cancelled: others wait for them too
        for sync, follower in syncs.items():
            if (error := sync.exception()) is not None:
                logger.error("%s cannot go on: %s", follower, error)
                self._put_off(follower, ErrorCode.kafka_storage_error)

    # Comparing

    async def _open(self, logs: list[Log]) -> None:
        """Load logs that were not used since the start, in a thread."""
        if logs:
            await asyncio.get_running_loop().run_in_executor(self._executor, open_all, logs)

    async def _compare(self, followers: Sequence[Follower]) -> None:
        asked: dict[tuple[str, int], tuple[Follower, int]] = {}
        for follower in followers:
            epoch = follower.log.latest_epoch
            if follower.starts_anew:
                continue
            if epoch < 0:
                self._cut_from(follower, follower.compare_without_epochs())
            else:
                asked[follower.tp] = follower, epoch
        if asked:
            await self._ask_for_epochs(asked)
        for follower in followers:
            if follower.starts_anew and self._is_followed(follower):
                await self._start_where_leader_does(follower)

    async def _ask_for_epochs(self, asked: dict[tuple[str, int], tuple[Follower, int]]) -> None:
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
                    for (topic, index), (follower, epoch) in asked.items()
                ),
            ),
            epochs_response.OffsetForLeaderEpochResponse,
        )
        for topic in response.topics:
            for part in topic.partitions:
                follower, epoch = asked[topic.topic, part.partition]
                if not self._is_followed(follower):
                    continue
                if part.error_code is ErrorCode.none:
                    self._cut_from(follower, follower.compare(epoch, part.leader_epoch, part.end_offset))
                else:
                    self._put_off(follower, part.error_code)

    # Fetching

    async def _fetch(self, ready: dict[Place, Follower]) -> None:
        number = self._settings.number
        positions = {place: follower.position for place, follower in ready.items()}
        changed, forgotten = self._session.next(positions)
        wait_ms = number("replica.fetch.wait.max.ms")
        body = replica_fetch.pack_request(
            max_wait_ms=wait_ms,
            min_bytes=number("replica.fetch.min.bytes"),
            max_bytes=number("replica.fetch.response.max.bytes"),
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
            self._session.forget()
            if ErrorCode(response.error) not in _SESSION_GONE:
                raise ChannelBroken(f"broker {self.leader_id} answers {ErrorCode(response.error).name}")
            return
        self._session.told(response.session_id, positions)
        now_ms = self._clock.now_ms()
        for fetched in response.partitions:
            follower = ready.get((fetched.topic_id, fetched.partition))
            if follower is None or not self._is_followed(follower):
                continue
            if fetched.error == _OUT_OF_RANGE:
                await self._find_range(follower)
            else:
                self._take(follower, fetched, now_ms)

    def _take(self, follower: Follower, fetched: Fetched, now_ms: int) -> None:
        if fetched.error:
            self._put_off(follower, ErrorCode(fetched.error))
        else:
            follower.refusals = 0
            try:
                self._cut_from(follower, follower.take(fetched, now_ms))
                if fetched.records and self._throttle.is_for(follower.log, follower.tp.partition):
                    self._throttle.record(len(fetched.records), asyncio.get_running_loop().time())
            except CorruptMessage as error:
                logger.error("%s: %s; fetching it again", follower, error)
                self._put_off(follower, error.code)
            except ApiError as error:
                logger.error("%s cannot go on: %s", follower, error)
                self._put_off(follower, error.code)

    def _cut_from(self, follower: Follower, offset: int | None) -> None:
        if offset is not None:
            self._cut(follower, offset)

    async def _find_range(self, follower: Follower) -> None:
        """The leader has nothing where we are: ask where its log begins and ends."""
        start, end = [await self._offset(follower, timestamp) for timestamp in (_EARLIEST, _LATEST)]
        if self._is_followed(follower) and start is not None and end is not None:
            self._put_off(follower, ErrorCode.offset_out_of_range)
            self._cut_from(follower, follower.out_of_range(start, end))

    async def _start_where_leader_does(self, follower: Follower) -> None:
        start = await self._offset(follower, _EARLIEST)
        if start is not None and self._is_followed(follower) and not follower.may_start_at(start):
            self._start_anew(follower, start)

    async def _offset(self, follower: Follower, timestamp: int) -> int | None:
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
            self._put_off(follower, part.error_code)
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
            raise ChannelBroken(f"broker {self.leader_id} sent what cannot be read: {error}") from error

    def _is_followed(self, follower: Follower) -> bool:
        return self._followers.get(follower.place) is follower

    def _put_off(self, follower: Follower, code: ErrorCode) -> None:
        longest = backoff = self._settings.number("replica.fetch.backoff.ms") / 1000
        if code in _NOT_YET:
            backoff = min(backoff, _NOT_YET_WAIT * 2 ** min(follower.refusals, _DOUBLINGS))
            follower.refusals += 1
        follower.not_before = asyncio.get_running_loop().time() + backoff
        expected = backoff < longest or code is ErrorCode.fenced_leader_epoch  # the controller tells us next
        level = logging.DEBUG if expected else logging.INFO
        logger.log(level, "%s: %s; trying again in %g s", follower, code.name, backoff)
