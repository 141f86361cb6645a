"""Every record becomes one row or one dead letter, whatever its bytes are, and whatever its neighbours are."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.pipelines.decode.contract import DEAD_SCHEMA
from tests.support.decoding import DECODERS, batch

SOME_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcAB_"), inner, max_size=3),
    max_leaves=6,
)
VALUES = st.lists(
    st.none() | st.binary(max_size=20) | SOME_JSON.map(lambda value: json.dumps(value).encode()), max_size=12
)


@pytest.mark.parametrize("name", DECODERS)
@given(values=VALUES)
@settings(max_examples=60)
def test_each_record_is_one_row_or_one_dead_letter(name: str, values: list[bytes | None]) -> None:
    decoder = pickle.loads(pickle.dumps(DECODERS[name]))
    found = decoder.decode(batch(values))
    assert found.dead.schema == DEAD_SCHEMA
    assert found.rows.schema == decoder.schema
    places = found.rows.column("_offset").to_pylist() + found.dead.column("offset").to_pylist()
    assert sorted(places) == list(range(100, 100 + len(values)))
    for letter in found.dead.to_pylist():
        assert letter["value"] == values[letter["offset"] - 100]
        assert letter["reason"]
