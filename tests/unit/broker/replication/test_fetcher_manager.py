"""Fetchers end with what they fetch, and all of them before the logs are closed."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from barnabas.broker.replication import fetcher
from barnabas.broker.replication.fetcher_manager import FetcherManager


class Fetcher:
    """Has one partition, and takes its time to stop."""

    made: list[Fetcher]

    def __init__(self, *_: object) -> None:
        self.made.append(self)
        self.followers: list[object] = []
        self.has_stopped = False

    def __len__(self) -> int:
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
    Fetcher.made = []
    monkeypatch.setattr(fetcher, "ReplicaFetcher", Fetcher)
    return Fetcher.made


def manager() -> FetcherManager:
    context: Any = Mock()
    context.settings.number.return_value = 1
    return FetcherManager(Mock(), Mock(), context)


async def test_a_fetcher_that_was_just_ended_is_stopped_too(made: list[Fetcher]) -> None:
    """Its task was cancelled before it began: the fetcher went on appending to logs that were being closed."""
    fetchers, first, second = manager(), Mock(leader_id=2), Mock(leader_id=3)
    fetchers.follow(first)
    fetchers.follow(second)
    fetchers.unfollow(first)
    await fetchers.stop()
    assert [each.has_stopped for each in made] == [True, True]


async def test_nothing_is_fetched_after_the_end(made: list[Fetcher]) -> None:
    fetchers = manager()
    await fetchers.stop()
    fetchers.follow(Mock(leader_id=2))
    assert made == []
