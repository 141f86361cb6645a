"""A follower's session with partitions at rest, as others see it than the follower's fetches."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.machines.fetch_session import FetchSessionCache, ReplicaSession
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.machines.fetch_session import FetchContext, SessionPartition
    from barnabas.machines.resting import WaitingFetch

NUMBERS = range(3)


class Result(NamedTuple):
    """Nothing to tell of a partition."""

    partition: SessionPartition
    error: int = 0
    size: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    preferred_read_replica: int = -1
    diverging_epoch: object | None = None


class Led:
    """A partition on its leader."""

    def __init__(self, session: ReplicaSession, partition: SessionPartition) -> None:
        self._session = session
        self._partition = partition
        session.put_to_rest(partition, self)

    def stir(self, replica: int) -> None:
        """Have the session look here again."""
        self._session.stirred(self._partition)

    def add_watcher(self, watcher: WaitingFetch, *, follower: bool = False) -> None:
        """No fetch waits."""

    def remove_watcher(self, watcher: WaitingFetch) -> None:
        """No fetch waits."""


def begin(cache: FetchSessionCache, session_id: int, epoch: int, *, follower: bool = True) -> FetchContext:
    partitions = [] if epoch else [("t", number, -1, 0, -1, -1, 1) for number in NUMBERS]
    return cache.begin(session_id, epoch, partitions, (), use_ids=False, follower=follower, now_ms=0)


def numbers(context: FetchContext) -> list[int]:
    return [each.partition for each in context.partitions]


@pytest.fixture
def cache() -> FetchSessionCache:
    """With session 1 of broker 7, in which partitions 0 and 2 are at rest; its next epoch is 2."""
    ids = count(1)
    cache = FetchSessionCache(slots=10, eviction_ms=1000, new_id=lambda: next(ids))
    opened = begin(cache, 0, 0)
    opened.finish([Result(each) for each in opened.partitions], 0)
    context = begin(cache, 1, 1)
    context.arrive(7, 5, 0, 0.0)
    session = context.resting_session
    assert session is not None
    for partition in context.partitions[::2]:
        Led(session, partition)
    return cache


def test_a_fetch_has_what_is_not_at_rest_and_never_nothing(cache: FetchSessionCache) -> None:
    context = begin(cache, 1, 2)
    context.arrive(7, 5, 0, 0.0)
    assert (numbers(context), context.is_empty) == ([1], False)


def test_what_is_at_rest_is_a_part_of_the_session(cache: FetchSessionCache) -> None:
    assert cache.partition_count == 3
    assert {each.partition for each in cache.partitions_of(1)} == {0, 1, 2}


def test_all_can_be_refused(cache: FetchSessionCache) -> None:
    context = begin(cache, 1, 2)
    context.look_at_all()
    answer = context.finish([Result(each, error=6) for each in context.partitions], 0)
    assert sorted(result.partition.partition for result in answer.results) == [0, 1, 2]


def test_one_who_is_no_follower_is_told_of_everything_and_puts_nothing_to_rest(cache: FetchSessionCache) -> None:
    context = begin(cache, 1, 2, follower=False)
    assert sorted(numbers(context)) == [0, 1, 2]
    assert context.resting_session is None


def test_in_a_session_that_is_gone_nothing_is_at_rest_or_comes_to_rest(cache: FetchSessionCache) -> None:
    waiting = begin(cache, 1, 2)
    begin(cache, 1, 0)
    waiting.look_again(0)
    assert sorted(numbers(waiting)) == [0, 1, 2]
    assert waiting.resting_session is None


def test_a_fetch_whose_session_has_gone_on_looks_at_nothing(cache: FetchSessionCache) -> None:
    waiting = begin(cache, 1, 2)
    begin(cache, 1, 3)
    waiting.look_again(0)
    assert (numbers(waiting), waiting.resting_session) == ([], None)
    assert waiting.finish([], 0).error is ErrorCode.invalid_fetch_session_epoch


def test_another_registration_has_fetched_nothing_yet(cache: FetchSessionCache) -> None:
    begin(cache, 1, 2).arrive(7, 5, 0, 0.0)
    context = begin(cache, 1, 3)
    context.arrive(7, 6, 0, 0.0)
    assert sorted(numbers(context)) == [0, 1, 2]
