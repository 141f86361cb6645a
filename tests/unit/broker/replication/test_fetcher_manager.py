"""Fetchers end with what they fetch, and all of them before the logs are closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from barnabas.broker.replication import fetcher
from barnabas.broker.replication.fetcher_manager import MOST_PARTITIONS, FetcherManager
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable


class Fetcher:
    """Has one partition, and takes its time to stop."""

    made: list[Fetcher]
    looks = 0
    """How often somebody asked any of them how many partitions it has."""

    def __init__(self, _leader: int, _channel: object, _context: object, share: Callable[[], float]) -> None:
        self.made.append(self)
        self.share = share
        self.followers: list[object] = []
        self.has_stopped = False

    def __len__(self) -> int:
        Fetcher.looks += 1
        return len(self.followers)

    def add(self, follower: object) -> None:
        """Fetch it."""
        self.followers.append(follower)

    def remove(self, follower: object) -> None:
        """Fetch it no more."""
        self.followers.remove(follower)

    async def stop(self) -> None:
        """Fetch nothing more."""
        await asyncio.sleep(0)
        self.has_stopped = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Fetcher]:
    """The fetchers that were made."""
    Fetcher.made, Fetcher.looks = [], 0
    monkeypatch.setattr(fetcher, "ReplicaFetcher", Fetcher)
    return Fetcher.made


def follower_of(leader_id: int, partition: int = 0) -> Any:
    """A partition to fetch."""
    return Mock(leader_id=leader_id, tp=TopicPartition("orders", partition))


def manager(fetchers: int | Mock = 1) -> FetcherManager:
    """With so many fetchers for each leader, or as many as somebody says when he is asked."""
    context: Any = Mock()
    if isinstance(fetchers, Mock):
        context.settings.number = fetchers
    else:
        context.settings.number.return_value = fetchers
    return FetcherManager(Mock(), Mock(), context)


async def test_a_fetcher_that_was_just_ended_is_stopped_too(made: list[Fetcher]) -> None:
    """Its task was cancelled before it began: the fetcher went on appending to logs that were being closed."""
    fetchers, first, second = manager(), follower_of(2), follower_of(3)
    fetchers.follow(first)
    fetchers.follow(second)
    fetchers.unfollow(first)
    await fetchers.stop()
    assert [each.has_stopped for each in made] == [True, True]


async def test_nothing_is_fetched_after_the_end(made: list[Fetcher]) -> None:
    fetchers = manager()
    await fetchers.stop()
    fetchers.follow(follower_of(2))
    assert made == []


async def test_what_a_fetcher_fetches_is_bounded(made: list[Fetcher]) -> None:
    """One fetcher had all partitions of a leader, and looked at all of them for each record of any."""
    fetchers, followers = manager(), [follower_of(2) for _ in range(2 * MOST_PARTITIONS + 1)]
    for follower in followers:
        fetchers.follow(follower)
    assert [len(each) for each in made] == [MOST_PARTITIONS, MOST_PARTITIONS, 1]
    fetchers.unfollow(followers[0])
    fetchers.follow(follower_of(2))
    assert [len(each) for each in made] == [MOST_PARTITIONS, MOST_PARTITIONS, 1]
    fetchers.follow(follower_of(3))
    assert [len(each) for each in made] == [MOST_PARTITIONS, MOST_PARTITIONS, 1, 1]
    await fetchers.stop()


async def test_full_fetchers_are_not_looked_at_for_each_partition(made: list[Fetcher]) -> None:
    """With 33,000 partitions of a leader each looked at some seventy of them."""
    fetchers, followers = manager(), [follower_of(2) for _ in range(20 * MOST_PARTITIONS)]
    for follower in followers:
        fetchers.follow(follower)
    assert Fetcher.looks < 1.1 * len(followers)
    assert [len(each) for each in made] == [MOST_PARTITIONS] * 20
    for follower in followers[3 * MOST_PARTITIONS : 4 * MOST_PARTITIONS] + followers[:1]:
        fetchers.unfollow(follower)
    for _ in range(MOST_PARTITIONS + 2):
        fetchers.follow(follower_of(2))
    assert [len(each) for each in made if not each.has_stopped] == [MOST_PARTITIONS] * 3 + [0] + [
        MOST_PARTITIONS
    ] * 17 + [1]
    await fetchers.stop()


async def test_the_first_fetcher_with_room_is_taken_also_after_their_number_was_changed(made: list[Fetcher]) -> None:
    """One that had lost a partition was taken for the first."""
    settings = Mock()
    settings.number.return_value = 1
    fetchers, followers = manager(settings.number), [follower_of(2) for _ in range(2 * MOST_PARTITIONS)]
    for follower in followers:
        fetchers.follow(follower)
    settings.number.return_value = 2
    fetchers.follow(follower_of(3))
    fetchers.unfollow(followers[MOST_PARTITIONS])
    fetchers.unfollow(followers[0])
    fetchers.unfollow(followers[1])
    settings.number.return_value = 1
    fetchers.follow(follower_of(3))
    fetchers.unfollow(followers[MOST_PARTITIONS + 1])
    fetchers.follow(follower_of(2))
    assert [len(each) for each in made[:2]] == [MOST_PARTITIONS - 1, MOST_PARTITIONS - 2]
    await fetchers.stop()


async def test_partitions_of_a_topic_are_shared_out_evenly(made: list[Fetcher]) -> None:
    fetchers = manager(4)
    for partition in range(12):
        fetchers.follow(follower_of(2, partition))
    assert [len(each) for each in made] == [3, 3, 3, 3]
    await fetchers.stop()


async def test_fetchers_of_a_leader_share_what_they_may_be_answered_with(made: list[Fetcher]) -> None:
    fetchers, followers = manager(), [follower_of(2) for _ in range(MOST_PARTITIONS + 1)]
    fetchers.follow(followers[0])
    assert made[0].share() == 1.0
    for follower in followers[1:]:
        fetchers.follow(follower)
    assert [each.share() for each in made] == [0.5, 0.5]
    fetchers.unfollow(followers[-1])
    assert (made[0].share(), len(made[1])) == (1.0, 0)
    await fetchers.stop()
    assert [each.has_stopped for each in made] == [True, True]
