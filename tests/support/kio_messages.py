"""Hypothesis strategies for kio's message classes."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from kio.static.primitive import Records

st.register_type_strategy(Records, st.binary(max_size=300).map(Records))


def messages(message_class: type) -> st.SearchStrategy[Any]:
    """Any message of this class."""
    return st.from_type(message_class)
