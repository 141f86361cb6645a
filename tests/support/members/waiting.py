"""Waits for what the members of a group are to come to together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.support.members.member import TIMEOUT_SECONDS
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.support.members.member import Member, Place


def wait_for_members(members: Iterable[Member], condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for something; a member that failed meanwhile is the reason why it does not come."""
    watched = list(members)

    def look() -> bool:
        for member in watched:
            if member.failure is not None:
                raise AssertionError(f"{member.name} failed while waiting for {what}") from member.failure
        return condition()

    try:
        wait_until(look, what, seconds)
    except AssertionError as error:
        held = "\n".join(f"{member.name}: {sorted(member.owned)}, {len(member.read)} read" for member in watched)
        raise AssertionError(f"{error}\n{held}") from error.__cause__


def wait_until_shared(
    members: Iterable[Member], places: frozenset[Place], seconds: float = TIMEOUT_SECONDS, *, rest: float = 0.5
) -> None:
    """Wait until every partition has one owner among these members, each has one, and so it stays for a moment."""
    together = list(members)
    since = time.monotonic()

    def shared() -> bool:
        nonlocal since
        held = [place for member in together for place in member.owned]
        idle = [member for member in together if not member.owned]
        if frozenset(held) != places or len(held) != len(places) or (idle and len(places) >= len(together)):
            since = time.monotonic()
        return time.monotonic() - since >= rest

    wait_for_members(together, shared, f"one owner for each of {len(places)} partitions", seconds)


def wait_until_read(members: Iterable[Member], values: Iterable[bytes], seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until these members together have read all of these values."""
    together, wanted = list(members), set(values)

    def everything() -> bool:
        return wanted <= {value for member in together for value in member.values()}

    wait_for_members(together, everything, f"{len(wanted)} records", seconds)
