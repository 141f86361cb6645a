"""Fetch sessions, rule by rule, as a client and the broker's fetch handler see them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.machines.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchContext,
    FetchSessionCache,
    SessionPartition,
    next_epoch,
)
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDERS = UUID(int=7).bytes
LATER = UUID(int=8).bytes
EVICTION_MS = 120_000


@dataclass(slots=True)
class Result:
    partition: SessionPartition
    error: int = 0
    size: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    preferred_read_replica: int = -1
    diverging_epoch: object | None = None


class Client:
    """A client with a session, and the broker that answers it."""

    def __init__(self, cache: FetchSessionCache, *, use_ids: bool = False, follower: bool = False) -> None:
        self.cache = cache
        self.use_ids = use_ids
        self.follower = follower
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        self.now_ms = 0

    def begin(
        self,
        topics: dict[bytes | str, list[int]] | None = None,
        forget: dict[bytes | str, list[int]] | None = None,
        *,
        offset: int = 0,
    ) -> FetchContext:
        return self.cache.begin(
            self.session_id,
            self.epoch,
            [wanted(topic, p, offset) for topic, numbers in (topics or {}).items() for p in numbers],
            [(topic, p) for topic, numbers in (forget or {}).items() for p in numbers],
            use_ids=self.use_ids,
            follower=self.follower,
            now_ms=self.now_ms,
        )

    def finish(self, context: FetchContext, results: Sequence[Result] | None = None) -> list[str]:
        if results is None:
            results = [Result(part) for part in context.partitions]
        answer = context.finish(results, self.now_ms)
        assert answer.error is ErrorCode.none
        self.session_id = answer.session_id
        self.epoch = next_epoch(self.epoch) if answer.session_id else INITIAL_EPOCH
        return [names(result.partition) for result in answer.results]

    def fetch(
        self,
        topics: dict[bytes | str, list[int]] | None = None,
        forget: dict[bytes | str, list[int]] | None = None,
        *,
        offset: int = 0,
    ) -> list[str]:
        return self.finish(self.begin(topics, forget, offset=offset))


def wanted(topic: bytes | str, partition: int, offset: int = 0) -> tuple[bytes | str, int, int, int, int, int, int]:
    return (topic, partition, -1, offset, -1, -1, 1000)


def names(partition: SessionPartition) -> str:
    topic = partition.topic if isinstance(partition.topic, str) else partition.topic.hex().lstrip("0")
    return f"{topic}-{partition.partition}"


def listed(context: FetchContext) -> list[str]:
    return [names(partition) for partition in context.partitions]


def make_cache(slots: int = 1000) -> FetchSessionCache:
    ids = count(1)
    return FetchSessionCache(slots=slots, eviction_ms=EVICTION_MS, new_id=lambda: next(ids))


@pytest.fixture
def cache() -> FetchSessionCache:
    return make_cache()


def refused(context: FetchContext, error: ErrorCode) -> None:
    assert context.error is error
    assert not context.partitions
    results: list[Result] = []
    answer = context.finish(results, 0)
    assert (answer.session_id, answer.error, list(answer.results)) == (NO_SESSION, error, [])


class TestContexts:
    def test_a_full_fetch_tells_everything_and_opens_a_session(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        assert client.fetch({"a": [0, 1], "b": [0]}) == ["a-0", "a-1", "b-0"]
        assert client.session_id != NO_SESSION
        assert (len(cache), cache.partition_count) == (1, 3)

    @pytest.mark.parametrize("follower", [True, False])
    def test_a_follower_that_names_a_partition_where_it_was_is_told_again(
        self, cache: FetchSessionCache, follower: bool
    ) -> None:
        """It may have dropped what it was told. A consumer gets what Kafka would send it."""
        client = Client(cache, follower=follower)
        client.fetch({"a": [0, 1]})
        assert client.fetch() == []
        assert client.fetch({"a": [1]}) == (["a-1"] if follower else [])
        assert client.fetch({"a": [0]}, offset=5) == []

    def test_the_final_epoch_opens_no_session(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.epoch = FINAL_EPOCH
        assert client.fetch({"a": [0]}) == ["a-0"]
        assert (client.session_id, len(cache)) == (NO_SESSION, 0)

    @pytest.mark.parametrize(("epoch", "left"), [(INITIAL_EPOCH, 1), (FINAL_EPOCH, 0)])
    def test_a_full_fetch_closes_the_session_it_names(self, cache: FetchSessionCache, epoch: int, left: int) -> None:
        client = Client(cache)
        client.fetch({"a": [0]})
        old = client.session_id
        client.epoch = epoch
        client.fetch({"a": [0]})
        assert len(cache) == left
        client.session_id, client.epoch = old, 1
        refused(client.begin(), ErrorCode.fetch_session_id_not_found)

    def test_a_partition_named_twice_is_fetched_once_as_named_last(self, cache: FetchSessionCache) -> None:
        context = cache.begin(
            0, 0, [wanted("a", 0, 5), wanted("a", 1), wanted("a", 0, 9)], [], use_ids=False, follower=False,
            now_ms=0,
        )  # fmt: skip
        assert [(names(part), part.fetch_offset) for part in context.partitions] == [("a-0", 9), ("a-1", 0)]

    def test_positions_are_remembered_until_the_client_moves(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0, 1]}, offset=10)
        context = client.begin({"a": [1]}, offset=20)
        assert [part.fetch_offset for part in context.partitions] == [10, 20]

    def test_all_that_a_request_says_is_kept(self, cache: FetchSessionCache) -> None:
        context = cache.begin(0, 0, [("a", 3, 4, 5, 6, 7, 8)], [], use_ids=False, follower=True, now_ms=0)
        (part,) = context.partitions
        assert (part.topic, part.partition, part.current_leader_epoch, part.fetch_offset) == ("a", 3, 4, 5)
        assert (part.last_fetched_epoch, part.log_start_offset, part.max_bytes) == (6, 7, 8)

    def test_partitions_are_added_and_forgotten(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0, 1]})
        assert client.fetch({"b": [0]}, {"a": [0], "unheard": [3]}) == ["b-0"]
        assert listed(client.begin()) == ["a-1", "b-0"]
        assert cache.partition_count == 2

    def test_a_session_without_partitions_is_closed(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0]})
        assert client.fetch({"b": [0]}, {"a": [0], "b": [0]}) == ["b-0"]
        assert (client.session_id, len(cache)) == (NO_SESSION, 0)


class TestEpochs:
    def test_an_unknown_session(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.session_id, client.epoch = 99, 1
        refused(client.begin({"a": [0]}), ErrorCode.fetch_session_id_not_found)

    @pytest.mark.parametrize("epoch", [2, 3, -2])
    def test_a_wrong_epoch_changes_nothing(self, cache: FetchSessionCache, epoch: int) -> None:
        client = Client(cache)
        client.fetch({"a": [0]})
        client.epoch = epoch
        refused(client.begin({"b": [0]}), ErrorCode.invalid_fetch_session_epoch)
        client.epoch = 1
        assert listed(client.begin()) == ["a-0"]

    def test_epochs_wrap_to_one(self) -> None:
        assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 2, 2**31 - 1)] == [1, 2, 2**31 - 1, 1]

    def test_a_parked_fetch_whose_session_went_on_is_refused(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0, 1]})
        parked = client.begin()
        before = listed(parked)
        client.epoch += 1
        client.fetch({"b": [0]}, {"a": [0]})
        assert listed(parked) == before
        answer = parked.finish([Result(part, size=10, high_watermark=5) for part in parked.partitions], 0)
        assert (answer.session_id, answer.error) == (client.session_id, ErrorCode.invalid_fetch_session_epoch)
        assert not answer.results
        assert [part.sent_high_watermark for part in client.begin().partitions] == [0, 0]

    def test_a_fetch_outlives_the_eviction_of_its_session(self) -> None:
        client = Client(cache := make_cache(slots=1))
        client.fetch({"a": [0]})
        parked = client.begin()
        other = Client(cache, follower=True)
        other.fetch({"a": [0]})
        assert other.session_id != NO_SESSION
        assert client.finish(parked, [Result(parked.partitions[0], size=1)]) == ["a-0"]
        refused(client.begin(), ErrorCode.fetch_session_id_not_found)


class TestWhatIsTold:
    def test_nothing_when_nothing_changed(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0, 1]})
        assert client.fetch() == []
        assert client.fetch({"a": [0, 1]}, offset=3) == []

    @pytest.mark.parametrize(
        ("change", "once"),
        [
            ({"size": 1}, False),
            ({"high_watermark": 1}, True),
            ({"log_start_offset": 1}, True),
            ({"error": ErrorCode.not_leader_or_follower, "high_watermark": -1, "log_start_offset": -1}, False),
            ({"preferred_read_replica": 2}, False),
            ({"diverging_epoch": (3, 7)}, False),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_a_change_is_told(self, cache: FetchSessionCache, change: dict[str, int], once: bool) -> None:
        client = Client(cache)
        client.fetch({"a": [0, 1]})
        for expected in (["a-1"], [] if once else ["a-1"]):
            context = client.begin()
            by_number = sorted(context.partitions, key=lambda part: part.partition)
            results = [Result(by_number[0]), Result(by_number[1])]
            for name, value in change.items():
                setattr(results[1], name, value)
            assert client.finish(context, results) == expected

    def test_the_end_of_an_error_is_told(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0]})
        context = client.begin()
        client.finish(context, [Result(context.partitions[0], error=ErrorCode.kafka_storage_error)])
        assert client.fetch() == ["a-0"]
        assert client.fetch() == []

    def test_looking_again_while_parked_changes_nothing(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0, 1]})
        context = client.begin()
        assert listed(context) == listed(context) == ["a-0", "a-1"]
        assert client.finish(context) == []

    def test_partitions_with_records_go_to_the_end(self, cache: FetchSessionCache) -> None:
        client = Client(cache)
        client.fetch({"a": [0, 1, 2]})
        context = client.begin()
        results = [Result(part, size=100 if part.partition < 2 else 0) for part in context.partitions]
        assert client.finish(context, results) == ["a-0", "a-1"]
        context = client.begin()
        assert listed(context) == ["a-2", "a-0", "a-1"]
        client.finish(context, [Result(part, high_watermark=1) for part in context.partitions])
        assert listed(client.begin()) == ["a-2", "a-0", "a-1"]


class TestTopicIds:
    def test_an_id_stays_what_the_client_called_it(self, cache: FetchSessionCache) -> None:
        client = Client(cache, use_ids=True)
        context = client.begin({ORDERS: [0]})
        assert [part.topic for part in context.partitions] == [ORDERS]
        client.finish(context)
        assert client.fetch({ORDERS: [1], LATER: [0]}) == ["7-1", "8-0"]
        assert listed(client.begin()) == ["7-0", "7-1", "8-0"]

    def test_ids_are_forgotten_by_id(self, cache: FetchSessionCache) -> None:
        client = Client(cache, use_ids=True)
        client.fetch({ORDERS: [0, 1], LATER: [0]})
        assert listed(client.begin(forget={ORDERS: [1], LATER: [0]})) == ["7-0"]

    @pytest.mark.parametrize("use_ids", [True, False])
    def test_a_session_keeps_to_ids_or_to_names(self, cache: FetchSessionCache, use_ids: bool) -> None:
        client = Client(cache, use_ids=use_ids)
        client.fetch({ORDERS if use_ids else "orders": [0]})
        client.use_ids = not use_ids
        refused(client.begin(), ErrorCode.fetch_session_topic_id_error)
        client.use_ids = use_ids
        assert listed(client.begin()) == ["7-0" if use_ids else "orders-0"]


class TestEviction:
    def test_a_full_cache_of_equals_opens_no_session(self) -> None:
        cache = make_cache(slots=2)
        clients = [Client(cache) for _ in range(3)]
        for client in clients:
            client.fetch({"a": [0]})
        assert [client.session_id != NO_SESSION for client in clients] == [True, True, False]

    def test_no_slots_no_sessions(self) -> None:
        client = Client(make_cache(slots=0))
        assert client.fetch({"a": [0]}) == ["a-0"]
        assert client.session_id == NO_SESSION

    def test_ids_in_use_are_not_given_again(self) -> None:
        numbers = iter([0, 5, 5, 0, 6])
        cache = FetchSessionCache(slots=2, eviction_ms=1, new_id=lambda: next(numbers))
        clients = [Client(cache), Client(cache)]
        for client in clients:
            client.fetch({"a": [0]})
        assert [client.session_id for client in clients] == [5, 6]

    def test_the_longest_unused_session_goes_when_it_is_stale(self) -> None:
        cache = make_cache(slots=2)
        first, second, new = Client(cache), Client(cache), Client(cache)
        first.fetch({"a": [0, 1, 2]})
        second.fetch({"a": [0, 1, 2]})
        first.now_ms = 10
        first.fetch()
        new.now_ms = EVICTION_MS
        new.fetch({"a": [0]})
        assert new.session_id == NO_SESSION
        new.now_ms += 1
        new.fetch({"a": [0]})
        assert new.session_id != NO_SESSION
        refused(second.begin(), ErrorCode.fetch_session_id_not_found)
        assert first.begin().error is ErrorCode.none
        assert cache.evictions == 1

    def test_a_follower_takes_a_consumers_place_at_once_but_not_a_followers(self) -> None:
        cache = make_cache(slots=2)
        follower, consumer, new = Client(cache, follower=True), Client(cache), Client(cache, follower=True)
        follower.fetch({"a": [0]})
        consumer.fetch({"a": list(range(50))})
        new.fetch({"a": [0]})
        assert new.session_id != NO_SESSION
        refused(consumer.begin(), ErrorCode.fetch_session_id_not_found)
        another = Client(cache, follower=True)
        another.fetch({"a": [0, 1]})
        assert another.session_id == NO_SESSION

    def test_a_larger_session_takes_the_place_of_the_smallest_that_had_its_time(self) -> None:
        cache = make_cache(slots=3)
        small, smaller, young = Client(cache), Client(cache), Client(cache)
        small.fetch({"a": [0, 1, 2]})
        smaller.fetch({"a": [0, 1]})
        young.now_ms = EVICTION_MS
        young.fetch({"a": [0]})
        for client in (small, smaller):
            client.now_ms = EVICTION_MS + 1
            client.fetch()
        new = Client(cache)
        new.now_ms = EVICTION_MS + 1
        new.fetch({"a": [0, 1]})
        assert new.session_id == NO_SESSION
        new.fetch({"a": [0, 1, 2]})
        assert new.session_id != NO_SESSION
        refused(smaller.begin(), ErrorCode.fetch_session_id_not_found)

    def test_growth_protects_a_session(self) -> None:
        cache = make_cache(slots=1)
        grown, new = Client(cache), Client(cache)
        grown.fetch({"a": [0]})
        grown.now_ms = new.now_ms = EVICTION_MS + 1
        grown.fetch({"a": [1, 2]})
        new.fetch({"a": [0, 1, 2]})
        assert new.session_id == NO_SESSION
        grown.fetch(forget={"a": [1, 2]})
        new.fetch({"a": [0, 1, 2]})
        assert new.session_id != NO_SESSION
