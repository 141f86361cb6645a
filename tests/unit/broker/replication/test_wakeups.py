"""Many who watch one partition: all are woken, some in each turn of the event loop."""

from __future__ import annotations

import asyncio

from barnabas.broker.replication.wakeups import PER_TURN, Wakeups


class Sleeper:
    """Counts how often it was woken, and stops to watch when it has seen enough."""

    def __init__(self, watchers: set[Sleeper], enough: int) -> None:
        self.woken = 0
        self._watchers = watchers
        self._enough = enough
        watchers.add(self)

    def wake(self) -> None:
        self.woken += 1
        if self.woken == self._enough:
            self._watchers.discard(self)


async def test_nobody_waits_longer_than_some_others_take() -> None:
    watchers: set[Sleeper] = set()
    sleepers = [Sleeper(watchers, 1) for _ in range(3 * PER_TURN + 1)]
    Wakeups(watchers).wake()
    counts = []
    while watchers:
        counts.append(sum(each.woken for each in sleepers))
        await asyncio.sleep(0)
    assert counts == [PER_TURN, 2 * PER_TURN, 3 * PER_TURN]
    assert all(each.woken == 1 for each in sleepers)


async def test_what_comes_while_some_are_still_to_be_woken_is_seen_by_all() -> None:
    watchers: set[Sleeper] = set()
    sleepers = [Sleeper(watchers, 2) for _ in range(PER_TURN + 1)]
    wakeups = Wakeups(watchers)
    wakeups.wake()
    late = Sleeper(watchers, 1)
    wakeups.wake()
    wakeups.wake()
    async with asyncio.timeout(10):
        while watchers:
            await asyncio.sleep(0)
    assert all(each.woken == 2 for each in sleepers)
    assert late.woken == 1
