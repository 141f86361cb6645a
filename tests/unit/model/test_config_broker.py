"""A broker's configuration: what Kafka's files mean here, and what stops a start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.model.config.broker import BrokerConfig, parse_connection_overrides
from barnabas.model.config.keys.all_keys import BROKER_KEYS
from barnabas.model.config.listeners import Listener
from barnabas.model.config.properties import parse_properties
from barnabas.model.errors import ConfigError

ROOT = Path(__file__).parents[3]

KRAFT = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

ZOOKEEPER = """
broker.id=0
num.network.threads=3
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""


def load(**properties: str) -> BrokerConfig:
    return BrokerConfig.load({name.replace("_", "."): text for name, text in properties.items()})


def test_nothing_set_means_kafkas_defaults() -> None:
    config = BrokerConfig.load({})
    assert config.node_id == 1
    assert config.listeners == config.advertised == (Listener("PLAINTEXT", "", 9092),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.log_dirs == (Path("/tmp/kafka-logs"),)
    assert config.number("num.partitions") == 1
    assert config.warnings == ()


def test_a_kraft_brokers_file_starts_a_broker() -> None:
    config = BrokerConfig.load(parse_properties(KRAFT))
    assert config.listeners == (Listener("PLAINTEXT", "", 9092),)
    assert config.advertised == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.log_dirs == (Path("/tmp/kraft-combined-logs"),)
    named = [warning.split()[0] for warning in config.warnings]
    assert "process.roles" in named
    assert "controller.quorum.bootstrap.servers" in named
    assert "listeners" not in named
    assert len(named) == len(set(named))


def test_a_zookeeper_brokers_file_starts_a_broker() -> None:
    config = BrokerConfig.load(parse_properties(ZOOKEEPER))
    assert config.node_id == 0
    assert config.zookeeper == "localhost:2181"
    named = {text.split()[0] for text in config.warnings}
    assert "num.network.threads" in named
    assert "zookeeper.connect" not in named


def test_the_metadata_tree_has_one_place() -> None:
    assert BrokerConfig.load({"zookeeper.connect": ""}).zookeeper is None
    with pytest.raises(ConfigError, match="set only one"):
        BrokerConfig.load({"zookeeper.connect": "localhost:2181", "metadata.store": "/tmp/tree"})


@pytest.mark.parametrize(
    "given",
    [
        {"zookeeper.auth.username": "broker"},
        {"zookeeper.auth.password": "secret"},
        {"zookeeper.set.acl": "true"},
        {"zookeeper.auth.scheme": "kerberos"},
    ],
)
def test_half_a_login_for_zookeeper_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.(auth|set)"):
        BrokerConfig.load({"zookeeper.connect": "localhost:2181", **given})


def test_the_guide_to_clusters_starts_a_broker_without_a_warning() -> None:
    text = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```properties\n(# /etc/barnabas/server\.properties\n.*?)```", text, re.DOTALL)
    config = BrokerConfig.load(parse_properties(block))
    assert config.warnings == ()
    assert config.inter_broker_listener == "BROKERS"
    assert config.zookeeper is not None
    assert config.zookeeper.endswith("/barnabas")


@pytest.mark.parametrize(
    ("old", "listener", "advertised"),
    [
        ({"port": "9093"}, Listener("PLAINTEXT", "", 9093), Listener("PLAINTEXT", "", 9093)),
        ({"host.name": "h"}, Listener("PLAINTEXT", "h", 9092), Listener("PLAINTEXT", "h", 9092)),
        (
            {"host.name": "h", "port": "9093", "advertised.host.name": "seen"},
            Listener("PLAINTEXT", "h", 9093),
            Listener("PLAINTEXT", "seen", 9093),
        ),
        (
            {"advertised.host.name": "seen", "advertised.port": "1"},
            Listener("PLAINTEXT", "", 9092),
            Listener("PLAINTEXT", "seen", 1),
        ),
    ],
)
def test_a_file_of_the_oldest_kafkas_says_where_to_listen(
    old: dict[str, str], listener: Listener, advertised: Listener
) -> None:
    config = BrokerConfig.load(old)
    assert (config.listeners, config.advertised) == ((listener,), (advertised,))
    assert all("is from before Kafka 3.0" in warning for warning in config.warnings)


def test_listeners_are_stronger_than_what_they_replaced() -> None:
    config = BrokerConfig.load({"port": "9093", "listeners": "PLAINTEXT://localhost:9092"})
    assert config.listeners == (Listener("PLAINTEXT", "localhost", 9092),)
    assert config.warnings == (
        "port is ignored, because listeners is set; if you want it to be PLAINTEXT://:9093, change listeners",
    )


def test_the_sample_starts_a_broker_without_a_warning() -> None:
    text = (ROOT / "config" / "server.properties").read_text(encoding="utf-8")
    config = BrokerConfig.load(parse_properties(text))
    assert config.warnings == ()
    assert config.listeners == (Listener("PLAINTEXT", "localhost", 9092),)


def test_what_the_sample_has_commented_out_is_the_default() -> None:
    text = (ROOT / "config" / "server.properties").read_text(encoding="utf-8")
    lines = [line[1:] for line in text.splitlines() if line.startswith("#") and "=" in line and line[1:2].islower()]
    for name, value in parse_properties("\n".join(lines)).items():
        key = BROKER_KEYS[name]
        if name not in ("log.flush.interval.messages", "metadata.store") and key.default is not None:
            assert "." in value or "," in value or key.parse(value) == key.default, name


def test_typed_access_refuses_another_type() -> None:
    config = BrokerConfig.load({})
    assert config.flag("auto.create.topics.enable") is True
    assert config.text("compression.type") == "producer"
    assert config.text_or_none("broker.rack") is None
    assert config.ratio("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.items("log.cleanup.policy") == ("delete",)
    assert config.items("log.dirs") == ()
    assert config.number_or_none("log.retention.ms") is None
    for wrong in (config.number, config.ratio, config.flag, config.items):
        with pytest.raises(TypeError, match=r"compression\.type"):
            wrong("compression.type")
    with pytest.raises(TypeError):
        config.text("num.partitions")
    with pytest.raises(KeyError):
        config.number("no.such.key")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("log.retnetion.hours", "log.retention.hours"),
        ("num.partition", "num.partitions"),
        ("advertised.listener", "advertised.listeners"),
        ("log_retention_hours", "log.retention.hours"),
        ("Num.Partitions", "num.partitions"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
    ],
)
def test_a_near_miss_stops_the_start_and_names_the_key(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load({name: "1"})
    assert str(caught.value) == f"{name} is not a configuration key: did you mean {nearest}?"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my.plugin.url", "it is not a key of Barnabas or Apache Kafka"),
        ("confluent.license.topic", "it is not a key of Barnabas or Apache Kafka"),
        ("listener.name.internal.ssl.keystore.location", "there is no listener of this name"),
        ("listener.name.plaintext.num.partitions", "cannot be set for one listener"),
        ("listener.name.plaintext.ssl.provider", "has no effect in Barnabas"),
        ("listener.name.plaintext.my.plugin", "my.plugin is not a key of Barnabas or Apache Kafka"),
        ("retention.ms", "the default for all topics is log.retention.ms"),
        ("ssl.provider", "has no effect in Barnabas"),
        ("zookeeper.ssl.crl.enable", "has no effect in Barnabas"),
    ],
)
def test_other_keys_get_one_warning(name: str, words: str) -> None:
    value = "false" if name == "zookeeper.ssl.crl.enable" else "1"
    config = BrokerConfig.load({name: value})
    (warning,) = config.warnings
    assert warning.startswith(name)
    assert words in warning
    assert config.given[name] == value


def test_a_malformed_value_is_told_with_key_value_and_what_it_takes() -> None:
    with pytest.raises(ConfigError) as caught:
        load(num_partitions="many")
    assert str(caught.value) == (
        "Invalid value many for configuration num.partitions: Not a number of type INT (type int, takes [1,...])"
    )
    with pytest.raises(ConfigError, match="Value must be at least 1"):
        load(socket_request_max_bytes="0")


def test_a_malformed_value_of_an_ignored_key_is_an_error_too() -> None:
    with pytest.raises(ConfigError, match=r"group\.max\.size"):
        load(group_max_size="x")


@pytest.mark.parametrize(
    ("properties", "node_id"),
    [
        ({"node.id": "7"}, 7),
        ({"broker.id": "7"}, 7),
        ({"broker.id": "7", "node.id": "7"}, 7),
        ({"broker.id": "-1", "node.id": "7"}, 7),
        ({"broker.id": "-1"}, 1),
        ({"broker.id": "0"}, 0),
    ],
)
def test_either_id_will_do(properties: dict[str, str], node_id: int) -> None:
    config = BrokerConfig.load(properties)
    assert config.node_id == config.number("node.id") == config.number("broker.id") == node_id


@pytest.mark.parametrize("properties", [{"broker.id": "7", "node.id": "8"}, {"broker.id": "-2"}, {"node.id": "-1"}])
def test_ids_that_make_no_sense_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="id"):
        BrokerConfig.load(properties)


def test_log_dirs_are_stronger_than_log_dir() -> None:
    assert load(log_dir="/a").log_dirs == (Path("/a"),)
    assert load(log_dir="/a", log_dirs="/b, /c").log_dirs == (Path("/b"), Path("/c"))


@pytest.mark.parametrize("text", ["", "/a,/a", "/a,,/b"])
def test_log_dirs_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        load(log_dirs=text)


def test_the_metadata_store_lies_beside_the_data() -> None:
    assert load(log_dirs="/srv/a,/srv/b").metadata_store == Path("/srv/a.metadata")
    assert load(log_dirs="/srv/a", metadata_store="/srv/meta").metadata_store == Path("/srv/meta")
    with pytest.raises(ConfigError, match="inside the data directory"):
        load(log_dirs="/srv/a", metadata_store="/srv/a/meta")
    with pytest.raises(ConfigError, match="is empty"):
        load(metadata_store="")


def test_listeners_are_named_addresses() -> None:
    config = load(
        listeners="internal://[::1]:9092, EXTERNAL://:9094",
        advertised_listeners="INTERNAL://host-1.example.org:9092,EXTERNAL://[2001:db8::5]:443",
        listener_security_protocol_map="INTERNAL:PLAINTEXT,external:plaintext",
        inter_broker_listener_name="internal",
    )
    assert config.listeners == (Listener("INTERNAL", "::1", 9092), Listener("EXTERNAL", "", 9094))
    assert config.advertised == (
        Listener("INTERNAL", "host-1.example.org", 9092),
        Listener("EXTERNAL", "2001:db8::5", 443),
    )
    assert config.inter_broker_listener == "INTERNAL"
    assert [str(listener) for listener in config.listeners] == ["INTERNAL://[::1]:9092", "EXTERNAL://:9094"]


def test_one_port_may_serve_ipv4_and_ipv6() -> None:
    config = load(
        listeners="A://127.0.0.1:9092,B://[::1]:9092",
        listener_security_protocol_map="A:PLAINTEXT,B:PLAINTEXT",
        inter_broker_listener_name="A",
    )
    assert len(config.listeners) == 2


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"listeners": "localhost:9092"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://localhost"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://localhost:x"}, "write NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://localhost:65536"}, "from 0 to 65535"),
        ({"listeners": "OTHER://localhost:9092"}, "add OTHER:PLAINTEXT to it"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "two listeners named PLAINTEXT"),
        (
            {
                "listeners": "PLAINTEXT://:9092,B://:9092",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
            },
            "give each its own port",
        ),
        ({"listeners": "SSL://:9092"}, "listener SSL uses TLS, which needs a certificate"),
        ({"listeners": "SASL_SSL://:9092"}, "listener SASL_SSL uses TLS, which needs a certificate"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "set advertised.listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "SSL://localhost:9093"}, "advertise only listeners of this broker"),
        ({"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}, "has no listener for clients"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "write NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:TLS"}, "write NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL"}, "twice"),
        ({"inter.broker.listener.name": "INTERNAL"}, "not among the advertised listeners"),
        ({"security.inter.broker.protocol": "SSL"}, "not among the advertised listeners"),
        (
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
            "set only one",
        ),
        ({"log.retention.ms": "0"}, "-1 (unlimited) or 1 or more"),
        ({"log.retention.minutes": "0"}, "log.retention.minutes is 0"),
        ({"log.roll.ms": "0"}, "log.roll.ms is 0"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms is -1"),
        ({"queued.max.request.bytes": "1000"}, "the largest request must fit"),
        ({"max.connections.per.ip": "0"}, "no client can connect"),
        ({"max.connections.per.ip.overrides": "host"}, "write HOST:COUNT"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(properties)
    assert words in str(caught.value)


def test_a_weaker_key_is_not_looked_at() -> None:
    assert load(log_retention_ms="5", log_retention_hours="0").number("log.retention.ms") == 5


def test_addresses_may_have_their_own_limit() -> None:
    assert parse_connection_overrides("") == {}
    assert parse_connection_overrides("127.0.0.1:5, ::1:7") == {"127.0.0.1": 5, "::1": 7}


def test_a_configuration_cannot_be_changed() -> None:
    config = load(num_partitions="3")
    with pytest.raises(AttributeError):
        config.node_id = 5  # type: ignore[misc] # that this is refused is the point
    with pytest.raises(TypeError):
        config.parsed["num.partitions"] = 5  # type: ignore[index] # likewise


def test_a_warning_shows_only_the_beginning_of_what_may_be_a_line_of_a_key() -> None:
    """A key in base64 without PEM's first and last lines, where a backslash is missing."""
    config = BrokerConfig.load({"MIIEvQIBADANBgkqhkiG9w0BAQEFAASC": "", "my.setting": "1"})
    assert config.warnings == (
        "a setting whose name begins with 'MIIE' and has 32 characters is ignored: "
        "it is not a key of Barnabas or Apache Kafka",
        "my.setting is ignored: it is not a key of Barnabas or Apache Kafka",
    )
