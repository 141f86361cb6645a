"""Properties that a job gave to Spark's own Kafka source, brought to librdkafka's words. Pure.

That source has Java's client inside, this one librdkafka. Most names are the same, and `barnabas.clients.config` knows
most of the others. What is left is here: properties that mean nothing to librdkafka, and those that a reader or writer
decides for itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.clients import java_properties
from barnabas.clients.errors import InvalidClientConfig
from barnabas.pipelines.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

log = logging.getLogger("barnabas.pipelines")

API_TIMEOUT: Final = "default.api.timeout.ms"
"""Kafka's name for how long a client asks again."""
DECIDED: Final = {
    "auto.offset.reset": "startingOffsets says where reading begins",
    "enable.auto.commit": "progress is committed to the group of the option progressGroup",
    "enable.auto.offset.store": "progress is committed to the group of the option progressGroup",
    "enable.partition.eof": "it is always on",
    "key.deserializer": "keys are bytes; cast them in the DataFrame",
    "value.deserializer": "values are bytes; cast them in the DataFrame",
    "key.serializer": "keys are bytes or text; cast them in the DataFrame",
    "value.serializer": "values are bytes or text; cast them in the DataFrame",
    "transactional.id": "the sink has one for each task; see the option deliveryGuarantee",
    "interceptor.classes": "there is no Java here",
    "partitioner.class": "there is no Java here; a column named partition decides, or the property partitioner",
}
"""What may not be set, and why."""
MEANINGLESS: Final = java_properties.MEANINGLESS | frozenset(
    {
        "max.poll.records",
        "max.block.ms",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys",
        "socket.connection.setup.timeout.max.ms",
        "client.dns.lookup",
        "exclude.internal.topics",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "auto.include.jmx.reporter",
    }
)
"""Properties of Java's clients that librdkafka has no use for: left out, with a warning."""


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Properties that `barnabas.clients.config` and librdkafka take. Raises InvalidOption."""
    kept: dict[str, str] = {}
    for name, value in given.items():
        if name in DECIDED:
            raise InvalidOption(f"option kafka.{name} cannot be set: {DECIDED[name]}")
        if name in MEANINGLESS:
            log.warning("The option kafka.%s has no effect: it configures Java's clients.", name)
        else:
            kept[name] = value
    try:
        return java_properties.from_java(kept, "kafka.")
    except InvalidClientConfig as error:
        raise InvalidOption(f"option {error}") from None


def without_api_timeout(client: Mapping[str, T]) -> dict[str, T]:
    """Properties for a client of librdkafka, which does not repeat requests: `cluster.ClusterView` does.

    librdkafka's own timeout ends silent connections, and stays short however long requests are repeated.
    """
    return {name: value for name, value in client.items() if name != API_TIMEOUT}


def against_idempotence(client: Mapping[str, str]) -> list[str]:
    """The names of properties with which a producer may repeat, lose or reorder records when it sends them again."""
    most = {"acks": ("all", "-1"), "request.required.acks": ("all", "-1"), "enable.idempotence": ("true", "t", "1")}
    wrong = [name for name, right in most.items() if client.get(name, right[0]).strip().lower() not in right]
    wrong += [name for name in ("retries", "message.send.max.retries") if client.get(name, "1").strip() == "0"]
    flights = ("max.in.flight.requests.per.connection", "max.in.flight")
    return wrong + [name for name in flights if (text := client.get(name, "1").strip()).isdecimal() and int(text) > 5]
