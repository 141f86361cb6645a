"""Any message of a kio class, and its bytes."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import Any

from hypothesis import strategies as st
from kio.serial import entity_writer
from kio.static.primitive import Records, i64Timedelta

EXACT_MS = 2**40
"""Durations are exact up to here, 34 years: kio writes them by way of floats."""

st.register_type_strategy(Records, st.binary(max_size=300).map(Records))
st.register_type_strategy(
    i64Timedelta,
    st.integers(-EXACT_MS, EXACT_MS).map(lambda number: i64Timedelta.parse(timedelta(milliseconds=number))),
)


def messages(message_class: type) -> st.SearchStrategy[Any]:
    """Any message of this class."""
    return st.from_type(message_class)


def written(message: Any) -> bytes:
    """A message's bytes, without any header."""
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()
