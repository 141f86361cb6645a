"""Properties that a job gave to Spark's own Kafka source, brought to librdkafka's words. Pure.

That source has Java's client inside, this one librdkafka. Most names are the same, and `barnabas.clients.config` knows
most of the others. What is left is here: passwords inside `sasl.jaas.config`, certificates in PEM stores, properties
that mean nothing to librdkafka, and those that a reader or writer decides for itself.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("barnabas.pipelines")

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
        elif name == "ssl.keystore.location" and given.get("ssl.keystore.type", "JKS").upper() == "PEM":
            found |= {"ssl.certificate.location": value, "ssl.key.location": value}
        elif name in _PEM_STORES:
            found[_PEM_STORES[name]] = _pem(name, value, given)
        elif name in ("ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password"):
            continue  # said by the properties that name the stores
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = value.strip() or "none"
        else:
            found[name] = value
    return found


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


def _pem(name: str, value: str, given: Mapping[str, str]) -> str:
    if name == "ssl.truststore.location" and given.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise InvalidOption(
            "option kafka.ssl.truststore.location names a Java key store, which librdkafka cannot read; export its "
            "certificates (`keytool -exportcert -rfc`) and give the file with kafka.ssl.ca.location"
        )
    return value
