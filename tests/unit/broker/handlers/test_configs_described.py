"""DescribeConfigs: values, sources and synonyms as Kafka 4.3.0 tells them; loggers and their levels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import ErrorCode
from tests.support.config_requests import (
    APPEND,
    BROKER,
    DELETE,
    LOGGER,
    SET,
    TOPIC,
    Op,
    a_broker,
    alter,
    answer_text,
    change,
    describe,
    entry,
    value_and_sources,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestDescribeTopic:
    async def test_every_key_of_kafka_with_its_default(self) -> None:
        result = await describe(a_broker(), TOPIC, "a")
        assert len(result.configs) == 34
        assert [found.name for found in result.configs] == sorted(found.name for found in result.configs)
        assert all(found.config_source == 5 and not found.read_only for found in result.configs)

    async def test_a_default_with_the_brokers_key_as_synonym(self) -> None:
        found = await entry(a_broker(), TOPIC, "a", "max.message.bytes")
        assert value_and_sources(found) == ("1048588", 5, [("message.max.bytes", "1048588", 5)])
        assert (found.config_type, found.is_sensitive, found.documentation) == (3, False, None)

    async def test_a_time_that_a_weaker_broker_key_gives(self) -> None:
        broker = a_broker({"log.retention.hours": "1"})
        assert value_and_sources(await entry(broker, TOPIC, "a", "retention.ms")) == ("3600000", 5, [])

    async def test_an_override_before_everything_else(self) -> None:
        broker = a_broker({"message.max.bytes": "5"})
        await change(broker, (TOPIC, "a", [("max.message.bytes", SET, " 7 ")]))
        await change(broker, (BROKER, "", [("message.max.bytes", SET, "6")]))
        assert value_and_sources(await entry(broker, TOPIC, "a", "max.message.bytes")) == (
            "7",
            1,
            [
                ("max.message.bytes", "7", 1),
                ("message.max.bytes", "6", 3),
                ("message.max.bytes", "5", 4),
                ("message.max.bytes", "1048588", 5),
            ],
        )
        assert value_and_sources(await entry(broker, TOPIC, "b", "max.message.bytes"))[:2] == ("6", 3)

    async def test_hidden_keys_show_when_they_are_set(self) -> None:
        broker = a_broker()
        assert (await describe(broker, TOPIC, "a", "internal.segment.bytes")).configs == ()
        await change(broker, (TOPIC, "a", [("internal.segment.bytes", SET, "100")]))
        assert value_and_sources(await entry(broker, TOPIC, "a", "internal.segment.bytes"))[:2] == ("100", 1)

    async def test_only_what_was_asked_for(self) -> None:
        names = [
            found.name
            for found in (await describe(a_broker(), TOPIC, "a", "retention.ms", "foo", "segment.ms")).configs
        ]
        assert names == ["retention.ms", "segment.ms"]

    async def test_synonyms_and_documentation_only_when_asked_for(self) -> None:
        bare = (await describe(a_broker(), TOPIC, "a", "retention.ms", synonyms=False)).configs[0]
        assert (bare.synonyms, bare.documentation) == ((), None)
        rich = (await describe(a_broker(), TOPIC, "a", "retention.ms", documentation=True)).configs[0]
        assert rich.documentation == "How long records are kept; -1 for no limit."

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("no-such", ErrorCode.unknown_topic_or_partition),
            ("bad name", ErrorCode.invalid_topic_exception),
            ("", ErrorCode.invalid_topic_exception),
        ],
    )
    async def test_a_topic_that_is_not_there(self, name: str, code: ErrorCode) -> None:
        result = await describe(a_broker(), TOPIC, name)
        assert (result.error_code, result.configs) == (code, ())


class TestDescribeBroker:
    async def test_every_key_of_kafka_and_our_own(self) -> None:
        result = await describe(a_broker(), BROKER, "1")
        assert len(result.configs) == 363
        assert "metadata.store" in [found.name for found in result.configs]

    async def test_a_key_from_the_file(self) -> None:
        found = await entry(a_broker({"num.partitions": "3"}), BROKER, "1", "num.partitions")
        assert value_and_sources(found) == ("3", 4, [("num.partitions", "3", 4), ("num.partitions", "1", 5)])
        assert found.read_only

    async def test_a_key_that_nobody_set(self) -> None:
        assert value_and_sources(await entry(a_broker(), BROKER, "1", "log.retention.ms")) == (None, 5, [])
        assert value_and_sources(await entry(a_broker(), BROKER, "1", "log.dirs"))[0] == "/nowhere"

    async def test_both_ids(self) -> None:
        assert value_and_sources(await entry(a_broker(), BROKER, "1", "node.id")) == ("1", 4, [("node.id", "1", 4)])
        assert value_and_sources(await entry(a_broker(), BROKER, "1", "broker.id")) == (
            "1",
            4,
            [("broker.id", "1", 4), ("broker.id", "-1", 5)],
        )

    async def test_times_show_weaker_names_after_their_own(self) -> None:
        broker = a_broker({"log.retention.minutes": "5", "log.retention.hours": "7"})
        await change(broker, (BROKER, "", [("log.retention.ms", SET, "9")]))
        assert value_and_sources(await entry(broker, BROKER, "1", "log.retention.ms")) == (
            "9",
            3,
            [
                ("log.retention.ms", "9", 3),
                ("log.retention.minutes", "5", 4),
                ("log.retention.hours", "7", 4),
                ("log.retention.hours", "168", 5),
            ],
        )
        assert value_and_sources(await entry(broker, BROKER, "1", "log.retention.hours")) == (
            "7",
            4,
            [("log.retention.hours", "7", 4), ("log.retention.hours", "168", 5)],
        )

    async def test_dynamic_settings_of_one_and_of_all(self) -> None:
        broker = a_broker()
        await change(
            broker, (BROKER, "", [("message.max.bytes", SET, "6")]), (BROKER, "1", [("message.max.bytes", SET, "7")])
        )
        found = await entry(broker, BROKER, "1", "message.max.bytes")
        assert value_and_sources(found) == (
            "7",
            2,
            [("message.max.bytes", "7", 2), ("message.max.bytes", "6", 3), ("message.max.bytes", "1048588", 5)],
        )
        assert not found.read_only

    async def test_all_brokers_have_only_what_was_set(self) -> None:
        broker = a_broker({"message.max.bytes": "5"})
        assert (await describe(broker, BROKER, "")).configs == ()
        await change(broker, (BROKER, "", [("message.max.bytes", SET, "6"), ("foo", SET, "x")]))
        unknown, known = (await describe(broker, BROKER, "")).configs
        assert value_and_sources(known) == ("6", 3, [("message.max.bytes", "6", 3)])
        assert (unknown.name, unknown.value, unknown.is_sensitive, unknown.config_type) == ("foo", None, True, 0)

    async def test_secrets_and_unknown_keys_are_shown_without_a_value(self) -> None:
        broker = a_broker({"sasl.jaas.config": "hunter2", "my.plugin.password": "hunter2"})
        for name, kind in (("sasl.jaas.config", 9), ("my.plugin.password", 0)):
            found = await entry(broker, BROKER, "1", name)
            assert value_and_sources(found) == (None, 4, [(name, None, 4)])
            assert (found.is_sensitive, found.config_type) == (True, kind)

    @pytest.mark.parametrize(
        ("key", "value", "kind"),
        [
            ("ssl.keystore.location", "/keys/broker.pem", 2),
            ("ssl.keystore.type", "PEM", 2),
            ("ssl.truststore.location", "/keys/ca.pem", 2),
            ("ssl.client.auth", "required", 2),
            ("ssl.protocol", "TLSv1.2", 2),
            ("ssl.principal.mapping.rules", "RULE:^CN=(.*?),.*$/$1/,DEFAULT", 2),
            ("sasl.enabled.mechanisms", "PLAIN, SCRAM-SHA-512", 7),
            ("max.connections", "7", 3),
        ],
    )
    async def test_a_setting_of_one_listener_is_told_as_its_key_is(self, key: str, value: str, kind: int) -> None:
        name = f"listener.name.plaintext.{key}"
        broker = a_broker({name: value})
        found = await entry(broker, BROKER, "1", name)
        assert (found.value, found.is_sensitive, found.config_type) == (value, False, kind)
        assert value_and_sources(found)[2][0] == (name, value, 4)

    @pytest.mark.parametrize(
        ("key", "kind"),
        [
            ("ssl.keystore.password", 9),
            ("ssl.keystore.key", 9),
            ("ssl.key.password", 9),
            ("ssl.truststore.password", 9),
            ("sasl.jaas.config", 9),
            ("plain.sasl.jaas.config", 9),
            ("no.mechanism.sasl.jaas.config", 9),
            ("my.plugin.password", 0),
            ("oauthbearer.sasl.oauthbearer.expected.issuer", 0),
        ],
    )
    async def test_a_secret_of_one_listener_is_never_told(self, key: str, kind: int) -> None:
        name = f"listener.name.plaintext.{key}"
        found = await entry(a_broker({name: "hunter2"}), BROKER, "1", name)
        assert "hunter2" not in str(found)
        assert (found.value, found.is_sensitive, found.config_type) == (None, True, kind)

    async def test_a_setting_of_one_listener_that_is_changed_is_told_with_its_sources(self) -> None:
        name = "listener.name.plaintext.max.connections"
        broker = a_broker({name: "7", "max.connections": "9"})
        await change(broker, (BROKER, "", [(name, SET, "6")]))
        found = await entry(broker, BROKER, "1", name)
        assert value_and_sources(found) == (
            "6",
            3,
            [
                (name, "6", 3),
                (name, "7", 4),
                ("max.connections", "9", 4),
                ("max.connections", "2147483647", 5),
            ],
        )
        [for_all] = (await describe(broker, BROKER, "")).configs
        assert value_and_sources(for_all) == ("6", 3, [(name, "6", 3)])

    async def test_retired_keys_show_when_they_are_set(self) -> None:
        assert value_and_sources(
            await entry(a_broker({"zookeeper.ssl.crl.enable": "true"}), BROKER, "1", "zookeeper.ssl.crl.enable")
        )[:2] == ("true", 4)

    async def test_numbers_with_a_fraction_are_written_as_in_java(self) -> None:
        found = await entry(a_broker(), BROKER, "1", "log.cleaner.io.max.bytes.per.second")
        assert found.value == "1.7976931348623157E308"

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("2", "Unexpected broker id, expected 1 or empty string, but received 2"),
            ("x", "Broker id must be an integer, but it is: x"),
        ],
    )
    async def test_another_broker(self, name: str, message: str) -> None:
        result = await describe(a_broker(), BROKER, name)
        assert answer_text(result.error_code, result.error_message) == f"invalid_request: {message}"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    made = logging.getLogger("barnabas.broker.test_configs_handler")
    made.setLevel(logging.WARNING)
    yield made
    made.setLevel(logging.NOTSET)


class TestLoggers:
    async def test_they_have_levels_of_kafkas_names(self, logger: logging.Logger) -> None:
        found = await entry(a_broker(), LOGGER, "1", logger.name)
        assert value_and_sources(found) == ("WARN", 6, [])
        assert not found.read_only
        assert (await entry(a_broker(), LOGGER, "1", "root")).value == "WARN"

    @pytest.mark.parametrize(
        ("level", "number"), [("TRACE", 5), ("DEBUG", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)]
    )
    async def test_a_level_is_set_and_told(self, logger: logging.Logger, level: str, number: int) -> None:
        broker = a_broker()
        assert await change(broker, (LOGGER, "1", [(logger.name, SET, level)])) == [""]
        assert logger.level == number
        assert (await entry(broker, LOGGER, "1", logger.name)).value == level

    async def test_who_switches_the_audit_log_off_is_logged_before(
        self, logger: logging.Logger, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker, audit = a_broker(), logging.getLogger("barnabas.audit")
        try:
            assert await change(broker, (LOGGER, "1", [("barnabas.audit", SET, "FATAL")])) == [""]
            assert await change(broker, (LOGGER, "1", [("barnabas.audit", DELETE, None)]), validate_only=True) == [""]
            assert await change(broker, (LOGGER, "1", [("barnabas.audit", DELETE, None)])) == [""]
        finally:
            audit.setLevel(logging.NOTSET)
        assert caplog.messages == [
            "The level of logger barnabas.audit becomes FATAL, as User:ANONYMOUS asked.",
            "The level of logger barnabas.audit becomes that of its parent, as User:ANONYMOUS asked.",
        ]

    async def test_a_package_is_a_logger_too(self, logger: logging.Logger) -> None:
        assert (await entry(a_broker(), LOGGER, "1", "barnabas.broker")).value == "WARN"

    async def test_a_removed_level_follows_the_parent(self, logger: logging.Logger) -> None:
        assert await change(a_broker(), (LOGGER, "1", [(logger.name, DELETE, None)])) == [""]
        assert logger.level == logging.NOTSET

    async def test_validating_sets_nothing(self, logger: logging.Logger) -> None:
        assert await change(a_broker(), (LOGGER, "1", [(logger.name, SET, "DEBUG")]), validate_only=True) == [""]
        assert logger.level == logging.WARNING

    async def test_one_mistake_and_nothing_is_set(self, logger: logging.Logger) -> None:
        await change(a_broker(), (LOGGER, "1", [(logger.name, SET, "DEBUG"), ("nosuch", SET, "DEBUG")]))
        assert logger.level == logging.WARNING

    @pytest.mark.parametrize(
        ("name", "operation", "answer"),
        [
            (
                "1",
                ("root", SET, "FOO"),
                "invalid_config: Cannot set the log level of root to FOO as it is not a supported log level. "
                "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
            ),
            ("1", ("nosuch", SET, "INFO"), "invalid_config: Logger nosuch does not exist!"),
            ("1", ("nosuch", DELETE, None), "invalid_config: Logger nosuch does not exist!"),
            ("1", ("root", DELETE, None), "invalid_request: Removing the log level of the root logger is not allowed"),
            (
                "1",
                ("root", APPEND, "INFO"),
                "invalid_request: APPEND operation is not allowed for the BROKER_LOGGER resource",
            ),
            ("2", ("root", SET, "INFO"), "invalid_request: Unexpected broker id, expected 1, but received 2"),
            ("", ("root", SET, "INFO"), "invalid_request: Node id must be an integer, but it is: "),
        ],
    )
    async def test_what_cannot_be_set(self, name: str, operation: Op, answer: str) -> None:
        assert await change(a_broker(), (LOGGER, name, [operation])) == [answer]

    async def test_a_name_is_needed(self) -> None:
        result = await describe(a_broker(), LOGGER, "")
        assert answer_text(result.error_code, result.error_message) == "invalid_request: Broker id must not be empty"

    async def test_alter_configs_does_not_know_them(self) -> None:
        assert await alter(a_broker(), (LOGGER, "1", {"root": "INFO"})) == ["invalid_request: Unknown resource type 8"]
