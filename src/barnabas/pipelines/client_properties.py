"""Properties that a job gave to Spark's own Kafka source, brought to librdkafka's words. Pure.

That source has Java's client inside, this one librdkafka. Most names are the same, and `barnabas.clients.config` knows
most of the others. What is left is here: passwords inside `sasl.jaas.config`, certificates in PEM stores, properties
that mean nothing to librdkafka, and those that a reader or writer decides for itself.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, TypeVar

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
MEANINGLESS: Final = frozenset(
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
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.provider",
        "ssl.trustmanager.algorithm",
        "ssl.keymanager.algorithm",
        "ssl.secure.random.implementation",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)
"""Properties of Java's clients that librdkafka has no use for: left out, with a warning."""
_PEM_STORES: Final = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""Java's name for something in PEM, and librdkafka's."""
_JAAS_VALUE: Final = re.compile(r"\b(username|password)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;]+)")


def client_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Properties that `barnabas.clients.config` and librdkafka take. Raises InvalidOption."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in DECIDED:
            raise InvalidOption(f"option kafka.{name} cannot be set: {DECIDED[name]}")
        if name in MEANINGLESS:
            log.warning("option kafka.%s has no effect here: it tunes Java's clients", name)
        elif name == "sasl.jaas.config":
            found |= _credentials(value)
        elif name == "ssl.keystore.location":
            found |= _keystore(value, given.get("ssl.keystore.type", "").upper())
        elif name in _PEM_STORES:
            found[_PEM_STORES[name]] = _pem(name, value, given)
        elif name in ("ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password"):
            continue  # said by the properties that name the stores
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value.strip() or "none"
        else:
            found[name] = value
    return found


def without_patience(client: Mapping[str, T]) -> dict[str, T]:
    """Properties for a client of librdkafka: it is not the one who asks again (`cluster.ClusterView` is).

    What it has instead is how long a connection may say nothing, and that is to be short whoever has much patience.
    """
    return {name: value for name, value in client.items() if name != API_TIMEOUT}


def _credentials(jaas: str) -> dict[str, str]:
    if not re.search(r"\b(Plain|Scram)LoginModule\b", jaas):
        raise InvalidOption(
            "option kafka.sasl.jaas.config names a login module that only Java has; set kafka.sasl.username and "
            "kafka.sasl.password, or librdkafka's properties for other mechanisms (as kafka.sasl.kerberos.*)"
        )
    values = {name: _unquoted(text) for name, text in _JAAS_VALUE.findall(jaas)}
    if values.keys() != {"username", "password"}:
        raise InvalidOption("option kafka.sasl.jaas.config has no username or no password")
    return {f"sasl.{name}": value for name, value in values.items()}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def _keystore(path: str, kind: str) -> dict[str, str]:
    """A store of one's own key; without a kind it is what librdkafka takes it for, PKCS12."""
    if kind == "PEM":
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    if kind not in ("", "PKCS12") or path.lower().endswith(".jks"):
        raise InvalidOption(
            "option kafka.ssl.keystore.location names a Java key store, which librdkafka cannot read; make one that it "
            "can (`keytool -importkeystore -deststoretype PKCS12`) and set kafka.ssl.keystore.type to PKCS12"
        )
    return {"ssl.keystore.location": path}


def against_idempotence(client: Mapping[str, str]) -> list[str]:
    """The names of properties with which a producer may repeat, lose or reorder records when it sends them again."""
    most = {"acks": ("all", "-1"), "request.required.acks": ("all", "-1"), "enable.idempotence": ("true", "t", "1")}
    wrong = [name for name, right in most.items() if client.get(name, right[0]).strip().lower() not in right]
    wrong += [name for name in ("retries", "message.send.max.retries") if client.get(name, "1").strip() == "0"]
    flights = ("max.in.flight.requests.per.connection", "max.in.flight")
    return wrong + [name for name in flights if (text := client.get(name, "1").strip()).isdecimal() and int(text) > 5]


def _pem(name: str, value: str, given: Mapping[str, str]) -> str:
    if name == "ssl.truststore.location" and given.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise InvalidOption(
            "option kafka.ssl.truststore.location names a Java key store, which librdkafka cannot read; export its "
            "certificates (`keytool -exportcert -rfc`) and give the file with kafka.ssl.ca.location"
        )
    return value
