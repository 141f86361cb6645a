"""What clients are told of an error."""

from __future__ import annotations

from barnabas.model.errors import LONGEST_MESSAGE, InvalidTopic


def test_a_message_fits_into_a_response_whatever_a_client_calls_things() -> None:
    name = "\u20ac" * 40_000
    told = str(InvalidTopic(f"topic {name} has a name that is too long"))
    assert told.startswith("topic \u20ac")
    assert len(told) == LONGEST_MESSAGE + 3
    assert len(told.encode()) < 32_767
    assert str(InvalidTopic("short")) == "short"
