"""How long requests take, by their kind: a bucket is incremented with each of them, and nothing else.

`RequestTimes.serve` stands before what serves requests, on a broker whose requests are watched. A request that is
answered at once costs it two looks at the clock and one increment. What is parked costs a little more, which is little
beside what parking costs; it is counted when it is answered. Everything else is worked out when somebody asks: counts
are sums of buckets, quantiles are read from them.

Buckets are on a logarithmic scale, ten to a decade. Quantiles are those of the last minutes: now and then a copy of the
buckets is kept (`turn`), and what is in them since then is what counts.

Three times are told apart, as in Kafka: in the event loop (local), waiting for replicas, records or members (remote),
and both together (total). Kafka's queues and threads have no counterpart.
"""

from __future__ import annotations

import logging
from bisect import bisect
from collections import deque
from functools import partial
from itertools import accumulate, pairwise
from operator import sub
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.serving.caller import Caller
from barnabas.net.reply import Answer, Parked
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas.net.connection import Connection

logger = logging.getLogger("barnabas.slow")
"""The slow-request log, which can be sent elsewhere or silenced by its name."""

SHORTEST: Final = 5e-6
PER_DECADE: Final = 10
DECADES: Final = 8
BOUNDS: Final = tuple(SHORTEST * 10 ** (number / PER_DECADE) for number in range(PER_DECADE * DECADES + 1))
"""Upper ends of the buckets but the last, in seconds: from 5 µs to more than eight minutes."""
WINDOWS: Final = 20
"""Copies of the buckets that are kept."""
WINDOW_SECONDS: Final = 15.0
"""How far they are apart: quantiles are those of the last five minutes."""
MOST_SLOW: Final = 100
"""Slow requests that are remembered."""
LOGGED_PER_WINDOW: Final = 50
"""Slow requests that are logged within a window; others are only counted."""
FETCH: Final = int(ApiKey.FETCH)
WAITING: Final = frozenset({ApiKey.FETCH, ApiKey.SHARE_FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""Requests that wait by design: for records, or for other members. Only their time in the event loop may be slow."""
FOLLOWER: Final = "FetchFollower"
CONSUMER: Final = "FetchConsumer"

Buckets = list[int]


class SlowRequest(NamedTuple):
    """A request that took longer than slow.request.ms."""

    at_ms: int
    kind: str
    client_id: str
    address: str
    seconds: float
    in_loop: float
    """Of these, those in which the event loop did nothing else."""


class Times:
    """The times of one kind of request."""

    __slots__ = ("_copies", "at_once", "begun", "held", "later", "name")

    def __init__(self, name: str, slow_bucket: int) -> None:
        self.name = name
        self.at_once: Buckets = [0] * slow_bucket
        """Of requests that were answered at once: in the event loop, which is their total. It has no buckets of slow
        ones; those are in `held`."""
        self.held: Buckets = [0] * (len(BOUNDS) + 1)
        """Of requests that were slow and not parked: likewise, for they held the event loop all the time."""
        self.begun: Buckets = [0] * (len(BOUNDS) + 1)
        """Of requests that were parked: their time in the event loop before that."""
        self.later: Buckets = [0] * (len(BOUNDS) + 1)
        """Of requests that were parked: their total."""
        self._copies: deque[tuple[Buckets, Buckets, Buckets, Buckets]] = deque(maxlen=WINDOWS)

    @property
    def count(self) -> int:
        """How many requests were answered."""
        return sum(self.at_once) + sum(self.held) + sum(self.later)

    def turn(self) -> None:
        """Keep a copy: a window is over."""
        self._copies.append((self.at_once[:], self.held[:], self.begun[:], self.later[:]))

    def ever(self) -> tuple[Buckets, Buckets, Buckets]:
        """Local, remote and total times since the start."""
        return _sorted_out(self.at_once, self.held, self.begun, self.later)

    def recent(self) -> tuple[Buckets, Buckets, Buckets]:
        """Local, remote and total times of the last minutes."""
        if not self._copies:
            return self.ever()
        now = self.at_once, self.held, self.begun, self.later
        return _sorted_out(*map(_difference, now, self._copies[0]))


class RequestTimes:
    """Serves requests by having them served, and counts how long that takes."""

    def __init__(
        self,
        serve: Callable[[Connection, memoryview], Answer | Parked],
        now_ms: Callable[[], int],
        slow_seconds: float | None,
    ) -> None:
        self._serve = serve
        self._now_ms = now_ms
        self._slow_seconds = BOUNDS[-1] if slow_seconds is None else slow_seconds
        bucket = self._slow_bucket = bisect(BOUNDS, self._slow_seconds)
        self._kinds = {key & 0xFF: Times(_name(key), bucket) for key in ApiKey}
        """By the second byte of a request: no two of the keys that are served have the same."""
        assert len(self._kinds) == len(ApiKey)
        self._kinds[ApiKey.FETCH].name = CONSUMER
        self._followers = Times(FOLLOWER, bucket)
        self._unknown = Times("Unknown", bucket)
        self._at_once = [self._kinds.get(number, self._unknown).at_once for number in range(256)]
        self.slow: deque[SlowRequest] = deque(maxlen=MOST_SLOW)
        self.slow_count = 0
        self._may_log = LOGGED_PER_WINDOW

    def serve(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Have a request served, and count it: bytecodes count here.

        Slow requests have no bucket among those that are answered at once, which finds them without a comparison. What
        is parked is counted when it is answered. If nobody waits for it any more, it does not count.
        """
        begun = monotonic()
        answer = self._serve(connection, frame)
        if answer.__class__ is Parked:
            answer.when_answered = partial(self._answered, connection, frame[1], begun, monotonic())
            return answer
        try:
            self._at_once[frame[1]][bisect(BOUNDS, monotonic() - begun)] += 1
        except IndexError:
            self._held_loop(connection, frame[1], monotonic() - begun)
        return answer

    def times(self) -> Iterable[Times]:
        """Those of the kinds that were asked for; fetches of consumers and followers apart."""
        return [each for each in (*self._kinds.values(), self._followers) if each.count]

    def turn(self) -> None:
        """A window is over."""
        for times in self.times():
            times.turn()
        self._may_log = LOGGED_PER_WINDOW

    def _held_loop(self, connection: Connection, key: int, seconds: float) -> None:
        """Count a request that was slow without being parked."""
        times = self._times_of(connection, key)
        times.held[bisect(BOUNDS, seconds)] += 1
        self._note_slow(connection, key, times.name, seconds, seconds)

    def _times_of(self, connection: Connection, key: int) -> Times:
        if key == FETCH and _caller(connection).session.broker_id is not None:
            return self._followers
        return self._kinds.get(key, self._unknown)

    def _answered(self, connection: Connection, key: int, begun: float, parked: float) -> None:
        """Count a request that was parked."""
        total = monotonic() - begun
        times = self._times_of(connection, key)
        times.begun[bisect(BOUNDS, parked - begun)] += 1
        bucket = bisect(BOUNDS, total)
        times.later[bucket] += 1
        if bucket >= self._slow_bucket:
            self._note_slow(connection, key, times.name, total, parked - begun)

    def _note_slow(self, connection: Connection, key: int, kind: str, seconds: float, in_loop: float) -> None:
        if in_loop < self._slow_seconds and key in WAITING:
            return
        client_id = _caller(connection).client_id or ""
        address = f"{connection.address[0]}:{connection.address[1]}"
        self.slow.append(SlowRequest(self._now_ms(), kind, client_id, address, seconds, in_loop))
        self.slow_count += 1
        if self._may_log > 0:
            self._may_log -= 1
            logger.warning(
                "%s of client %s at %s took %.0f ms, %.0f ms of them in the event loop (slow.request.ms).",
                kind,
                client_id,
                address,
                1000 * seconds,
                1000 * in_loop,
            )


NOBODY: Final = Caller(listener="", address=("", 0), client_id=None)


def _caller(connection: Connection) -> Caller:
    """Whose connection it is, if that is known already."""
    return getattr(connection.state, "caller", NOBODY)


def _sorted_out(at_once: Buckets, held: Buckets, begun: Buckets, later: Buckets) -> tuple[Buckets, Buckets, Buckets]:
    """Local, remote and total times. What is parked waits nearly all of its time, what is not waits for nothing."""
    whole = add_up((at_once + [0] * (len(BOUNDS) + 1 - len(at_once)), held))
    remote = [later[0] + sum(whole), *later[1:]]
    return add_up((whole, begun)), remote, add_up((whole, later))


def _name(key: ApiKey) -> str:
    """Kafka's name of a kind of requests: ListOffsets."""
    return "".join(word.capitalize() for word in key.name.split("_"))


def _difference(now: Buckets, before: Buckets) -> Buckets:
    return list(map(sub, now, before))


def add_up(lists: Iterable[Buckets]) -> Buckets:
    """The sum of several lists of buckets."""
    return [sum(column) for column in zip(*lists, strict=True)]


def quantiles(buckets: Sequence[int], wanted: Iterable[float]) -> list[float]:
    """Quantiles in seconds; within a bucket, times are taken to be spread evenly. NaN if there are none."""
    cumulated = list(accumulate(buckets))
    total = cumulated[-1] if cumulated else 0
    if not total:
        return [float("nan") for _ in wanted]
    found = []
    for quantile in wanted:
        rank = quantile * total
        bucket = min(bisect(cumulated, rank - 1e-9), len(buckets) - 1)
        low = 0.0 if bucket == 0 else BOUNDS[bucket - 1]
        high = BOUNDS[min(bucket, len(BOUNDS) - 1)]
        before = cumulated[bucket] - buckets[bucket]
        found.append(low + (high - low) * min(max((rank - before) / max(buckets[bucket], 1), 0.0), 1.0))
    return found


def seconds(buckets: Sequence[int]) -> float:
    """All times together, each taken for the middle of its bucket: right to a few percent."""
    return sum(count * middle for count, middle in zip(buckets, MIDDLES, strict=True) if count)


MIDDLES: Final = (SHORTEST / 2, *((low + high) / 2 for low, high in pairwise(BOUNDS)), BOUNDS[-1])
