"""zookeeper.ssl.*: TLS to ZooKeeper, read as the ssl.* keys of a connection to another broker are.

Two things are ZooKeeper's own: a store without a type has the one that its file name ends with, and the password of a
PEM store is that of its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.config.keys.all_keys import BROKER_KEYS
from barnabas.model.config.per_listener import ListenerValues
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.model.config.definition import Value
    from barnabas.model.config.values import Values

_KEYS: Final = {
    name.removeprefix("zookeeper."): name
    for name in (
        "zookeeper.ssl.cipher.suites",
        "zookeeper.ssl.enabled.protocols",
        "zookeeper.ssl.endpoint.identification.algorithm",
        "zookeeper.ssl.keystore.location",
        "zookeeper.ssl.keystore.password",
        "zookeeper.ssl.keystore.type",
        "zookeeper.ssl.protocol",
        "zookeeper.ssl.truststore.location",
        "zookeeper.ssl.truststore.password",
        "zookeeper.ssl.truststore.type",
    )
}
"""The keys of ZooKeeper's connections, by the keys of others that mean the same."""
_TYPES: Final = {"pem": "PEM", "p12": "PKCS12", "pfx": "PKCS12"}


class ZooKeeperTls(ListenerValues):
    """The values of ssl.* keys for connections to ZooKeeper."""

    __slots__ = ("_broker",)

    def __init__(self, broker: Values) -> None:
        super().__init__("ZooKeeper", {}, broker)
        self._broker = broker

    def value(self, name: str) -> Value:
        """The key's value: what zookeeper.ssl.* says, else the default of ssl.*."""
        match name:
            case "ssl.keystore.type" | "ssl.truststore.type":
                return self._type(name.removesuffix(".type"))
            case "ssl.key.password":
                return self._given("ssl.keystore.password") if self._is_pem("ssl.keystore") else None
            case "ssl.keystore.password" | "ssl.truststore.password":
                return None if self._is_pem(name.removesuffix(".password")) else self._given(name)
            case "ssl.enabled.protocols":
                return self._given(name) or (str(self._given("ssl.protocol")),)
            case "ssl.protocol":
                return "TLS"  # which versions there are is said by the key above
            case _:
                found = self._given(name)
                return BROKER_KEYS[name].default if found is None else found

    def name_of(self, key: str) -> str:
        """The name under which the key is set, for messages."""
        return _KEYS.get(key, key)

    def _given(self, name: str) -> Value:
        return self._broker.value(_KEYS[name]) if name in _KEYS else None

    def _type(self, store: str) -> str:
        given, location = self._given(f"{store}.type"), self._given(f"{store}.location")
        return str(given or _TYPES.get(str(location or "").rpartition(".")[2].lower(), "JKS"))

    def _is_pem(self, store: str) -> bool:
        return self._type(store).upper() == "PEM"


def zookeeper_tls(values: Values) -> ZooKeeperTls | None:
    """What TLS to ZooKeeper uses; None if there is none. Raises ConfigError."""
    if not values.flag("zookeeper.ssl.client.enable"):
        return None
    algorithm = values.text("zookeeper.ssl.endpoint.identification.algorithm").lower()
    if algorithm not in ("", "https"):
        raise ConfigError("zookeeper.ssl.endpoint.identification.algorithm takes HTTPS, or nothing to switch it off")
    return ZooKeeperTls(values)
