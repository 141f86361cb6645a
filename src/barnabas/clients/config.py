"""Client properties: Kafka's names, Python's spelling, and librdkafka's own where they differ.

A property can be given in a mapping (`config={"linger.ms": 5}`) or as a keyword (`linger_ms=5`); keywords win. Names of
Java's clients that librdkafka calls otherwise are translated, so that a `client.properties` of either world works. What
neither knows is an error that names it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import InvalidClientConfig, LibraryMissing
from barnabas.clients.java_properties import from_java
from barnabas.clients.library import load
from barnabas.clients.log_lines import Echo
from barnabas.model.numbers import MAX_INT32

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BOOTSTRAP_SERVERS: Final = "localhost:9092"

log = logging.getLogger("barnabas.clients")
log.addFilter(Echo())

_UNDERSCORES: Final = frozenset({"log_level", "error_cb", "throttle_cb", "stats_cb", "oauth_cb", "logger"})
"""Names that have underscores in librdkafka and confluent-kafka too."""

_OTHER_NAMES: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "default.api.timeout.ms": "socket.timeout.ms",
}
"""Java's name, and librdkafka's."""

_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}

_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location")

_CLASSES: Final = {
    "key.serializer": "key_serializer=",
    "value.serializer": "value_serializer=",
    "key.deserializer": "key_deserializer=",
    "value.deserializer": "value_deserializer=",
    "partitioner.class": "partitioner=",
}
"""Properties that name Java classes, and the argument that takes their place."""


def properties(
    bootstrap_servers: str,
    config: Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
    chosen: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything as one dictionary with Kafka's names.

    `chosen` are properties that the client's own arguments stand for; None means that the argument was not given.
    Raises InvalidClientConfig when an argument and a property say the same thing.
    """
    found: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, **(config or {})}
    for name, value in keywords.items():
        found[name if name in _UNDERSCORES else name.replace("_", ".")] = value
    for name, value in chosen.items():
        if value is None:
            continue
        if name in found:
            raise InvalidClientConfig(f"{name} is given twice: as a property and as an argument")
        found[name] = value
    return found


def for_librdkafka(found: Mapping[str, Any]) -> dict[str, Any]:
    """Properties with librdkafka's names; its log lines go to the logger `barnabas.clients`, or to the one given."""
    settings: dict[str, Any] = {"logger": log}
    for name, value in from_java(found).items():
        if name in _CLASSES:
            raise InvalidClientConfig(f"{name} names a Java class; give a Python object with {_CLASSES[name]}")
        if name == "buffer.memory":
            settings["queue.buffering.max.kbytes"] = max(1, int(value) // 1024)
        elif name == "partition.assignment.strategy":
            names = value.split(",") if isinstance(value, str) else value
            settings[name] = ",".join(_ASSIGNORS.get(each.strip(), each.strip()) for each in names)
        elif name == "auto.offset.reset" and value == "none":
            settings[name] = "error"
        else:
            settings[_OTHER_NAMES.get(name, name)] = value
    if settings["logger"] is None:
        del settings["logger"]
    return settings


def open_client(kafka: Any, kind: str, found: Mapping[str, Any]) -> Any:
    """A client of confluent-kafka: `kind` is the name of its class. Raises InvalidClientConfig."""
    try:
        settings = for_librdkafka(found)
        return getattr(kafka, kind)(settings)
    except kafka.KafkaException as error:
        raise InvalidClientConfig(_unreadable(settings) or error.args[0].str().strip()) from error
    except (TypeError, ValueError) as error:
        raise InvalidClientConfig(str(error)) from error


def _unreadable(settings: Mapping[str, Any]) -> str:
    """Which file of a certificate or a key cannot be read, if one cannot: OpenSSL does not say which it was."""
    for name in _FILES:
        path = settings.get(name)
        if not isinstance(path, str):
            continue
        try:
            with Path(path).open("rb"):
                pass
        except IsADirectoryError:  # of certificates
            continue
        except OSError as error:
            return f"{name} names {path}, which cannot be read: {error.strerror}"
    return ""


def check(found: Mapping[str, Any]) -> None:
    """Raise InvalidClientConfig for properties that librdkafka, whose names they have, does not take.

    For clients that do without it; where it is not installed, nobody knows all names. Nobody is asked for a token for
    it: librdkafka would wait for ten seconds where there is none.
    """
    try:
        admin = load("confluent_kafka.admin", "clients")
    except LibraryMissing:
        return
    named = {name: value for name, value in found.items() if name != "oauth_cb"}
    open_client(admin, "AdminClient", {"log_level": 0, "logger": None, **named})


def milliseconds(seconds: float | None) -> int | None:
    """Seconds as librdkafka's milliseconds; None stays None. Raises InvalidClientConfig for what is beyond them."""
    if seconds is None:
        return None
    if not abs(seconds) * 1000 <= MAX_INT32:
        raise InvalidClientConfig(f"{seconds} seconds are no time that librdkafka can wait")
    return round(seconds * 1000)


def is_true(value: object) -> bool:
    """A property as a truth: librdkafka takes words too."""
    return str(value).lower() in ("true", "1", "t", "yes")
