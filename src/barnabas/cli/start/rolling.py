"""Restarting the brokers of a cluster one after the other, so that clients always find a leader.

The next broker is stopped when every replica that was in sync before is in sync again. A replica that was not in sync
is not waited for: a broker elsewhere may have been down for days.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common.failures import Failed
from barnabas.clients.admin.admin import Admin
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

IN_SYNC_SECONDS: Final = 600.0
"""How long a broker may take to fetch what it missed."""
LOOK_SECONDS: Final = 0.2
NOBODY: Final[frozenset[int]] = frozenset()


def roll(
    brokers: Sequence[str],
    restart: Callable[[int], None],
    bootstrap_servers: str,
    properties: Mapping[str, Any],
    *,
    say: Callable[[str], None],
    given_up: Callable[[], bool] = lambda: False,
) -> None:
    """Restart brokers in turn, by their index; returns early if it was `given_up`, which may also raise Failed."""
    with Admin(bootstrap_servers, config=properties) as admin:
        before = _in_sync(admin)
        for index, name in enumerate(brokers):
            say(f"Restarting {name} ({index + 1} of {len(brokers)}).")
            restart(index)
            if not _wait(admin, before, given_up):
                return
    say("All brokers were restarted.")


def _wait(admin: Admin, before: Mapping[TopicPartition, frozenset[int]], given_up: Callable[[], bool]) -> bool:
    """Wait until everything is in sync that was; False if it was given up."""
    deadline = time.monotonic() + IN_SYNC_SECONDS
    while not given_up():
        try:
            behind = _behind(admin, before)
        except (BrokerUnreachable, RequestRefused):  # the broker that was asked may have just stopped
            behind = ["the cluster"]
        if not behind:
            return True
        if time.monotonic() > deadline:
            raise Failed(
                f"{', '.join(behind[:3])} was not in sync {IN_SYNC_SECONDS:g} s after the restart. The other brokers "
                "were left alone: see barnabas topics --describe --under-replicated-partitions"
            )
        time.sleep(LOOK_SECONDS)
    return False


def _in_sync(admin: Admin) -> dict[TopicPartition, frozenset[int]]:
    """The replicas of each partition that can lead it; none of one that has no leader."""
    return {
        TopicPartition(topic.name, partition.partition): frozenset(() if partition.leader is None else partition.isr)
        for topic in admin.topics()
        for partition in topic.partitions
    }


def _behind(admin: Admin, before: Mapping[TopicPartition, frozenset[int]]) -> list[str]:
    """Partitions with a replica that was in sync before and is not now; those that are gone do not matter."""
    return [str(place) for place, now in sorted(_in_sync(admin).items()) if not before.get(place, NOBODY) <= now]
