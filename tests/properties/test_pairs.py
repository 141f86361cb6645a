"""Batches of keys and values, packed by hand, are those that the general way of building batches makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.pairs import build_batch_of_pairs
from barnabas.protocol.records.records import Record

DATA = st.binary(max_size=80) | st.integers(0, 9000).map(bytes)
PAIRS = st.lists(st.tuples(DATA, st.none() | DATA), min_size=1, max_size=5)


def built(
    pairs: list[tuple[bytes, bytes | None]], timestamp: int, codec: int, producer: tuple[int, int] | None
) -> bytes:
    return build_batch(
        [Record(number, 0, key, value) for number, (key, value) in enumerate(pairs)],
        base_timestamp=timestamp,
        codec=codec,
        producer_id=-1 if producer is None else producer[0],
        producer_epoch=-1 if producer is None else producer[1],
        base_sequence=-1 if producer is None else 0,
        transactional=producer is not None,
    )


@given(
    pairs=PAIRS,
    timestamp=st.integers(0, 2**62),
    codec=st.sampled_from([0, 2, 4]),
    producer=st.none() | st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1)),
)
def test_batches_of_pairs_are_built_as_any_other(
    pairs: list[tuple[bytes, bytes | None]], timestamp: int, codec: int, producer: tuple[int, int] | None
) -> None:
    assert build_batch_of_pairs(pairs, timestamp, codec, producer) == built(pairs, timestamp, codec, producer)


@pytest.mark.parametrize("count", [510, 511, 512, 513, 9000])
def test_so_are_batches_of_many(count: int) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"key", b"value")] * count
    assert build_batch_of_pairs(pairs, 5) == built(pairs, 5, 0, None)
