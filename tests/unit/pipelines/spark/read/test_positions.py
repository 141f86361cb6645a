"""Offsets that positions come to, in a cluster of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.errors import InvalidOption, NoPosition, OffsetOutOfRange
from barnabas.pipelines.spark.read.positions import AtMoment, AtMoments, AtOffsets, Edge, offsets_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Numbers:
    """Both partitions begin at 10 and end at 20; the record at offset n is n milliseconds old."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 20)

    def at(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {partition: max(10, when) if when < 20 else None for partition, when in moments.items()}


def test_ends() -> None:
    assert offsets_at(Edge.EARLIEST, [A, B], Numbers()) == {A: 10, B: 10}
    assert offsets_at(Edge.LATEST, [A], Numbers()) == {A: 20}


def test_offsets_with_words_for_the_ends() -> None:
    assert offsets_at(AtOffsets({A: -2, B: -1}), [A, B], Numbers()) == {A: 10, B: 20}
    assert offsets_at(AtOffsets({A: 20, B: 12}), [A, B], Numbers()) == {A: 20, B: 12}


def test_an_offset_before_the_beginning_is_left_to_the_reader_who_knows_about_loss() -> None:
    assert offsets_at(AtOffsets({A: 3}), [A], Numbers()) == {A: 3}


def test_an_offset_that_the_partition_never_had_is_refused() -> None:
    with pytest.raises(OffsetOutOfRange, match=r"offset 21 of t-0 .* ends at 20"):
        offsets_at(AtOffsets({A: 21}), [A], Numbers())


def test_a_forgotten_partition_is_refused() -> None:
    with pytest.raises(NoPosition, match="t-1 has none"):
        offsets_at(AtOffsets({A: 10}), [A, B], Numbers())
    with pytest.raises(NoPosition, match="t-1 has none"):
        offsets_at(AtMoments({A: 10}), [A, B], Numbers())


def test_a_partition_that_is_not_read_is_refused() -> None:
    with pytest.raises(InvalidOption, match="t-1, which is not read"):
        offsets_at(AtOffsets({A: 10, B: 10}), [A], Numbers())


def test_moments() -> None:
    assert offsets_at(AtMoment(15), [A, B], Numbers()) == {A: 15, B: 15}
    assert offsets_at(AtMoments({A: 5, B: 99}), [A, B], Numbers()) == {A: 10, B: 20}


def test_a_moment_in_an_open_transaction_comes_to_the_end_of_what_is_committed() -> None:
    class Open(Numbers):
        def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
            return dict.fromkeys(partitions, 14)

    assert offsets_at(AtMoments({A: 12, B: 15}), [A, B], Open(), too_late_is_end=False) == {A: 12, B: 14}


def test_a_moment_that_is_too_late_can_be_an_error() -> None:
    with pytest.raises(OffsetOutOfRange, match="startingOffsetsByTimestampStrategy to latest"):
        offsets_at(AtMoment(99), [A], Numbers(), too_late_is_end=False)
