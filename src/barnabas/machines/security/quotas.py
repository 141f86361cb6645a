"""Client quotas in force: how much clients have used lately, and for how long they have to wait if it was too much.

The rules are those of Apache Kafka's ClientQuotaManager. Usage is an average over a number of samples, and over no less
time than all of them but one, so that what was not used for a while may be used at once. Who has used more waits until
the average would be right again: `(rate - quota) / quota * time`. Changes of topics are counted by a token bucket
(KIP-599). The most specific quota counts, of eight levels; it says who shares it:

    user and client id, each named or the default     this client id of this user
    a user, or the default                            all clients of this user
    a client id, or the default                       all clients with this id, whoever they are

Times are handed in, of a clock that never goes back. There is a limit to how much is remembered (`usages`), whatever
client ids somebody makes up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from barnabas.machines.security.quota_entities import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from barnabas.machines.security.usages import LONGEST_NAME, MOST_REMEMBERED, UsageOwner, Usages, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LONGEST_MS: Final = 2**31 - 1
"""What fits into a response."""
PERCENT: Final = 100.0


class QuotaWindow(NamedTuple):
    """Over which time usage is measured."""

    samples: int = 11
    seconds: float = 1.0
    """The length of a sample."""

    @property
    def least(self) -> float:
        """The shortest time over which an average is taken, but for the sample that has just begun."""
        return (self.samples - 1) * self.seconds


class Rate:
    """How much was used in the last samples."""

    __slots__ = ("_samples", "last_used")

    def __init__(self) -> None:
        self._samples: list[tuple[float, float, float]] = []
        """When each began, when it was added to last, and what was used in it: a dozen, in little memory."""
        self.last_used = 0.0

    def record(self, amount: float, now: float, window: QuotaWindow) -> None:
        """So much was used; less than nothing takes back what was recorded at the same time."""
        samples = self._samples
        if samples and now - samples[-1][0] < window.seconds:
            began, _, total = samples.pop()
            samples.append((began, now, total + amount))
        else:
            samples.append((now, now, amount))
            if len(samples) > window.samples:
                del samples[0]

    def measure(self, now: float, window: QuotaWindow) -> tuple[float, float]:
        """The average per second, and the seconds over which it was taken."""
        samples = self._samples
        while samples and now - samples[0][1] >= window.samples * window.seconds:
            del samples[0]
        elapsed = max(now - samples[0][0], 0.0) if samples else 0.0
        lacking = window.samples - 1 - int(elapsed / window.seconds)
        seconds = max(elapsed + max(lacking, 0) * window.seconds, 0.001)
        return sum(total for _, _, total in samples) / seconds, seconds

    def wait_ms(self, quota: float, now: float, window: QuotaWindow) -> int:
        """For how many milliseconds nothing may be used; 0 if the quota is kept."""
        rate, seconds = self.measure(now, window)
        if rate <= quota:
            return 0
        return _milliseconds((rate - quota) / quota * seconds)


class TokenBucket:
    """Tokens that come back at the rate of a quota, as many as fit into a window."""

    __slots__ = ("_at", "_tokens", "last_used")

    def __init__(self) -> None:
        self._tokens = math.inf
        self._at = 0.0
        self.last_used = 0.0

    def wait_ms(self, quota: float, now: float, window: QuotaWindow) -> int:
        """For how many milliseconds there are less than no tokens; 0 if there are some, or none."""
        burst = window.samples * window.seconds * quota
        self._tokens = min(burst, self._tokens + max(now - self._at, 0.0) * quota)
        self._at = now
        return _milliseconds(-self._tokens / quota) if self._tokens < 0 else 0

    def take(self, tokens: float) -> None:
        """Use tokens, even if there are fewer."""
        self._tokens -= tokens


def _milliseconds(seconds: float) -> int:
    return int(min(seconds * 1000 + 0.5, LONGEST_MS))


class QuotaLimits:
    """All quotas of a cluster at one moment."""

    __slots__ = ("_by_key", "_found", "keys")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._by_key: dict[str, dict[tuple[str | None, ...], float]] = {}
        for entity, values in quotas.items():
            for key, value in values.items():
                self._by_key.setdefault(key, {})[entity] = value
        self.keys = frozenset(self._by_key)
        """Keys for which there is any quota."""
        self._found: dict[tuple[str, str, str], tuple[UsageOwner, float] | None] = {}
        """What was asked before."""

    def find(self, key: str, user: str, client_id: str) -> tuple[UsageOwner, float] | None:
        """The quota that counts for a client, and who shares it; None if there is none."""
        if key not in self._by_key:
            return None
        asked = key, user, client_id
        try:
            return self._found[asked]
        except KeyError:
            found = self._look(key, user, client_id)
            if len(user) > LONGEST_NAME or len(client_id) > LONGEST_NAME:
                return found
            if len(self._found) >= MOST_REMEMBERED:
                self._found.clear()
            self._found[asked] = found
            return found

    def _look(self, key: str, user: str, client_id: str) -> tuple[UsageOwner, float] | None:
        quotas = self._by_key[key]
        levels: tuple[tuple[str | None, str | None], ...] = (
            (user, client_id),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client_id),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client_id),
            (None, DEFAULT),
        )
        for of_user, of_client in levels:
            quota = quotas.get((of_user, of_client, None))
            if quota is not None:
                sharing_user = None if of_user is None else shortened(user)
                sharing_client = None if of_client is None else shortened(client_id)
                return UsageOwner(key, sharing_user, sharing_client), quota
        return None

    def differs(self, other: QuotaLimits, user: str, client_id: str) -> bool:
        """Whether other quotas would count for a client."""
        return any(
            self.find(key, user, client_id) != other.find(key, user, client_id) for key in self.keys | other.keys
        )

    def of_address(self, ip: str) -> float | None:
        """How many connections a second an address may open; None for as many as it likes."""
        quotas = self._by_key.get(CONNECTION_CREATION_RATE)
        if quotas is None:
            return None
        named = quotas.get((None, None, ip))
        return quotas.get((None, None, DEFAULT)) if named is None else named


U = TypeVar("U", Rate, TokenBucket)


class ClientShares:
    """What clients have used lately, and what the quotas of the moment make of it."""

    def __init__(self, window: QuotaWindow, mutation_window: QuotaWindow, most: int = MOST_REMEMBERED) -> None:
        self.limits = QuotaLimits({})
        """Replaced when quotas change; what was used stays."""
        self._window = window
        self._mutation_window = mutation_window
        self._most = most
        self._usages: dict[tuple[bool, bool], Usages] = {}
        """By sort of owner."""

    def __len__(self) -> int:
        return sum(map(len, self._usages.values()))

    def produced(self, user: str, client_id: str, size: int, now: float) -> int:
        """A client sent so many bytes to be stored: for how many milliseconds it has to wait."""
        return self._used(PRODUCER_BYTE_RATE, user, client_id, size, now)

    def fetched(self, user: str, client_id: str, size: int, now: float) -> int:
        """A client would be sent so many bytes of records: for how many milliseconds it has to wait instead."""
        found = self.limits.find(CONSUMER_BYTE_RATE, user, client_id)
        if found is None:
            return 0
        owner, quota = found
        rate = self._usage(owner, Rate, now)
        rate.record(size, now, self._window)
        wait = rate.wait_ms(quota, now, self._window)
        if wait:
            rate.record(-size, now, self._window)
        return wait

    def delivered(self, user: str, client_id: str, size: int, now: float) -> int:
        """A client is sent so many bytes of records that it has locked: for how many milliseconds it gets no more."""
        return self._used(CONSUMER_BYTE_RATE, user, client_id, size, now)

    def most_at_once(self, user: str, client_id: str) -> int:
        """The most bytes that a client can be sent at all, though it was sent none lately."""
        found = self.limits.find(CONSUMER_BYTE_RATE, user, client_id)
        return LONGEST_MS if found is None else int(min(found[1] * self._window.least, LONGEST_MS))

    def is_timed(self, user: str, client_id: str) -> bool:
        """Whether the time that a client's requests take is counted."""
        return self.limits.find(REQUEST_PERCENTAGE, user, client_id) is not None

    def took(self, user: str, client_id: str, seconds: float, now: float) -> None:
        """A client's request took so much processor time."""
        found = self.limits.find(REQUEST_PERCENTAGE, user, client_id)
        if found is not None:
            self._usage(found[0], Rate, now).record(PERCENT * seconds, now, self._window)

    def time_wait_ms(self, user: str, client_id: str, now: float) -> int:
        """For how long a client has to wait because its requests have taken too much time: for a sample at most."""
        found = self.limits.find(REQUEST_PERCENTAGE, user, client_id)
        if found is None:
            return 0
        wait = self._usage(found[0], Rate, now).wait_ms(found[1], now, self._window)
        return min(wait, _milliseconds(self._window.seconds))

    def mutation_wait_ms(self, user: str, client_id: str, now: float) -> int:
        """For how long a client has to wait because it has created and deleted too many partitions."""
        found = self.limits.find(CONTROLLER_MUTATION_RATE, user, client_id)
        if found is None:
            return 0
        return self._usage(found[0], TokenBucket, now).wait_ms(found[1], now, self._mutation_window)

    def mutated(self, user: str, client_id: str, partitions: int, now: float) -> None:
        """A client has so many partitions created or deleted."""
        found = self.limits.find(CONTROLLER_MUTATION_RATE, user, client_id)
        if found is not None:
            bucket = self._usage(found[0], TokenBucket, now)
            bucket.wait_ms(found[1], now, self._mutation_window)
            bucket.take(partitions)

    def connected(self, ip: str, now: float) -> int:
        """An address opens a connection: for how long it has to wait instead, a sample at most; 0 if it may."""
        quota = self.limits.of_address(ip)
        if quota is None:
            return 0
        rate = self._usage(UsageOwner(CONNECTION_CREATION_RATE, ip=ip), Rate, now)
        rate.record(1, now, self._window)
        wait = rate.wait_ms(quota, now, self._window)
        if wait:
            rate.record(-1, now, self._window)
        return min(wait, _milliseconds(self._window.seconds))

    def _used(self, key: str, user: str, client_id: str, amount: float, now: float) -> int:
        found = self.limits.find(key, user, client_id)
        if found is None:
            return 0
        owner, quota = found
        rate = self._usage(owner, Rate, now)
        rate.record(amount, now, self._window)
        return rate.wait_ms(quota, now, self._window)

    def _usage(self, owner: UsageOwner, make: Callable[[], U], now: float) -> U:
        """What an owner has used."""
        usages = self._usages.get(owner.sort)
        if usages is None:
            usages = self._usages[owner.sort] = Usages(self._most)
        return usages.of(owner, make, now)
