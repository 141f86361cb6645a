from __future__ import annotations

import re
from typing import Any

import pytest

from barnabas.clients.consumer import Consumer
from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.reading import _for_librdkafka


def test_patterns_are_written_as_brokers_read_them() -> None:
    assert _for_librdkafka(re.compile(r"a-\d+|b")) == "^(a-[0-9]+|b)$"
    assert _for_librdkafka("plain.name") == "plain.name"
    assert _for_librdkafka(r"^begins-\d") == "^(^begins-[0-9]).*$"
    with pytest.raises(InvalidClientConfig, match="is not a regular expression"):
        _for_librdkafka("^(")


@pytest.mark.parametrize("topic", ["^orders-[[:digit:]]+", "^[^[:alpha:]]", "^[a[:digit:]]$"])
def test_classes_that_python_does_not_know_are_refused(topic: str) -> None:
    with pytest.raises(InvalidClientConfig, match=r"write .d, or"):
        _for_librdkafka(topic)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_poll_records": 0}, "at least 1"),
        ({"assignor": "best"}, "partition.assignment.strategy"),
        ({"auto_offset_reset": "middle"}, "auto.offset.reset"),
    ],
)
def test_values_that_mean_nothing_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidClientConfig, match=text):
        Consumer("127.0.0.1:1", group_id="g", **settings)


def test_no_topics_at_all_are_refused() -> None:
    with pytest.raises(InvalidClientConfig, match="no topics are given"):
        Consumer("127.0.0.1:1", [])
