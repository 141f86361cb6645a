"""Text to values and back, with Kafka's words; what a Kafka 4.3.0 said stands here word for word."""

from __future__ import annotations

import math

import pytest

from barnabas.model.config.definition import OneOf, Type, Value, write_value
from barnabas.model.config.keys.all_keys import BROKER_KEYS, TOPIC_KEYS
from barnabas.model.errors import InvalidConfig


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num.partitions", " 5 ", 5),
        ("num.partitions", "+7", 7),
        ("log.retention.ms", "-2", -2),
        ("auto.create.topics.enable", "TRUE", True),
        ("auto.create.topics.enable", " false", False),
        ("log.cleaner.min.cleanable.ratio", "1d", 1.0),
        ("log.cleaner.min.cleanable.ratio", ".5", 0.5),
        ("log.cleaner.io.max.bytes.per.second", "1e3", 1000.0),
        ("log.cleaner.io.max.bytes.per.second", "-Infinity", -math.inf),
        ("compression.type", " producer", "producer"),
        ("compression.gzip.level", "-1", -1),
        ("log.cleanup.policy", "", ()),
        ("log.cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("group.consumer.migration.policy", "Disabled", "Disabled"),
    ],
)
def test_text_is_read(name: str, text: str, value: Value) -> None:
    assert BROKER_KEYS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("num.partitions", "", "Invalid value  for configuration num.partitions: Not a number of type INT"),
        ("num.partitions", "1_0", "Invalid value 1_0 for configuration num.partitions: Not a number of type INT"),
        (
            "num.partitions",
            "2147483648",
            "Invalid value 2147483648 for configuration num.partitions: Not a number of type INT",
        ),
        ("num.partitions", "0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        (
            "log.retention.ms",
            "9223372036854775808",
            "Invalid value 9223372036854775808 for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            "compression.zstd.level",
            "99",
            "Invalid value 99 for configuration compression.zstd.level: Value must be no more than 22",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "log.cleaner.min.cleanable.ratio",
            "1e3",
            "Invalid value 1000.0 for configuration log.cleaner.min.cleanable.ratio: Value must be no more than 1",
        ),
        (
            "auto.create.topics.enable",
            "yes",
            "Invalid value yes for configuration auto.create.topics.enable: Expected value to be either true or false",
        ),
        (
            "compression.type",
            "ZSTD",
            "Invalid value ZSTD for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "group.consumer.migration.policy",
            "x",
            "Invalid value x for configuration group.consumer.migration.policy: "
            "String must be one of (case insensitive): DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL",
        ),
        (
            "log.cleanup.policy",
            "compact,x",
            "Invalid value x for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        ("log.cleanup.policy", "delete,", "Configuration 'log.cleanup.policy' values must not be empty."),
        ("log.cleanup.policy", "delete,delete", "Configuration 'log.cleanup.policy' values must not be duplicated."),
        (
            "listeners",
            "",
            "Configuration 'listeners' must not be empty. Valid values include: any non-empty value",
        ),
        (
            "remote.log.storage.manager.class.name",
            "",
            "Invalid value  for configuration remote.log.storage.manager.class.name: String must be non-empty",
        ),
    ],
)
def test_what_a_key_does_not_take_is_refused_with_kafkas_words(name: str, text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        BROKER_KEYS[name].parse(text)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,2:3", ","])
def test_throttled_replicas_are_taken(text: str) -> None:
    TOPIC_KEYS["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize("text", ["x", "0:1,*", "-1:2", "0:1,"])
def test_other_throttled_replicas_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"must be the literal '\*' or a list of replicas"):
        TOPIC_KEYS["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (-5, "-5"),
        (("a", "b"), "a,b"),
        ((), ""),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (0.0, "0.0"),
        (-0.001, "-0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.5e-5, "1.5E-5"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
    ],
)
def test_values_are_written_as_java_writes_them(value: Value, text: str | None) -> None:
    assert write_value(value) == text


def test_every_default_is_one_that_its_key_takes() -> None:
    for key in [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]:
        if key.default is None:
            continue
        key.check(key.default)
        written = key.write(key.default)
        assert written is not None
        assert key.read(written) == key.default
        assert isinstance(key.default, tuple) == (key.type is Type.LIST)


def test_a_secret_is_not_told_in_complaints() -> None:
    secret = BROKER_KEYS["sasl.jaas.config"]._replace(takes=OneOf(("other",)))
    with pytest.raises(InvalidConfig) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)
