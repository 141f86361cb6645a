"""Security properties of Java's clients under librdkafka's names, so that one client.properties serves both. Pure.

Java has keystores and truststores where librdkafka has certificates and keys, and a password inside of
`sasl.jaas.config`. What is in librdkafka's words already stays as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import InvalidClientConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

_PEM_STORES: Final = {
    "ssl.truststore.location": "ssl.ca.location",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
"""Java's name for something in PEM, and librdkafka's."""
_SAID_ELSEWHERE: Final = frozenset({"ssl.truststore.type", "ssl.keystore.type", "ssl.truststore.password"})
"""What the properties that name the stores say."""
_JAAS_VALUE: Final = re.compile(r"\b(username|password)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s;]+)")
_TOKEN_LOGIN: Final = re.compile(r"\btokenauth\s*=\s*[\"']?true\b", re.IGNORECASE)
MEANINGLESS: Final = frozenset(
    {
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
"""Security properties of Java's clients that librdkafka has no use for."""


def from_java(given: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The properties under librdkafka's names; raises InvalidClientConfig.

    Messages have `prefix` before the names of properties.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            found |= _credentials(str(value), prefix)
        elif name == "ssl.keystore.location":
            found |= _keystore(str(value), str(given.get("ssl.keystore.type", "")).upper(), prefix)
        elif name in _PEM_STORES:
            found[_PEM_STORES[name]] = _pem(name, value, given, prefix)
        elif name == "ssl.endpoint.identification.algorithm":
            found[name] = str(value).strip() or "none"
        elif name not in _SAID_ELSEWHERE and name not in MEANINGLESS:
            found[name] = value
    return found


def _credentials(jaas: str, prefix: str) -> dict[str, str]:
    if not re.search(r"\b(Plain|Scram)LoginModule\b", jaas):
        raise InvalidClientConfig(
            f"{prefix}sasl.jaas.config names a login module that only Java has; set {prefix}sasl.username and "
            f"{prefix}sasl.password, or librdkafka's properties for other mechanisms (as {prefix}sasl.kerberos.*)"
        )
    if _TOKEN_LOGIN.search(jaas):
        raise InvalidClientConfig(
            f"{prefix}sasl.jaas.config is for a login by a delegation token (tokenauth), which librdkafka cannot do; "
            "Java's clients can"
        )
    values = {name: _unquoted(text) for name, text in _JAAS_VALUE.findall(jaas)}
    if values.keys() != {"username", "password"}:
        raise InvalidClientConfig(f"{prefix}sasl.jaas.config has no username or no password")
    return {f"sasl.{name}": value for name, value in values.items()}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def _keystore(path: str, kind: str, prefix: str) -> dict[str, str]:
    """A store of one's own key; without a kind it is what librdkafka takes it for, PKCS12."""
    if kind == "PEM":
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    if kind not in ("", "PKCS12") or path.lower().endswith(".jks"):
        raise InvalidClientConfig(
            f"{prefix}ssl.keystore.location names a Java key store, which librdkafka cannot read; make one that it "
            f"can (`keytool -importkeystore -deststoretype PKCS12`) and set {prefix}ssl.keystore.type to PKCS12"
        )
    return {"ssl.keystore.location": path}


def _pem(name: str, value: Any, given: Mapping[str, Any], prefix: str) -> Any:
    if name == "ssl.truststore.location" and str(given.get("ssl.truststore.type", "JKS")).upper() != "PEM":
        raise InvalidClientConfig(
            f"{prefix}ssl.truststore.location names a Java key store, which librdkafka cannot read; export its "
            f"certificates (`keytool -exportcert -rfc`) and give the file with {prefix}ssl.ca.location"
        )
    return value
