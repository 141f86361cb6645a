"""Restarting the brokers of a cluster one after the other, so that clients always find a leader.

Brokers with a replica that is not in sync come first: one that hangs is the first to be mended, and what it has is led
by the others, of which those that alone have something come last. The next broker is stopped when all that the last one
has, and every replica that was in sync before or has come in sync since, is in sync. A replica that was not in sync
before the restart of its broker is waited for as long as the others, and holds nothing up then: its disk may have
failed. One of another host is not waited for: its broker may have been down for days. But those of brokers that were
started just now are on their way, and the first one is not stopped before they have come.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common.failures import Failed
from barnabas.clients.admin.admin import Admin
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from barnabas.clients.admin.topics import TopicInfo

IN_SYNC_SECONDS: Final = 600.0
"""How long a broker may take to fetch what it missed."""
TO_SEE: Final = "barnabas topics --describe --under-replicated-partitions"
LOOK_SECONDS: Final = 0.2
NOBODY: Final[frozenset[int]] = frozenset()


class NotInSync(Failed):
    """Replicas were not in sync in time."""


def roll(
    brokers: Mapping[int, str],
    restart: Callable[[int], None],
    bootstrap_servers: str,
    properties: Mapping[str, Any],
    *,
    say: Callable[[str], None],
    given_up: Callable[[], bool] = lambda: False,
    started: Mapping[int, float] | None = None,
) -> None:
    """Restart brokers in turn; returns early if it was `given_up`, which may also raise Failed.

    `brokers` are their names by id, `started` the seconds since some were started.
    """
    with Admin(bootstrap_servers, config=properties) as admin:
        if not _wait_for_started(admin, started or {}, given_up, say):
            return
        topics = admin.topics()
        seen: dict[TopicPartition, frozenset[int]] = {}
        _behind(topics, seen)
        for number, broker in enumerate(_in_order(topics, brokers), start=1):
            if given_up():
                return
            say(f"Restarting {brokers[broker]} ({number} of {len(brokers)}).")
            restart(broker)
            if not _wait_for_restarted(admin, broker, seen, given_up, say):
                return
    say("All brokers were restarted.")


def _in_order(topics: Sequence[TopicInfo], brokers: Iterable[int]) -> list[int]:
    """Those that are behind come first, and those that alone have what others should have, too, come last."""

    partitions = [partition for topic in topics for partition in topic.partitions]

    def key(broker: int) -> tuple[bool, bool]:
        is_alone = any(set(each.isr) == {broker} != set(each.replicas) for each in partitions)
        return is_alone, not _missing(topics, (broker,))

    return sorted(brokers, key=key)


def _wait_for_restarted(
    admin: Admin,
    broker: int,
    seen: dict[TopicPartition, frozenset[int]],
    given_up: Callable[[], bool],
    say: Callable[[str], None],
) -> bool:
    """Wait for what was `seen` in sync, and for all that this broker has; False if it was given up.

    What was in sync is looked at again after that: another broker may have begun to hang while this one was waited for.
    """
    late = f"{IN_SYNC_SECONDS:g} s after the restart"
    others = f"{late}. The other brokers were left alone: see {TO_SEE}"

    def are_in_sync() -> bool:
        return _wait(lambda: _behind(admin.topics(), seen), IN_SYNC_SECONDS, others, given_up)

    if not are_in_sync():
        return False
    try:
        if not _wait(lambda: _missing(admin.topics(), (broker,)), IN_SYNC_SECONDS, late, given_up):
            return False
    except NotInSync as error:
        say(f"{error}, nor before it. The restart goes on.")
    return are_in_sync()


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
    if not waited_for or not (behind := _missing(admin.topics(), waited_for)):
        return True
    say(f"Waiting for replicas of brokers that were just started, such as {behind[0]}, to be in sync.")
    late = f"{IN_SYNC_SECONDS:g} s after its broker was started: see {TO_SEE}"
    left = IN_SYNC_SECONDS - min(waited_for.values())
    return _wait(lambda: _missing(admin.topics(), waited_for), left, late, given_up)


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
            raise NotInSync(f"{', '.join(behind[:3])} {were} not in sync {late}")
        time.sleep(LOOK_SECONDS)
    return False


def _behind(topics: Iterable[TopicInfo], seen: dict[TopicPartition, frozenset[int]]) -> list[str]:
    """Partitions with a replica that was `seen` in sync and is not now; more that are in sync are added to these.

    Partitions and replicas that are gone, to another broker maybe, do not matter.
    """
    behind = []
    for topic in topics:
        for partition in topic.partitions:
            place = TopicPartition(topic.name, partition.partition)
            now = frozenset(() if partition.leader is None else partition.isr)
            wanted = (seen.get(place, NOBODY) & frozenset(partition.replicas)) | now
            if wanted != now:
                behind.append(str(place))
            seen[place] = wanted
    return behind


def _missing(topics: Iterable[TopicInfo], brokers: Collection[int]) -> list[str]:
    """Partitions that one of these brokers has a replica of which is not in sync, and has a leader to be so with.

    Without one they wait for a replica that was in sync: for one of these brokers, or for one that is away.
    """
    return [
        str(TopicPartition(topic.name, partition.partition))
        for topic in topics
        for partition in topic.partitions
        if partition.leader is not None or any(broker in partition.isr for broker in brokers)
        if any(broker in partition.replicas and broker not in partition.isr for broker in brokers)
    ]
