"""Ranges that are cut for tasks are the same offsets, and a batch with a limit takes some of every partition."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.spark.read.offsets import OffsetRange, between, from_text, limit_ends, to_text
from barnabas.pipelines.spark.read.options import batch_options
from barnabas.pipelines.spark.read.tasks import RangeTask, tasks

if TYPE_CHECKING:
    from barnabas.pipelines.spark.read.offsets import Offsets

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 20))
offsets = st.dictionaries(partitions, st.integers(0, 300), max_size=6)
counts = st.none() | st.integers(1, 40)


@given(start=offsets, end=offsets, least=counts, most=counts)
def test_tasks_have_all_offsets_once_and_are_as_many_and_as_small_as_asked(
    start: Offsets, end: Offsets, least: int | None, most: int | None
) -> None:
    given = {"minPartitions": least, "maxRecordsPerPartition": most}
    asked = {name: str(number) for name, number in given.items() if number is not None}
    options = batch_options({"kafka.bootstrap.servers": "any", "subscribe": "a,b"} | asked)
    whole = between(start, end)
    made = [task for task in tasks(whole, options) if isinstance(task, RangeTask)]
    found = [piece for task in made for piece in task.ranges]
    joined: list[OffsetRange] = []
    for piece in found:
        goes_on = joined and joined[-1].place == piece.place and joined[-1].end == piece.start
        joined.append(OffsetRange(*piece.place, joined.pop().start if goes_on else piece.start, piece.end))
    assert joined == whole
    assert all(piece.size > 0 for piece in found)
    assert all(sum(piece.size for piece in task.ranges) <= (most or 10**9) for task in made)
    assert len(made) >= min(least or 0, sum(each.size for each in whole))


@given(start=offsets, end=offsets, limit=st.integers(1, 500))
def test_batches_with_a_limit_come_to_the_end_and_starve_nobody(start: Offsets, end: Offsets, limit: int) -> None:
    reached: list[Offsets] = [start]
    while (stop := limit_ends(reached[-1], end, limit)) != reached[-1]:
        reached.append(stop)
    for begin, after in pairwise(reached):
        ranges = between(begin, after)
        assert {each.place for each in ranges} == {each.place for each in between(begin, end)}
        assert sum(each.size for each in ranges) <= limit + len(ranges)
    assert reached[-1] == end


@given(offsets)
def test_equal_offsets_have_equal_text(found: Offsets) -> None:
    assert from_text(to_text(found)) == found
    assert to_text(dict(sorted(found.items(), reverse=True))) == to_text(found)
