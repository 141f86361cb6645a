"""The rules for ssl.* keys of one listener that span several keys; they are those of Kafka's SslFactory.

Nothing is read here: whether the files are there and fit together is found out when they are loaded (`net/keystores`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.model.config.per_listener import ListenerValues

PEM: Final = "PEM"
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
RETIRED_PROTOCOLS: Final = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")


def check_tls(values: ListenerValues) -> None:
    """Refuse ssl.* settings that a listener cannot use, with ConfigError."""
    _check_keystore(values)
    check_truststore(values)
    check_protocols(values)
    if values.text("ssl.endpoint.identification.algorithm").lower() not in ("", "https"):
        raise ConfigError(
            f"{values.name_of('ssl.endpoint.identification.algorithm')} takes https, or nothing to switch it off"
        )


def has_keystore(values: ListenerValues) -> bool:
    """Whether a certificate and its key are named."""
    return bool(values.text_or_none("ssl.keystore.location") or values.text_or_none("ssl.keystore.key"))


def _check_keystore(values: ListenerValues) -> None:
    if not has_keystore(values):
        raise ConfigError(
            f"listener {values.listener} uses TLS, which needs a certificate: set ssl.keystore.location (and "
            "ssl.keystore.type, PEM or PKCS12) to a file that holds a private key and its certificates, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain to their texts (PEM)"
        )
    check_keystore(values)


def check_keystore(values: ListenerValues) -> None:
    """Refuse ssl.keystore.* settings that contradict each other; nothing has to be set."""
    kind = _store_type(values, "ssl.keystore.type")
    location, password = values.text_or_none("ssl.keystore.location"), values.text_or_none("ssl.keystore.password")
    key, chain = values.text_or_none("ssl.keystore.key"), values.text_or_none("ssl.keystore.certificate.chain")
    if key and not chain:
        _refuse(values, "ssl.keystore.key", "needs ssl.keystore.certificate.chain, the certificate of this key")
    if chain and not key:
        _refuse(values, "ssl.keystore.certificate.chain", "needs ssl.keystore.key, the private key of the certificate")
    if key and location:
        _refuse(values, "ssl.keystore.key", "and ssl.keystore.location are both set: set only one")
    if key and kind != PEM:
        _refuse(values, "ssl.keystore.key", "needs ssl.keystore.type=PEM")
    if (location or key) and kind == PEM and password:
        _refuse(values, "ssl.keystore.password", "has no use with PEM: the password of the key is ssl.key.password")
    if location and kind != PEM and password is None:
        _refuse(
            values,
            "ssl.keystore.location",
            f"names a {kind} file, which needs ssl.keystore.password; for a PEM file set ssl.keystore.type=PEM",
        )


def check_truststore(values: ListenerValues) -> None:
    """Refuse ssl.truststore.* settings that contradict each other; nothing has to be set."""
    kind = _store_type(values, "ssl.truststore.type")
    location, password = values.text_or_none("ssl.truststore.location"), values.text_or_none("ssl.truststore.password")
    certificates = values.text_or_none("ssl.truststore.certificates")
    if certificates and location:
        _refuse(values, "ssl.truststore.certificates", "and ssl.truststore.location are both set: set only one")
    if certificates and kind != PEM:
        _refuse(values, "ssl.truststore.certificates", "needs ssl.truststore.type=PEM")
    if (location or certificates) and kind == PEM and password:
        _refuse(values, "ssl.truststore.password", "has no use with PEM: take the key out")
    if password and not location and not certificates:
        _refuse(values, "ssl.truststore.password", "needs ssl.truststore.location")


def check_protocols(values: ListenerValues) -> None:
    """Refuse versions of TLS that are not spoken here."""
    name = values.name_of("ssl.enabled.protocols")
    enabled = values.items("ssl.enabled.protocols")
    for protocol in enabled:
        if protocol in RETIRED_PROTOCOLS:
            raise ConfigError(f"{name} has {protocol}, which is no longer safe: use {' and '.join(PROTOCOLS)}")
        if protocol not in PROTOCOLS:
            raise ConfigError(f"{name} has {protocol!r}, which is not one of {', '.join(PROTOCOLS)}")
    if not enabled:
        raise ConfigError(f"{name} is empty: name at least one of {', '.join(PROTOCOLS)}")
    protocol = values.text("ssl.protocol")
    if protocol not in ("TLS", *PROTOCOLS):
        raise ConfigError(f"{values.name_of('ssl.protocol')} is {protocol}: it takes TLS, {', '.join(PROTOCOLS)}")
    if protocol == "TLSv1.2" and protocol not in enabled:
        raise ConfigError(f"{values.name_of('ssl.protocol')} is {protocol}, which {name} does not have")


def client_auth(values: ListenerValues, *, sasl: bool) -> str:
    """Whether clients show certificates: none, requested or required.

    Where clients log in by SASL, only a setting of the listener itself counts, as in Kafka.
    """
    own = values.own_value("ssl.client.auth")
    return str(own) if own is not None else "none" if sasl else values.text("ssl.client.auth")


def _store_type(values: ListenerValues, key: str) -> str:
    kind = values.text(key).upper()
    if kind not in STORE_TYPES:
        _refuse(values, key, f"is {values.text(key)}: it takes PEM and PKCS12")
    return kind


def _refuse(values: ListenerValues, key: str, complaint: str) -> None:
    raise ConfigError(f"{values.name_of(key)} {complaint} (listener {values.listener})")
