"""Restarting the brokers of a cluster one after the other, so that clients always find a leader.

The next broker is stopped when every replica that was in sync before is in sync again. A replica that was not in sync
is not waited for: a broker elsewhere may have been down for days. But those of brokers that were started just now are
on their way, and the first one is not stopped before they have come.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common.failures import Failed
from barnabas.clients.admin.admin import Admin
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

IN_SYNC_SECONDS: Final = 600.0
"""How long a broker may take to fetch what it missed."""
TO_SEE: Final = "barnabas topics --describe --under-replicated-partitions"
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
    started: Mapping[int, float] | None = None,
) -> None:
    """Restart brokers in turn, by their index; returns early if it was `given_up`, which may also raise Failed.

    `started` are brokers by id, with the seconds since they were started.
    """
    with Admin(bootstrap_servers, config=properties) as admin:
        if not _wait_for_started(admin, started or {}, given_up, say):
            return
        before = _in_sync(admin)
        for index, name in enumerate(brokers):
            say(f"Restarting {name} ({index + 1} of {len(brokers)}).")
            restart(index)
            late = f"{IN_SYNC_SECONDS:g} s after the restart. The other brokers were left alone: see {TO_SEE}"
            if not _wait(lambda: _behind(admin, before), IN_SYNC_SECONDS, late, given_up):
                return
    say("All brokers were restarted.")


def wait_for_started(
    started: Mapping[int, float],
    bootstrap_servers: str,
    properties: Mapping[str, Any],
    *,
    say: Callable[[str], None],
    given_up: Callable[[], bool] = lambda: False,
) -> bool:
    """Wait until brokers that were started just now have what they missed; False if it was given up.

    They are given by id, with the seconds since. Raises Failed for a broker whose replicas are not in sync in time, and
    what the clients raise where nobody may ask.
    """
    with Admin(bootstrap_servers, config=properties) as admin:
        return _wait_for_started(admin, started, given_up, say)


def _wait_for_started(
    admin: Admin, started: Mapping[int, float], given_up: Callable[[], bool], say: Callable[[str], None]
) -> bool:
    waited_for = {broker: ago for broker, ago in started.items() if ago < IN_SYNC_SECONDS}
    if not waited_for or not (behind := _missing(admin, waited_for)):
        return True
    say(f"Waiting for replicas of brokers that were just started, such as {behind[0]}, to be in sync.")
    late = f"{IN_SYNC_SECONDS:g} s after its broker was started: see {TO_SEE}"
    left = IN_SYNC_SECONDS - min(waited_for.values())
    return _wait(lambda: _missing(admin, waited_for), left, late, given_up)


def _wait(find: Callable[[], list[str]], seconds: float, late: str, given_up: Callable[[], bool]) -> bool:
    """Wait until nothing is found that is not in sync; False if it was given up."""
    deadline = time.monotonic() + seconds
    while not given_up():
        try:
            behind = find()
        except (BrokerUnreachable, RequestRefused):  # the broker that was asked may have just stopped
            behind = ["the cluster, which did not answer,"]
        if not behind:
            return True
        if time.monotonic() > deadline:
            were = "was" if len(behind) == 1 else "were"
            raise Failed(f"{', '.join(behind[:3])} {were} not in sync {late}")
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


def _missing(admin: Admin, brokers: Collection[int]) -> list[str]:
    """Partitions that one of these brokers has a replica of which is not in sync, and has a leader to be so with.

    Without one they wait for a replica that was in sync: for one of these brokers, or for one that is away.
    """
    return [
        str(TopicPartition(topic.name, partition.partition))
        for topic in admin.topics()
        for partition in topic.partitions
        if partition.leader is not None or any(broker in partition.isr for broker in brokers)
        if any(broker in partition.replicas and broker not in partition.isr for broker in brokers)
    ]
