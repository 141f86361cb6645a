"""A topic's configuration: overrides over the broker's values over defaults."""

from __future__ import annotations

import pytest

from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.topic import broker_default, check_overrides, resolve
from barnabas.model.errors import InvalidConfig
from barnabas.model.log_config import LogConfig

DEFAULTS = BrokerConfig.load({})


def test_nothing_set_is_the_default() -> None:
    assert resolve({}, DEFAULTS) == LogConfig()


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1", "log.retention.ms": "1"}, 1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
        ({"log.retention.ms": "-5", "log.retention.hours": "1"}, -1),
    ],
)
def test_the_strongest_time_holds(properties: dict[str, str], retention_ms: int) -> None:
    assert resolve({}, BrokerConfig.load(properties)).retention_ms == retention_ms


def test_other_times_have_two_units_too() -> None:
    broker = BrokerConfig.load(
        {"log.roll.hours": "2", "log.roll.jitter.hours": "1", "log.flush.scheduler.interval.ms": "7"}
    )
    config = resolve({}, broker)
    assert (config.segment_ms, config.segment_jitter_ms, config.flush_ms) == (7_200_000, 3_600_000, 7)
    broker = BrokerConfig.load({"log.flush.interval.ms": "5", "log.flush.scheduler.interval.ms": "7"})
    assert resolve({}, broker).flush_ms == 5


def test_an_override_is_stronger_than_the_broker() -> None:
    broker = BrokerConfig.load({"message.max.bytes": "100", "log.cleanup.policy": "compact,delete"})
    config = resolve({"max.message.bytes": "200", "min.cleanable.dirty.ratio": "0.25", "preallocate": "true"}, broker)
    assert config.max_message_bytes == 200
    assert config.cleanup_policy == {"compact", "delete"}
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.preallocate is True
    assert resolve({"cleanup.policy": ""}, broker).cleanup_policy == frozenset()


def test_small_segments_are_for_tests() -> None:
    assert resolve({"internal.segment.bytes": "1000"}, DEFAULTS).segment_bytes == 1000


def test_values_of_an_older_kafka_still_load() -> None:
    config = resolve({"segment.bytes": "1024", "message.format.version": "2.8"}, DEFAULTS)
    assert config.segment_bytes == 1024


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"message.format.version": "3.0"}, "Unknown topic config name: message.format.version"),
        ({"retention.ms": "x"}, "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            {"segment.bytes": "1024"},
            "Invalid value 1024 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_overrides_are_refused_with_kafkas_words(overrides: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_overrides(overrides, DEFAULTS)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"retention.ms": "1000", "cleanup.policy": "compact"},
        {"retention.bytes": "-5"},
        {"internal.segment.bytes": "1024"},
        {"remote.storage.enable": "false", "local.retention.ms": "999999999999"},
        {"leader.replication.throttled.replicas": "*"},
    ],
)
def test_overrides_that_kafka_takes_are_taken(overrides: dict[str, str]) -> None:
    check_overrides(overrides, DEFAULTS)


def test_a_key_without_broker_key_has_its_own_default() -> None:
    assert broker_default("leader.replication.throttled.replicas", DEFAULTS) == ()
