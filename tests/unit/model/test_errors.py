"""What clients are told of an error."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.model import errors
from barnabas.model.errors import LONGEST_MESSAGE, ErrorCode, InvalidRecord, InvalidTopic


def test_a_message_fits_into_a_response_whatever_a_client_calls_things() -> None:
    name = "\u20ac" * 40_000
    told = str(InvalidTopic(f"topic {name} has a name that is too long"))
    assert told.startswith("topic \u20ac")
    assert len(told) == LONGEST_MESSAGE + 3
    assert len(told.encode()) < 32_767
    assert str(InvalidTopic("short")) == "short"


def test_every_error_is_raised_or_caught_somewhere() -> None:
    source = Path(errors.__file__).parents[1]
    others = [path for path in source.rglob("*.py") if path != Path(errors.__file__)]
    used = {word for path in others for word in re.findall(r"\w+", path.read_text("utf-8"))}
    names = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
    assert [name for name in names if name not in used] == []


def test_an_error_has_the_code_of_its_class() -> None:
    assert InvalidTopic.code is ErrorCode.invalid_topic_exception
    assert InvalidRecord.code is ErrorCode.invalid_record
    assert errors.RecordsRefused.code is ErrorCode.unknown_server_error
