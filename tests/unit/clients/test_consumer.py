from __future__ import annotations

import re
from typing import Any

import pytest

from barnabas.clients.consumer import Consumer
from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.reading import _for_librdkafka
from barnabas.model.ids import TopicPartition


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


def test_reading_without_saying_what_is_refused() -> None:
    with Consumer("127.0.0.1:1", log_level=0) as consumer:
        for read in (lambda: consumer.poll(0.1), lambda: next(iter(consumer)), lambda: next(consumer.until_end())):
            with pytest.raises(InvalidClientConfig, match="there is nothing to read: give topics"):
                read()
        consumer.assign([])
        assert consumer.poll(0.01) == []
        assert list(consumer.until_end()) == []
        consumer.unsubscribe()
        with pytest.raises(InvalidClientConfig, match="there is nothing to read"):
            consumer.poll(0.1)


def test_offsets_that_no_partition_has_are_refused() -> None:
    place = TopicPartition("t", 0)
    with Consumer("127.0.0.1:1", log_level=0) as consumer:
        for offset in (-50, 2**63):
            with pytest.raises(InvalidClientConfig, match=f"^offset of t-0: {offset} is not from -2 to"):
                consumer.seek(place, offset)
            with pytest.raises(InvalidClientConfig, match=f"^offset of t-0: {offset} is not from -2 to"):
                consumer.assign({place: offset})
