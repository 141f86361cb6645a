"""What clients have used of their quotas, as much of it as there is room for.

Whoever can make up names must not push out what is remembered of others: that would give their quotas back to them. So
addresses, which strangers choose, users, which have logged in, client ids, which anybody makes up, and client ids of a
user have their own room each. Of the last, whoever has most loses the one that was quiet for longest, so that a user
with ten thousand client ids pushes out its own.

Usage that is over for long is forgotten. Long names are shortened, since a client id may have 32 KiB.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_SECONDS: Final = 3600.0
"""After which usage is forgotten, as in Kafka."""
MOST_REMEMBERED: Final = 10_000
"""Usages of one sort that are remembered at once. Kafka has no limit."""
LONGEST_NAME: Final = 255
"""Characters of a name that is remembered as it is."""


class UsageOwner(NamedTuple):
    """Who shares a usage: the quota's key, and a user, a client id or both, or an address; None for any."""

    key: str
    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def sort(self) -> tuple[bool, bool]:
        """Owners of one sort share their room."""
        return self.user is None, self.client_id is None


class Usage(Protocol):
    """What one owner has used."""

    last_used: float


U = TypeVar("U", bound=Usage)


class Usages:
    """The usages of one sort of owners, in groups of which none takes room from those that have less."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._groups: dict[str | None, dict[UsageOwner, Usage]] = {}
        """Groups and their usages, each beginning with the one that was quiet for longest."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, owner: UsageOwner, make: Callable[[], U], now: float) -> U:
        """What an owner has used; nothing yet, if that is not remembered."""
        name = owner.user if owner.client_id is not None else None
        group = self._groups.pop(name, None)
        if group is None:
            group = {}
        self._groups[name] = group
        found = group.pop(owner, None)
        usage: U = make() if found is None else found  # type: ignore[assignment]  # a key has usages of one class
        group[owner] = usage
        usage.last_used = now
        if found is None:
            self._count += 1
            self._forget_idle(now)
            if self._count > self._most:
                self._make_room(name)
        return usage

    def _forget_idle(self, now: float) -> None:
        """Forget what was not used for an hour, of the groups that were quiet for longest and of the newest."""
        while self._is_idle(next(iter(self._groups.values())), now):
            self._forget_first(next(iter(self._groups)))
        newest = next(reversed(self._groups))
        while self._is_idle(self._groups[newest], now):
            self._forget_first(newest)

    @staticmethod
    def _is_idle(group: dict[UsageOwner, Usage], now: float) -> bool:
        return now - next(iter(group.values())).last_used >= IDLE_SECONDS

    def _make_room(self, name: str | None) -> None:
        """Forget a usage of the group that a new one came to, if that has more than its share; else of the largest."""
        if len(self._groups[name]) * len(self._groups) <= self._count:
            name = max(self._groups, key=lambda each: len(self._groups[each]))
        self._forget_first(name)

    def _forget_first(self, name: str | None) -> None:
        group = self._groups[name]
        del group[next(iter(group))]
        self._count -= 1
        if not group:
            del self._groups[name]


def shortened(name: str) -> str:
    """The name, or what stands for a long one; that is no short name, nor what stands for another."""
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return name[:LONGEST_NAME] + digest
