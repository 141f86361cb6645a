from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from barnabas.clients.config import check, for_librdkafka, properties
from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import InvalidClientConfig, LibraryMissing
from barnabas.clients.library import load
from barnabas.clients.producer.producer import Producer

if TYPE_CHECKING:
    from pathlib import Path


def test_keywords_are_properties_with_underscores_and_win_over_the_mapping() -> None:
    assert properties("b:1", {"linger.ms": 1, "client.id": "a"}, {"linger_ms": 2, "log_level": 3}, {}) == {
        "bootstrap.servers": "b:1",
        "linger.ms": 2,
        "client.id": "a",
        "log_level": 3,
    }


def test_arguments_that_were_not_given_are_left_out() -> None:
    assert properties("b:1", None, {}, {"acks": None, "linger.ms": 0}) == {"bootstrap.servers": "b:1", "linger.ms": 0}


def test_the_same_thing_may_not_be_said_twice() -> None:
    with pytest.raises(InvalidClientConfig, match=r"linger\.ms is given twice"):
        properties("b:1", {"linger.ms": 5}, {}, {"linger.ms": 10})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"buffer.memory": 33554432}, {"queue.buffering.max.kbytes": 32768}),
        ({"fetch.max.wait.ms": 100}, {"fetch.wait.max.ms": 100}),
        ({"max.request.size": 100}, {"message.max.bytes": 100}),
        ({"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
            {"partition.assignment.strategy": "cooperative-sticky"},
        ),
        (
            {"partition.assignment.strategy": ["range", "roundrobin"]},
            {"partition.assignment.strategy": "range,roundrobin"},
        ),
        ({"client.id": "a"}, {"client.id": "a"}),
    ],
)
def test_names_of_javas_clients_are_translated(given: dict[str, object], expected: dict[str, object]) -> None:
    assert for_librdkafka({"logger": None, **given}) == expected


def test_log_lines_of_librdkafka_go_to_pythons_logging() -> None:
    assert for_librdkafka({})["logger"] is logging.getLogger("barnabas.clients")


def test_classes_of_java_are_refused_with_what_takes_their_place() -> None:
    with pytest.raises(InvalidClientConfig, match=r"key\.serializer names a Java class.*key_serializer="):
        for_librdkafka({"key.serializer": "org.apache.kafka.common.serialization.StringSerializer"})


def test_what_nobody_knows_is_named() -> None:
    with pytest.raises(InvalidClientConfig, match=r"no\.such\.thing"):
        Producer("127.0.0.1:1", no_such_thing=1)
    with pytest.raises(InvalidClientConfig, match=r"no\.such\.thing"):
        Consumer("127.0.0.1:1", config={"no.such.thing": "1"})


@pytest.mark.parametrize("settings", [{"when_full": "explode"}, {"acks": "some"}, {"compression": "rar"}])
def test_values_that_mean_nothing_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidClientConfig):
        Producer("127.0.0.1:1", **settings)  # type: ignore[arg-type]  # wrong on purpose


def test_idempotence_that_was_asked_for_is_not_dropped_in_silence() -> None:
    with pytest.raises(InvalidClientConfig, match="acks"):
        Producer("127.0.0.1:1", acks=1, idempotence=True)


def test_a_missing_library_comes_with_the_line_that_installs_it() -> None:
    with pytest.raises(LibraryMissing, match=r"needs no-such-library.*pip install '\.\[avro\]'"):
        load("no_such_library.part", "avro")


def test_nobody_is_asked_for_a_token_to_check_properties() -> None:
    """Who has none any more waited for ten seconds, and was told of a timeout."""
    asked: list[str] = []
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": asked.append}
    check({"bootstrap.servers": "127.0.0.1:1", **login})
    assert asked == []
    with pytest.raises(InvalidClientConfig):
        check({"bootstrap.servers": "127.0.0.1:1", "no.such.name": "1", **login})


def test_a_file_of_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(
        InvalidClientConfig, match=r"ssl\.ca\.location names .*ca\.pem, which cannot be read: No such file"
    ):
        check({"security.protocol": "SSL", "ssl.ca.location": missing})
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(InvalidClientConfig, match="ssl"):
        check({"security.protocol": "SSL", "ssl.ca.location": missing})
