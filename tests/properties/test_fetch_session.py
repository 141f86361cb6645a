"""A client that builds its picture only from incremental answers sees what the broker has, whatever happens."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.machines.fetch_session import FetchSessionCache, SessionPartition, next_epoch
from barnabas.model.errors import ErrorCode

NUMBERS = range(5)
SLOTS = 3


@dataclass(slots=True)
class Result:
    partition: SessionPartition
    error: int
    size: int
    high_watermark: int
    log_start_offset: int
    preferred_read_replica: int = -1
    diverging_epoch: object | None = None


class Sessions(RuleBasedStateMachine):
    """One client follows partitions that change at will, while others fill the cache."""

    def __init__(self) -> None:
        super().__init__()
        ids = count(1)
        self.cache = FetchSessionCache(slots=SLOTS, eviction_ms=1000, new_id=lambda: next(ids))
        self.now_ms = 0
        self.state = dict.fromkeys(NUMBERS, (0, 0, 0))
        """What the broker has: error, high watermark, log start offset."""
        self.session_id = 0
        self.epoch = 0
        self.positions: dict[int, int] = {}
        self.picture: dict[int, tuple[int, int, int]] = {}
        """What the client knows."""

    @rule(
        number=st.sampled_from(NUMBERS),
        error=st.sampled_from([0, 6]),
        watermark=st.integers(0, 3),
        start=st.integers(0, 2),
    )
    def change(self, number: int, error: int, watermark: int, start: int) -> None:
        self.state[number] = (error, -1, -1) if error else (0, watermark, start)

    @rule(ms=st.integers(0, 1500))
    def wait(self, ms: int) -> None:
        self.now_ms += ms

    @rule(size=st.integers(1, 6), follower=st.booleans())
    def another_client(self, size: int, follower: bool) -> None:
        context = self.cache.begin(
            0, 0, [("b", p, -1, 0, -1, -1, 1) for p in range(size)], (), use_ids=False, follower=follower,
            now_ms=self.now_ms,
        )  # fmt: skip
        context.finish([Result(part, 0, 0, 0, 0) for part in context.partitions], self.now_ms)

    @rule(wanted=st.sets(st.sampled_from(NUMBERS), min_size=1), sizes=st.lists(st.sampled_from([0, 9]), min_size=5))
    def fetch(self, wanted: set[int], sizes: list[int]) -> None:
        new = {number: self.positions.get(number, 0) + 1 for number in wanted}
        forgotten = [number for number in self.positions if number not in wanted]
        context = self.cache.begin(
            self.session_id,
            self.epoch,
            [("a", number, -1, offset, -1, -1, 1) for number, offset in new.items()],
            [("a", number) for number in forgotten] if self.session_id else (),
            use_ids=False,
            follower=False,
            now_ms=self.now_ms,
        )
        if context.error:
            assert context.error is ErrorCode.fetch_session_id_not_found
            self.session_id = self.epoch = 0
            self.positions = {}
            self.picture = {}
            return
        assert {part.partition: part.fetch_offset for part in context.partitions} == new
        results = []
        for part, size in zip(context.partitions, sizes, strict=False):
            error, watermark, start = self.state[part.partition]
            results.append(Result(part, error, 0 if error else size, watermark, start))
        answer = context.finish(results, self.now_ms)
        assert answer.error is ErrorCode.none
        assert [result for result in results if result.size] == [result for result in answer.results if result.size]
        if answer.session_id:
            self.positions = new
            self.epoch = next_epoch(self.epoch) if answer.session_id == self.session_id else 1
        else:
            self.positions = {}
            self.epoch = 0
        self.session_id = answer.session_id
        known = {number: known for number, known in self.picture.items() if number in wanted}
        told = {r.partition.partition: (r.error, r.high_watermark, r.log_start_offset) for r in answer.results}
        self.picture = known | told
        assert self.picture == {number: self.state[number] for number in wanted}

    @precondition(lambda self: self.session_id)
    @rule(wrong=st.integers(2, 5))
    def fetch_out_of_turn(self, wrong: int) -> None:
        context = self.cache.begin(
            self.session_id, self.epoch + wrong, (), (), use_ids=False, follower=False, now_ms=self.now_ms
        )
        assert context.error in (ErrorCode.invalid_fetch_session_epoch, ErrorCode.fetch_session_id_not_found)

    @invariant()
    def slots_are_the_limit(self) -> None:
        assert len(self.cache) <= SLOTS


TestSessions = Sessions.TestCase
