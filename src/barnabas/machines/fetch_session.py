"""Incremental fetch sessions (KIP-227): the broker remembers what a client fetches, so that neither side repeats it.

A client opens a session with a full fetch (epoch 0). From then on it names only the partitions whose position changed
and those it forgets, and the response has only partitions that changed. Each request carries the session's
next epoch, so a lost or repeated request shows.

    request                                     context         answer
    epoch -1                                    sessionless     all partitions, session 0 (the named session is closed)
    epoch 0                                     full            all partitions, a new session if there is room
    epoch n, as expected                        incremental     partitions that changed
    epoch n, but the session is empty now       sessionless     all partitions of the request, session 0
    unknown session, wrong epoch, names for ids error           no partitions

Use: `context = cache.begin(...)`, read `context.partitions` as often as needed (a parked fetch looks again and again),
then `context.finish(results, now_ms)` once. While a fetch is parked, another request may advance its session: the
parked one then finishes with INVALID_FETCH_SESSION_EPOCH and changes nothing.

Invariants: a session's key order is its order of service: a partition that returned records goes to the end, so that
no partition starves. What the last response said (high watermark, log start offset) changes only in `finish`. A cache
never holds more sessions than it has slots. Times may jump: that only changes who is evicted.

This runs for every fetch: an incremental request that names nothing new allocates its context, nothing per partition.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from barnabas.machines.resting import Rest
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.machines.resting import RestingPlace, WaitingFetch

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
UNKNOWN: Final = -1
"""As an offset or epoch: none is given. As the preferred read replica: there is none."""

Topic: TypeAlias = "str | bytes"
"""How a request names a topic: by the 16 bytes of its id from Fetch v13 on, by name before."""
Key: TypeAlias = "tuple[Topic, int]"
"""What a partition is known by within its session."""
Wanted: TypeAlias = "tuple[Topic, int, int, int, int, int, int]"
"""What a request says of a partition, in the order of the wire: topic, partition, the client's current leader epoch,
the offset to fetch, the last fetched record's epoch, the fetcher's log start offset, and how many bytes at most."""


class SessionPartition:
    """One partition of a fetch: what the client asks for, and what the last response said."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(self, wanted: Wanted) -> None:
        self.key: Key = wanted[:2]
        """What the partition is known by within its session."""
        self.sent_high_watermark = UNKNOWN
        self.sent_log_start_offset = UNKNOWN
        self.ask(wanted)

    def ask(self, wanted: Wanted) -> None:
        """Take over what a request says."""
        (
            self.topic,
            self.partition,
            self.current_leader_epoch,
            self.fetch_offset,
            self.last_fetched_epoch,
            self.log_start_offset,
            self.max_bytes,
        ) = wanted

    def __repr__(self) -> str:
        topic = self.topic if isinstance(self.topic, str) else self.topic.hex()
        return f"<SessionPartition {topic}-{self.partition} at {self.fetch_offset}>"


class PartitionResult(Protocol):
    """What `finish` must know of a partition's answer; the broker's own class has the records too."""

    @property
    def partition(self) -> SessionPartition:
        """Whose answer this is."""
        ...

    @property
    def error(self) -> int:
        """The Kafka error code, 0 for none."""
        ...

    @property
    def size(self) -> int:
        """Bytes of records."""
        ...

    @property
    def high_watermark(self) -> int:
        """-1 with an error."""
        ...

    @property
    def log_start_offset(self) -> int:
        """-1 with an error."""
        ...

    @property
    def preferred_read_replica(self) -> int:
        """The replica to read from instead, or -1."""
        ...

    @property
    def diverging_epoch(self) -> object | None:
        """Where the fetcher's log leaves ours, or None."""
        ...


R = TypeVar("R", bound=PartitionResult)


class FetchAnswer(NamedTuple, Generic[R]):
    """The session's part of a response: its id, the top-level error, and the partitions to send."""

    session_id: int
    error: ErrorCode
    results: Sequence[R]


class FetchContext:
    """One request's view of what to fetch; this base is the sessionless one, which responds with all partitions."""

    __slots__ = ("error", "partitions")

    def __init__(self, partitions: Sequence[SessionPartition], error: ErrorCode = ErrorCode.none) -> None:
        self.partitions = partitions
        """In order of service; only a follower's fetch takes in others before `finish`, each time that it looks."""
        self.error = error
        """Set when the session cannot be used: there is nothing to fetch then, only to finish."""

    def finish(self, results: Sequence[R], now_ms: int) -> FetchAnswer[R]:
        """Say what to send; call once, with the results of all partitions."""
        return FetchAnswer(NO_SESSION, self.error, results)

    def hold_back(self) -> tuple[int, ErrorCode]:
        """Send no partition, and change nothing: the client has used up its quota. Gives the session and the error."""
        return NO_SESSION, self.error

    # For followers, whose sessions have partitions at rest

    @property
    def is_empty(self) -> bool:
        """Whether nothing is fetched."""
        return not self.partitions

    @property
    def resting_session(self) -> ReplicaSession | None:
        """The session whose partitions may be put to rest after `finish`; None where none may."""
        return None

    def arrive(self, replica: int, broker_epoch: int, start_moves: int, now: float) -> None:
        """A follower's fetch has come, and looks for the first time; see `Rest.arrive`."""

    def look_again(self, start_moves: int) -> None:
        """Before another look: take in what was stirred."""

    def look_at_all(self) -> None:
        """Leave nothing at rest."""

    def wait(self, fetch: WaitingFetch) -> None:
        """The fetch waits."""

    def end_wait(self, fetch: WaitingFetch) -> None:
        """The fetch waits no more."""


class FullFetch(FetchContext):
    """A full fetch: responds with all partitions, and opens a session if there is room."""

    __slots__ = ("_cache", "_privileged", "_use_ids")

    def __init__(
        self, cache: FetchSessionCache, partitions: Sequence[SessionPartition], *, use_ids: bool, privileged: bool
    ) -> None:
        super().__init__(partitions)
        self._cache = cache
        self._use_ids = use_ids
        self._privileged = privileged

    def finish(self, results: Sequence[R], now_ms: int) -> FetchAnswer[R]:
        """Open the session, and remember what this response says."""
        session_id = self._cache.open(
            [result.partition for result in results], use_ids=self._use_ids, privileged=self._privileged, now_ms=now_ms
        )
        for result in results:
            partition = result.partition
            partition.sent_high_watermark = result.high_watermark
            partition.sent_log_start_offset = result.log_start_offset
        return FetchAnswer(session_id, ErrorCode.none, results)


class IncrementalFetch(FetchContext):
    """A fetch within a session: responds only with partitions that changed."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        self.partitions = session.in_order()
        self.error = ErrorCode.none
        self._session = session
        self._epoch = session.epoch

    def finish(self, results: Sequence[R], now_ms: int) -> FetchAnswer[R]:
        """Keep what changed; partitions that return records go to the end of the session."""
        session = self._session
        if session.epoch != self._epoch:
            return FetchAnswer(session.id, ErrorCode.invalid_fetch_session_epoch, ())
        changed: list[R] = []
        for result in results:
            partition = result.partition
            has_changed = False
            if partition.sent_high_watermark != result.high_watermark:
                partition.sent_high_watermark = result.high_watermark
                has_changed = True
            if partition.sent_log_start_offset != result.log_start_offset:
                partition.sent_log_start_offset = result.log_start_offset
                has_changed = True
            if result.size > 0:
                session.serve_last(partition)
                has_changed = True
            if result.error:
                # The partition is sent again when the error is gone, even if nothing else changed.
                partition.sent_high_watermark = UNKNOWN
                has_changed = True
            if has_changed or result.preferred_read_replica != UNKNOWN or result.diverging_epoch is not None:
                changed.append(result)
        return FetchAnswer(session.id, ErrorCode.none, changed)

    def hold_back(self) -> tuple[int, ErrorCode]:
        """The session goes on."""
        is_over = self._session.epoch != self._epoch
        return self._session.id, ErrorCode.invalid_fetch_session_epoch if is_over else ErrorCode.none


class FollowerFetch(IncrementalFetch):
    """A follower's fetch within a session: `partitions` has those that are not at rest.

    When another request has advanced the session, there is nothing left to look at.
    """

    __slots__ = ()
    _session: ReplicaSession

    @property
    def is_empty(self) -> bool:
        """Whether nothing is fetched: such a session is closed."""
        return False

    @property
    def resting_session(self) -> ReplicaSession | None:
        """None if the session is gone, or goes on without this fetch."""
        session = self._session
        return session if session.epoch == self._epoch and not session.rest.is_over else None

    def arrive(self, replica: int, broker_epoch: int, start_moves: int, now: float) -> None:
        """The follower fetches all partitions, those at rest too."""
        self._session.rest.arrive(replica, broker_epoch, start_moves, now)
        self.partitions = self._session.in_order()

    def look_again(self, start_moves: int) -> None:
        """Take in what was stirred."""
        session = self._session
        if session.epoch == self._epoch:
            session.rest.note_starts(start_moves)
            self.partitions = session.in_order()
        else:
            self.partitions = ()

    def look_at_all(self) -> None:
        """Leave nothing at rest."""
        self._session.rest.stir_all()
        self.partitions = self._session.in_order()

    def wait(self, fetch: WaitingFetch) -> None:
        """Be woken by what is stirred, too, and by what was stirred while the fetch looked.

        That another partition is committed by what the fetch says may have records appended to one at rest.
        """
        if self._session.epoch == self._epoch:
            self._session.rest.waiting = fetch
            self.partitions = self._session.in_order()

    def end_wait(self, fetch: WaitingFetch) -> None:
        """Be woken no more."""
        if self._session.rest.waiting is fetch:
            self._session.rest.waiting = None


class FetchSession:
    """What one client fetches, from one full fetch to the next."""

    __slots__ = (
        "_order",
        "_partitions",
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "mature",
        "privileged",
        "rank",
        "use_ids",
    )

    def __init__(
        self, session_id: int, partitions: Iterable[SessionPartition], *, use_ids: bool, privileged: bool, now_ms: int
    ) -> None:
        self.id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch that the client's next request must carry."""
        self.use_ids = use_ids
        self.privileged = privileged
        """Whether a follower owns it; consumers' sessions give way to it."""
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.mature = False
        """Whether it was in use for longer than the eviction time: larger sessions may then take its place."""
        self._partitions: dict[Key, SessionPartition] = {part.key: part for part in partitions}
        self._order: tuple[SessionPartition, ...] | None = None
        self.rank = (privileged, len(self._partitions), session_id)
        """Its worth when a slot is needed, as last filed by the cache; the lowest goes first."""

    def __len__(self) -> int:
        return len(self._partitions)

    def in_order(self) -> tuple[SessionPartition, ...]:
        """The partitions in order of service; the same tuple until that changes."""
        if self._order is None:
            self._order = tuple(self._partitions.values())
        return self._order

    def serve_last(self, partition: SessionPartition) -> None:
        """Let every other partition go first next time."""
        if len(self._partitions) > 1:
            key = partition.key
            del self._partitions[key]
            self._partitions[key] = partition
            self._order = None

    def update(self, partitions: Iterable[Wanted], forgotten: Iterable[Key]) -> None:
        """Take over what an incremental request says."""
        known = self._partitions
        for wanted in partitions:
            partition = known.get(wanted[:2])
            if partition is not None:
                if wanted[3] == partition.fetch_offset and self.privileged:
                    partition.sent_high_watermark = UNKNOWN  # a follower that has not moved may not have taken it
                partition.ask(wanted)
            else:
                added = SessionPartition(wanted)
                known[added.key] = added
                self._order = None
        for key in forgotten:
            if known.pop(key, None) is not None:
                self._order = None

    def fetch(self, *, follower: bool) -> IncrementalFetch:
        """A fetch of the next epoch."""
        return IncrementalFetch(self)

    def everything(self) -> Sequence[SessionPartition]:
        """All partitions, in no order."""
        return self.in_order()

    def end(self) -> None:
        """The session is gone."""


class ReplicaSession(FetchSession):
    """What one follower fetches; its order of service is that of the partitions which are not at rest."""

    __slots__ = ("rest",)

    def __init__(self, session_id: int, partitions: Iterable[SessionPartition], *, use_ids: bool, now_ms: int) -> None:
        self.rest = Rest()
        super().__init__(session_id, partitions, use_ids=use_ids, privileged=True, now_ms=now_ms)

    def __len__(self) -> int:
        return len(self._partitions) + len(self.rest)

    def put_to_rest(self, partition: SessionPartition, place: RestingPlace) -> None:
        """Do not look at a partition until its place stirs it."""
        del self._partitions[partition.key]
        self._order = None
        self.rest.put(partition, place)

    def stirred(self, partition: SessionPartition) -> None:
        """Look at a partition again, after the others: its place calls this."""
        self._partitions[partition.key] = self.rest.stirred(partition.key)
        self._order = None

    def update(self, partitions: Iterable[Wanted], forgotten: Iterable[Key]) -> None:
        """Take over what an incremental request says, and look at what it names."""
        if len(self.rest):
            partitions, forgotten = list(partitions), list(forgotten)
            self.rest.stir([wanted[:2] for wanted in partitions] + forgotten)
        super().update(partitions, forgotten)

    def fetch(self, *, follower: bool) -> IncrementalFetch:
        """A fetch of the next epoch. One that is not the follower's looks at everything, and puts nothing to rest."""
        if follower:
            return FollowerFetch(self)
        self.rest.stir_all()
        return super().fetch(follower=follower)

    def everything(self) -> Sequence[SessionPartition]:
        """All partitions, in no order."""
        return [*self.in_order(), *self.rest.partitions()]

    def end(self) -> None:
        """The session is gone, and nothing of it may stay where its partitions are."""
        self.rest.end()


class FetchSessionCache:
    """All fetch sessions of a broker, at most `slots` of them.

    When no slot is free, a new session takes the place of one that is worth less: one unused for longer than
    `eviction_ms`; else, for a follower's session, a consumer's; else one in use for longer than `eviction_ms` that has
    fewer partitions. If there is none, the client goes on with full fetches.

    `new_id` gives random numbers from 1 to 2**31 - 1.
    """

    def __init__(self, *, slots: int, eviction_ms: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._new_id = new_id
        self._sessions: dict[int, FetchSession] = {}
        """By id, the longest unused first."""
        self._evictable_by_all: list[tuple[bool, int, int]] = []
        """Ranks, sorted: what any new session may replace if it ranks higher."""
        self._evictable_by_privileged: list[tuple[bool, int, int]] = []
        """Ranks, sorted: what a follower's new session may replace if it ranks higher."""
        self.evictions = 0
        """How many sessions gave way to others so far."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions in all sessions."""
        return sum(map(len, self._sessions.values()))

    def partitions_of(self, session_id: int) -> Sequence[SessionPartition]:
        """What a session fetches; nothing if there is no such session."""
        session = self._sessions.get(session_id)
        return () if session is None else session.everything()

    def begin(
        self,
        session_id: int,
        epoch: int,
        partitions: Sequence[Wanted],
        forgotten: Sequence[Key],
        *,
        use_ids: bool,
        follower: bool,
        now_ms: int,
    ) -> FetchContext:
        """Start a fetch with what the request says; `follower` when a replica of ours asks."""
        if FINAL_EPOCH <= epoch <= INITIAL_EPOCH:
            if session_id != NO_SESSION:
                self._remove(session_id)
            if epoch == FINAL_EPOCH:
                return without_session(partitions)
            return FullFetch(self, _requested(partitions), use_ids=use_ids, privileged=follower)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext((), ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            return FetchContext((), ErrorCode.invalid_fetch_session_epoch)
        if session.use_ids is not use_ids:
            return FetchContext((), ErrorCode.fetch_session_topic_id_error)
        if partitions or forgotten:
            session.update(partitions, forgotten)
        if not len(session):
            self._remove(session_id)
            return without_session(partitions)
        self._touch(session, now_ms)
        session.epoch = next_epoch(epoch)
        return session.fetch(follower=follower)

    def open(self, partitions: Sequence[SessionPartition], *, use_ids: bool, privileged: bool, now_ms: int) -> int:
        """Make room for a new session and give its id; 0 if every session in the cache is worth more."""
        if len(self._sessions) >= self._slots and not self._evict((privileged, len(partitions), 0), now_ms):
            return NO_SESSION
        session_id = self._new_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._new_id()
        session = (
            ReplicaSession(session_id, partitions, use_ids=use_ids, now_ms=now_ms)
            if privileged
            else FetchSession(session_id, partitions, use_ids=use_ids, privileged=False, now_ms=now_ms)
        )
        self._sessions[session_id] = session
        if not privileged:
            insort(self._evictable_by_privileged, session.rank)
        return session_id

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        del self._sessions[session.id]
        self._sessions[session.id] = session
        ripe = not session.mature and now_ms - session.created_ms > self._eviction_ms
        if ripe or len(session) != session.rank[1]:
            self._unfile(session)
            session.mature = session.mature or ripe
            session.rank = (session.privileged, len(session), session.id)
            if session.mature:
                insort(self._evictable_by_all, session.rank)
            if session.mature or not session.privileged:
                insort(self._evictable_by_privileged, session.rank)

    def _unfile(self, session: FetchSession) -> None:
        if session.mature:
            del self._evictable_by_all[bisect_left(self._evictable_by_all, session.rank)]
        if session.mature or not session.privileged:
            del self._evictable_by_privileged[bisect_left(self._evictable_by_privileged, session.rank)]

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._unfile(session)
            session.end()

    def _evict(self, rank: tuple[bool, int, int], now_ms: int) -> bool:
        """Remove one session that is worth less than a new one of this rank; False if there is none."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            victim = oldest.id
        else:
            candidates = self._evictable_by_privileged if rank[0] else self._evictable_by_all
            if not candidates or rank < candidates[0]:
                return False
            victim = candidates[0][2]
        self._remove(victim)
        self.evictions += 1
        return True


def without_session(partitions: Iterable[Wanted]) -> FetchContext:
    """A fetch of its own, of which nothing is kept."""
    return FetchContext(_requested(partitions))


def _requested(partitions: Iterable[Wanted]) -> list[SessionPartition]:
    """The partitions of a request without a session; the last entry counts if one is named twice."""
    requested = [SessionPartition(wanted) for wanted in partitions]
    if len(requested) > 1:
        requested = list({partition.key: partition for partition in requested}.values())
    return requested


def next_epoch(epoch: int) -> int:
    """The epoch after this one; past the largest comes 1, since 0 opens sessions.

    >>> next_epoch(2**31 - 1)
    1
    """
    return epoch + 1 if epoch < 2**31 - 1 else 1
