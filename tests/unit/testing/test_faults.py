"""The words of the private socket, and that both of its ends use the same ones."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.faults.intercepted_request import GROUP_FIELDS, NAME_TOPICS
from barnabas.broker.serving.registry import APIS
from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.faults import FaultRule, InvalidFault, api_named, error_named, fault_from
from barnabas.protocol.wire.codec import handled_request_class


def test_a_fault_is_read_from_its_words() -> None:
    words = {"kind": "fail", "api": "Produce", "error": "not_leader_or_follower", "times": 2, "topic": "t"}
    assert fault_from(words) == FaultRule(
        kind="fail", api=ApiKey.PRODUCE, error=ErrorCode.not_leader_or_follower, times=2, topic="t"
    )
    assert fault_from({"kind": "delay", "api": "*", "seconds": 2, "when": "after", "group": None}) == FaultRule(
        kind="delay", api=None, seconds=2.0, when="after"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "unknown kind of fault None"),
        ({"kind": "burn"}, "unknown kind of fault 'burn'"),
        ({"kind": "drop", "when": "never"}, "when is 'never'"),
        ({"kind": "drop", "times": -1}, "times is -1"),
        ({"kind": "drop", "times": "x"}, "times is 'x'"),
        ({"kind": "delay", "seconds": -1}, "seconds is -1"),
        ({"kind": "delay", "seconds": "long"}, "seconds is 'long'"),
        ({"kind": "drop"}, "there is no API None"),
        ({"kind": "drop", "api": "FETCH", "topic": 5}, "topic is 5"),
        ({"kind": "fail", "api": "FETCH"}, "there is no error None"),
    ],
)
def test_words_that_make_no_fault_are_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFault, match=message):
        fault_from(words)


def test_every_api_is_known_by_name() -> None:
    for key in ApiKey:
        assert api_named(key.name) is key
        assert api_named(key.name.title().replace("_", "")) is key


def test_every_error_is_known_by_name_and_number() -> None:
    for code in set(ErrorCode) - {ErrorCode.none}:
        assert error_named(code.name.upper()) is code
        assert error_named(code.value) is code


@pytest.mark.parametrize(
    "api", [api for api in APIS if not api.raw and not api.is_internal], ids=lambda api: api.key.name
)
def test_requests_that_name_topics_or_groups_are_known_to(api: Any) -> None:
    """A request class has the fields that the tables say, and none that they leave out."""
    request = handled_request_class(api.key, api.newest)
    fields = set(request.__dataclass_fields__)  # type: ignore[attr-defined]  # a message
    assert (api.key in NAME_TOPICS) == bool(fields & {"topics", "resources"} or api.key is ApiKey.OFFSET_FETCH)
    group_fields = {"group_id", "groups", "groups_names", "group_ids", "coordinator_keys"}
    assert GROUP_FIELDS.get(api.key) in (fields & group_fields or {None})
