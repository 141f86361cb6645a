"""The live configuration: which place is the strongest, who learns of changes, what may change."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.broker.settings import Changed, Settings
from barnabas.machines.controller.image import ALL_BROKERS, ConfigResource
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.keys.all_keys import BROKER_KEYS
from barnabas.model.errors import InvalidConfig, InvalidRequest
from barnabas.model.log_config import LogConfig
from tests.support.images import ClusterOf

if TYPE_CHECKING:
    from collections.abc import Mapping

ME = ConfigResource.broker(1)
TOPIC = ConfigResource.topic("a")


class Cluster:
    """Settings on a cache whose configuration the test changes."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.cache = MetadataCache(ClusterOf(leaders={"a": (1,), "b": (1,)}).image())
        self.settings = Settings(BrokerConfig.load(properties or {}), self.cache)
        self.changes: list[Changed] = []
        self.settings.subscribe(self.changes.append)

    def set(self, resource: ConfigResource, **settings: str) -> None:
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        image = self.cache.image
        self.cache.replace(replace(image, configs={**image.configs, resource: texts}))


class TestStrength:
    def test_own_then_all_brokers_then_the_file_then_the_default(self) -> None:
        cluster = Cluster({"message.max.bytes": "1"})
        value = cluster.settings.number
        assert value("message.max.bytes") == 1
        cluster.set(ALL_BROKERS, message_max_bytes="2")
        assert value("message.max.bytes") == 2
        cluster.set(ME, message_max_bytes="3")
        assert value("message.max.bytes") == 3
        cluster.set(ALL_BROKERS)
        assert value("message.max.bytes") == 3
        cluster.set(ME)
        assert value("message.max.bytes") == 1

    def test_what_was_set_before_the_start_holds(self) -> None:
        cluster = Cluster()
        cluster.set(ALL_BROKERS, message_max_bytes="2")
        assert Settings(cluster.settings.static, cluster.cache).number("message.max.bytes") == 2

    def test_another_brokers_settings_are_not_ours(self) -> None:
        cluster = Cluster()
        cluster.set(ConfigResource.broker(2), message_max_bytes="2")
        assert cluster.settings.number("message.max.bytes") == 1_048_588
        assert cluster.changes == []

    def test_what_cannot_be_used_is_left_out(self, caplog: pytest.LogCaptureFixture) -> None:
        cluster = Cluster()
        with caplog.at_level(logging.ERROR):
            cluster.set(
                ME,
                message_max_bytes="x",
                num_partitions="5",
                log_retention_ms="5",
                foo="bar",
                principal_builder_class="com.example.Names",
            )
        assert cluster.settings.number("message.max.bytes") == 1_048_588
        assert cluster.settings.number("num.partitions") == 1
        assert cluster.settings.number("log.retention.ms") == 5
        assert cluster.settings.dynamic == {"log.retention.ms": "5", "foo": "bar"}
        assert "message.max.bytes" in caplog.text
        assert "num.partitions" in caplog.text
        assert "principal.builder.class is com.example.Names" in caplog.text


class TestListeners:
    def test_a_setting_of_one_listener_changes_for_it_alone(self, caplog: pytest.LogCaptureFixture) -> None:
        cluster = Cluster({"listener.name.plaintext.max.connections": "5"})
        assert cluster.settings.of_listener("PLAINTEXT").number("max.connections") == 5
        with caplog.at_level(logging.INFO):
            cluster.set(ME, listener_name_plaintext_max_connections="6", listener_name_plaintext_ssl_key_password="s3")
        assert cluster.settings.of_listener("PLAINTEXT").number("max.connections") == 6
        assert cluster.settings.number("max.connections") == 2**31 - 1
        assert "listener.name.plaintext.max.connections" in cluster.changes[-1].keys
        assert "s3" not in caplog.text
        cluster.set(ME)
        assert cluster.settings.of_listener("PLAINTEXT").number("max.connections") == 5
        assert cluster.settings.of_listener("PLAINTEXT").value("ssl.key.password") is None


class TestTopics:
    def test_a_topic_without_overrides_has_the_brokers_values(self) -> None:
        cluster = Cluster({"log.retention.hours": "1"})
        assert cluster.settings.log_config("a") == LogConfig(retention_ms=3_600_000)
        assert cluster.settings.log_config("a") is cluster.settings.log_config("b")

    def test_overrides_come_and_go(self) -> None:
        cluster = Cluster()
        cluster.set(TOPIC, retention_ms="5")
        assert cluster.settings.log_config("a").retention_ms == 5
        assert cluster.settings.log_config("a") is cluster.settings.log_config("a")
        assert cluster.settings.log_config("b").retention_ms == 604_800_000
        cluster.set(TOPIC)
        assert cluster.settings.log_config("a").retention_ms == 604_800_000

    def test_a_changed_default_reaches_topics_without_an_override(self) -> None:
        cluster = Cluster()
        cluster.set(TOPIC, retention_ms="5")
        cluster.set(ALL_BROKERS, log_retention_ms="7", message_max_bytes="9")
        assert cluster.settings.log_config("a") == LogConfig(retention_ms=5, max_message_bytes=9)
        assert cluster.settings.log_config("b") == LogConfig(retention_ms=7, max_message_bytes=9)

    def test_a_dynamic_time_is_stronger_than_the_file_in_any_unit(self) -> None:
        cluster = Cluster({"log.retention.minutes": "1", "log.retention.hours": "1"})
        cluster.set(ALL_BROKERS, log_retention_ms="7")
        assert cluster.settings.log_config("a").retention_ms == 7

    def test_an_override_that_cannot_be_read_is_left_out(self, caplog: pytest.LogCaptureFixture) -> None:
        cluster = Cluster()
        cluster.set(TOPIC, retention_ms="x", segment_bytes="100", message_format_version="2.8")
        assert cluster.settings.log_config("a") == LogConfig(segment_bytes=100)
        assert "retention.ms" in caplog.text

    def test_overrides_are_checked_before_they_are_set(self) -> None:
        cluster = Cluster()
        cluster.settings.check_topic({"retention.ms": "5"})
        with pytest.raises(InvalidConfig, match="Unknown topic config name: foo"):
            cluster.settings.check_topic({"foo": "5"})
        with pytest.raises(InvalidConfig, match=r"Null value not supported for topic configs: retention\.ms"):
            cluster.settings.check_topic({"retention.ms": None})


class TestSubscribers:
    def test_one_that_fails_is_named_and_keeps_the_others_from_nothing(self) -> None:
        def fail(_: Changed) -> None:
            raise OSError("no space left")

        cluster = Cluster()
        cluster.settings.subscribe(fail)
        cluster.settings.subscribe(cluster.changes.append)
        with pytest.raises(ExceptionGroup, match="fail could not apply new settings") as raised:
            cluster.set(ME, num_io_threads="9")
        assert [str(error) for error in raised.value.exceptions] == ["no space left"]
        assert cluster.changes == [Changed(frozenset({"num.io.threads"}), frozenset())] * 2

    def test_all_keys_and_topics_count_as_changed_when_the_whole_image_is_applied_again(self) -> None:
        cluster = Cluster()
        cluster.cache.apply_again()
        (changed,) = cluster.changes
        assert changed.keys == BROKER_KEYS.keys()
        assert changed.topics == {"a", "b"}

    def test_they_learn_which_keys_and_topics_changed(self) -> None:
        cluster = Cluster()
        cluster.set(TOPIC, retention_ms="5")
        cluster.set(ME, num_io_threads="9")
        cluster.set(ME, num_io_threads="9", log_retention_ms="7")
        assert cluster.changes == [
            Changed(frozenset(), frozenset({"a"})),
            Changed(frozenset({"num.io.threads"}), frozenset()),
            Changed(frozenset({"log.retention.ms"}), frozenset({"a", "b"})),
        ]

    def test_they_find_the_new_values(self) -> None:
        cluster = Cluster()
        found: list[int] = []
        cluster.settings.subscribe(lambda changed: found.append(cluster.settings.log_config("a").retention_ms))
        cluster.set(TOPIC, retention_ms="5")
        cluster.set(TOPIC, retention_ms="6")
        assert found == [5, 6]

    def test_nobody_is_told_of_nothing(self) -> None:
        cluster = Cluster()
        cluster.set(ME, message_max_bytes="1048588")
        cluster.cache.replace(replace(cluster.cache.image, controller_id=7))
        assert cluster.changes == []


class TestChecks:
    @pytest.mark.parametrize("all_brokers", [True, False])
    @pytest.mark.parametrize(
        ("dynamic", "complaint"),
        [
            ({"num.partitions": "3"}, "Cannot update these configs dynamically: [num.partitions]"),
            (
                {"num.io.threads": "9", "num.partitions": "3", "node.id": "2"},
                "Cannot update these configs dynamically: [num.partitions, node.id]",
            ),
            ({"listeners": "PLAINTEXT://:1"}, "Cannot update these configs dynamically: [listeners]"),
            ({"metadata.store": "x"}, "Cannot update these configs dynamically: [metadata.store]"),
            (
                {"ssl.keystore.location": "x"},
                "These security configs can be dynamically updated only per-listener "
                "using the listener prefix: [ssl.keystore.location]",
            ),
            (
                {"message.max.bytes": "x"},
                "Invalid value x for configuration message.max.bytes: Not a number of type INT",
            ),
            (
                {"listener.name.internal.max.connections": "-1"},
                "Invalid value -1 for configuration max.connections: Value must be at least 0",
            ),
            (
                {"leader.replication.throttled.rate": "-1"},
                "Invalid value -1 for configuration leader.replication.throttled.rate: Value must be at least 0",
            ),
            ({"log.retention.ms": "0"}, "log.retention.ms is 0: it must be -1 (unlimited) or 1 or more"),
            ({"log.roll.ms": "0"}, "log.roll.ms is 0: it must be 1 or more"),
            (
                {"principal.builder.class": "com.example.Names"},
                "principal.builder.class is com.example.Names: Barnabas runs no Java classes, so clients would be "
                "known by other names; take the key out, or set it to "
                "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
            ),
            (
                {"listener.name.internal.ssl.trustmanager.algorithm": "Anybody"},
                "listener.name.internal.ssl.trustmanager.algorithm is Anybody: Barnabas runs no Java classes, so "
                "certificates would be checked in another way; take the key out, or set it to PKIX",
            ),
        ],
    )
    def test_what_kafka_refuses_is_refused(self, dynamic: dict[str, str], complaint: str, all_brokers: bool) -> None:
        with pytest.raises(InvalidRequest) as caught:
            Cluster().settings.check_broker(dynamic, all_brokers=all_brokers)
        assert str(caught.value) == complaint

    @pytest.mark.parametrize("all_brokers", [True, False])
    @pytest.mark.parametrize(
        "name",
        [
            "listener.name.internal.oauthbearer.sasl.oauthbearer.expected.issuer",
            "listener.name.internal.sasl.oauthbearer.unsigned.tokens.enable",
            "listener.name.internal.org.apache.kafka.sasl.oauthbearer.allowed.urls",
            "listener.name.internal.ssl.principal.mapping.rules",
        ],
    )
    def test_whom_a_listener_believes_does_not_seem_to_change(self, name: str, all_brokers: bool) -> None:
        """Kafka takes these and uses them from the next start on; here they are read from the file only."""
        with pytest.raises(InvalidRequest) as caught:
            Cluster().settings.check_broker({name: "true"}, all_brokers=all_brokers)
        assert str(caught.value) == f"Cannot update these configs dynamically: [{name}]"

    @pytest.mark.parametrize("name", ["sasl.jaas.config", "listener.name.internal.ssl.keystore.location"])
    def test_some_keys_are_of_one_broker_only(self, name: str) -> None:
        settings = Cluster().settings
        settings.check_broker({name: "x"}, all_brokers=False)
        with pytest.raises(InvalidRequest) as caught:
            settings.check_broker({name: "x"}, all_brokers=True)
        assert str(caught.value) == (
            f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
        )

    @pytest.mark.parametrize(
        "dynamic",
        [
            {},
            {"log.retention.ms": "-1"},
            {"log.retention.ms": "-5"},
            {"foo": "x"},
            {"zookeeper.ssl.crl.enable": "true"},
            {"leader.replication.throttled.rate": "1000"},
            {"listener.name.plaintext.max.connections": "5"},
            {"num.io.threads": "9", "compression.type": "zstd", "log.cleanup.policy": "compact"},
        ],
    )
    def test_what_kafka_takes_is_taken(self, dynamic: dict[str, str]) -> None:
        Cluster().settings.check_broker(dynamic, all_brokers=True)
        Cluster().settings.check_broker(dynamic, all_brokers=False)

    def test_rules_hold_together_with_what_is_set_elsewhere(self) -> None:
        cluster = Cluster()
        cluster.set(ME, max_connections_per_ip_overrides="127.0.0.1:5")
        cluster.settings.check_broker({"max.connections.per.ip": "0"}, all_brokers=True)
        with pytest.raises(InvalidRequest, match="no client can connect"):
            cluster.settings.check_broker({"max.connections.per.ip": "0"}, all_brokers=False)
