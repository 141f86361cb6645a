from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from barnabas.clients.records import ConsumerRecord, RecordMetadata, TopicPartition, as_milliseconds


def record(**changes: object) -> ConsumerRecord[str, str]:
    values: dict[str, object] = {
        "topic": "t", "partition": 1, "offset": 5, "timestamp": 1_500, "timestamp_type": 1, "key": "k", "value": "v",
    }  # fmt: skip
    return ConsumerRecord(**{**values, **changes})  # type: ignore[arg-type]  # values of all kinds by name


def test_times_are_moments_in_utc() -> None:
    assert record().time == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert record(timestamp=-1).time is None
    assert RecordMetadata("t", 0, 0, 0).time == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (1234, 1234),
        (datetime(1970, 1, 2, tzinfo=UTC), 86_400_000),
        (datetime(1970, 1, 2, tzinfo=timezone(timedelta(hours=2))), 79_200_000),
        (datetime(2026, 3, 4, 5, 6, 7, 891_999, tzinfo=UTC), 1_772_600_767_891),
    ],
)
def test_moments_are_milliseconds(when: datetime | int, expected: int) -> None:
    assert as_milliseconds(when) == expected


def test_the_last_header_of_a_name_counts() -> None:
    headers = (("a", b"1"), ("b", None), ("a", b"2"))
    assert record(headers=headers).header("a") == b"2"
    assert record(headers=headers).header("b") is None
    assert record(headers=headers).header("c") is None


def test_a_record_knows_its_partition() -> None:
    assert record().topic_partition == TopicPartition("t", 1)
