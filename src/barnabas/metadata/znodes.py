"""The nodes of the tree, one class each: path, encode, decode; those of topics are in `topic_znodes`.

Paths and JSON are those of Apache Kafka's ZooKeeper mode (as of 3.9), so that a tree can move to Kafka and back. What
Kafka does not know is an extra JSON field, which it ignores. Decoders take what any version of Kafka since 1.0 wrote.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.machines.controller.image import BrokerImage, ConfigResource, Endpoint
from barnabas.metadata.stores.store import StoreError
from barnabas.model.ids import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

_ENDPOINT = re.compile(r"(.*)://\[?([^\]]*)\]?:(-?\d+)")
_NO_JMX = -1
_MOST = (1 << 31) - 1


class MalformedNode(StoreError):
    """A node's data is not what its path asks for: the tree was edited by hand, or by an unknown version."""

    def __init__(self, path: str, data: bytes, reason: object) -> None:
        super().__init__(f"{path} holds {data[:200]!r}, which cannot be read: {reason}")


def dump(value: Mapping[str, object]) -> bytes:
    """A node's data."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def load(path: str, data: bytes) -> dict[str, Any]:
    """The JSON object that a node holds. Raises MalformedNode."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedNode(path, data, error) from error
    if not isinstance(value, dict):
        raise MalformedNode(path, data, "it is not a JSON object")
    return value


def number_of(value: Any) -> int:
    """A number of 32 bits, as ids and epochs are; some writers have it as text."""
    number = int(value)
    if isinstance(value, bool | float) or not -_MOST - 1 <= number <= _MOST:
        raise ValueError(f"{value!r} is not a number of 32 bits")
    return number


class ControllerNode:
    """Ephemeral: the broker that is the controller."""

    path = "/controller"

    @staticmethod
    def encode(broker_id: int, now_ms: int) -> bytes:
        """The controller that was elected now."""
        return dump({"version": 2, "brokerid": broker_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})

    @staticmethod
    def decode(data: bytes) -> int:
        """The controller's broker id."""
        try:
            return number_of(load(ControllerNode.path, data)["brokerid"])
        except (KeyError, ValueError, TypeError) as error:
            raise MalformedNode(ControllerNode.path, data, error) from error


class ControllerEpochNode:
    """How often a controller was elected; its version guards every write of a controller."""

    path = "/controller_epoch"

    @staticmethod
    def encode(epoch: int) -> bytes:
        """Digits."""
        return str(epoch).encode()

    @staticmethod
    def decode(data: bytes) -> int:
        """The epoch."""
        try:
            return number_of(data)
        except ValueError as error:
            raise MalformedNode(ControllerEpochNode.path, data, error) from error


class BrokersNode:
    """The folder of registrations."""

    path = "/brokers/ids"


def broker_of(path: str) -> int:
    """The broker whose id is the last part of a path."""
    try:
        return int(path.rpartition("/")[2])
    except ValueError:
        raise MalformedNode(path, b"", "its name is not a broker id") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself."""

    broker_id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Supported feature levels: name to (lowest, highest)."""
    incarnation_id: UUID | None = None
    """Made anew by every start of a broker of ours; Kafka's brokers have none."""

    def image(self, epoch: int) -> BrokerImage:
        """The broker as others see it, registered with this epoch."""
        return BrokerImage(
            broker_id=self.broker_id, epoch=epoch, endpoints=self.endpoints, rack=self.rack, features=self.features
        )


class BrokerNode:
    """Ephemeral: a broker that is up. Its creation id is the broker's epoch."""

    @staticmethod
    def path(broker_id: int) -> str:
        """Below the folder of registrations."""
        return f"{BrokersNode.path}/{broker_id}"

    @staticmethod
    def encode(registration: Registration, now_ms: int) -> bytes:
        """Version 5. Host and port stand there again for very old clients, which speak only PLAINTEXT."""
        plain = next((e for e in registration.endpoints.values() if e.security_protocol == "PLAINTEXT"), None)
        value: dict[str, object] = {
            "version": 5,
            "host": plain.host if plain else None,
            "port": plain.port if plain else -1,
            "endpoints": [_endpoint_text(name, endpoint) for name, endpoint in registration.endpoints.items()],
            "jmx_port": _NO_JMX,
            "timestamp": str(now_ms),
            "listener_security_protocol_map": {
                name: endpoint.security_protocol for name, endpoint in registration.endpoints.items()
            },
            "features": {
                name: {"min_version": low, "max_version": high} for name, (low, high) in registration.features.items()
            },
        }
        if registration.rack is not None:
            value["rack"] = registration.rack
        if registration.incarnation_id is not None:
            value["incarnation_id"] = uuid_to_text(registration.incarnation_id)
        return dump(value)

    @staticmethod
    def decode(broker_id: int, data: bytes, path: str | None = None) -> Registration:
        """Versions 2 to 5. `path` is where the data stands, if it is no registration but a record of one."""
        path = path or BrokerNode.path(broker_id)
        value = load(path, data)
        try:
            protocols = value.get("listener_security_protocol_map") or {}
            incarnation = value.get("incarnation_id")
            return Registration(
                broker_id=broker_id,
                endpoints=dict(_endpoint(text, protocols) for text in value["endpoints"]),
                rack=value.get("rack"),
                features={
                    name: (number_of(levels.get("min_version", 0)), number_of(levels["max_version"]))
                    for name, levels in (value.get("features") or {}).items()
                },
                incarnation_id=None if incarnation is None else uuid_from_text(incarnation),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise MalformedNode(path, data, error) from error


def _endpoint_text(name: str, endpoint: Endpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{name}://{host}:{endpoint.port}"


def _endpoint(text: str, protocols: Mapping[str, str]) -> tuple[str, Endpoint]:
    match = _ENDPOINT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no endpoint")
    name, host, port = match.groups()
    return name, Endpoint(host, int(port), protocols.get(name, name))


class ConfigsNode:
    """The folder of all dynamic configuration."""

    path = "/config"


class ConfigNode:
    """The dynamic settings of one resource."""

    _ALL = "<default>"

    _QUOTED = frozenset({"groups", "users", "clients"})
    """Kinds whose names may be any text."""

    @staticmethod
    def path(resource: ConfigResource) -> str:
        """Below the folder of the resource's kind; names that may be any text are quoted."""
        path = f"{ConfigsNode.path}/{resource.kind}/{ConfigNode._part(resource.kind, resource.name)}"
        if resource.client_id is None:
            return path
        return f"{path}/clients/{ConfigNode._part('clients', resource.client_id)}"

    @staticmethod
    def _part(kind: str, name: str) -> str:
        return (quoted(name) if kind in ConfigNode._QUOTED else name) or ConfigNode._ALL

    @staticmethod
    def resource(path: str) -> ConfigResource | None:
        """Whose settings a node holds; None for paths of other kinds of resources."""
        match path.removeprefix(f"{ConfigsNode.path}/").split("/"):
            case ["topics", name]:
                return ConfigResource("topics", name)
            case [("brokers" | "ips") as kind, name]:
                return ConfigResource(
                    "brokers" if kind == "brokers" else "ips", "" if name == ConfigNode._ALL else name
                )
            case ["groups", name] if name != ConfigNode._ALL:
                return ConfigResource("groups", unquoted(name))
            case [("users" | "clients") as kind, name]:
                return ConfigResource("users" if kind == "users" else "clients", unquoted(name))
            case ["users", name, "clients", client_id]:
                return ConfigResource("users", unquoted(name), unquoted(client_id))
        return None

    @staticmethod
    def encode(settings: Mapping[str, str]) -> bytes:
        """Version 1."""
        return dump({"version": 1, "config": dict(settings)})

    @staticmethod
    def decode(path: str, data: bytes) -> dict[str, str]:
        """Version 1; a node without data means no settings."""
        if not data:
            return {}
        settings = load(path, data).get("config") or {}
        if not isinstance(settings, dict):
            raise MalformedNode(path, data, "config is not a JSON object")
        return {str(key): str(value) for key, value in settings.items()}


def quoted(name: str) -> str:
    """A name as one part of a path, as Kafka quotes names of users and clients."""
    from urllib.parse import quote

    text = quote(name, safe="").replace("~", "%7E")
    return text.replace(".", "%2E") if text in (".", "..") else text


def unquoted(name: str) -> str:
    """The name that a part of a path stands for; "" for the default."""
    from urllib.parse import unquote

    return "" if name == "<default>" else unquote(name)


class ConfigChangesNode:
    """The folder of notes, numbered in order, that say whose dynamic settings were changed."""

    path = "/config/changes"
    prefix = f"{path}/config_change_"

    @staticmethod
    def encode(resource: ConfigResource) -> bytes:
        """Version 2."""
        return dump({"version": 2, "entity_path": ConfigNode.path(resource).removeprefix(f"{ConfigsNode.path}/")})

    @staticmethod
    def decode(path: str, data: bytes) -> ConfigResource | None:
        """Whose settings to read again; None for kinds of resources that are not known here."""
        try:
            return ConfigNode.resource(f"{ConfigsNode.path}/{load(path, data)['entity_path']}")
        except KeyError as error:
            raise MalformedNode(path, data, error) from error


class KnownBrokersNode:
    """The folder of records of brokers that were registered once. Kafka, which has no such folder, leaves it alone."""

    path = "/barnabas/brokers"


class KnownBrokerNode:
    """What a broker said of itself when it registered last; it stays when the broker goes, until it is forgotten.

    Its version is raised by every registration, so a write can depend on there having been none since.
    """

    @staticmethod
    def path(broker_id: int) -> str:
        """Below the folder of records; the data is that of a registration."""
        return f"{KnownBrokersNode.path}/{broker_id}"


class SecretNode:
    """What brokers of this cluster know and nobody else, made once; it proves that a broker is one."""

    path = "/barnabas/secret"

    @staticmethod
    def encode(secret: bytes) -> bytes:
        """As base64."""
        return dump({"version": 1, "secret": base64.b64encode(secret).decode()})

    @staticmethod
    def decode(data: bytes) -> bytes:
        """The secret; an error does not show it."""
        try:
            return base64.b64decode(load(SecretNode.path, data)["secret"], validate=True)
        except (KeyError, ValueError, TypeError, StoreError):
            raise MalformedNode(SecretNode.path, b"what is not shown", "it is no secret of a cluster") from None


class ClusterIdNode:
    """The cluster's id, made once."""

    path = "/cluster/id"

    @staticmethod
    def encode(cluster_id: str) -> bytes:
        """The version is text here, as Kafka has it."""
        return dump({"version": "1", "id": cluster_id})

    @staticmethod
    def decode(data: bytes) -> str:
        """The id."""
        cluster_id = load(ClusterIdNode.path, data).get("id")
        if not isinstance(cluster_id, str) or not cluster_id:
            raise MalformedNode(ClusterIdNode.path, data, "it has no id")
        return cluster_id


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """A block of producer ids that nobody else is given."""

    first: int
    count: int


class ProducerIdsNode:
    """The block of producer ids that was given out last."""

    path = "/latest_producer_id_block"

    @staticmethod
    def encode(broker_id: int, block: ProducerIds) -> bytes:
        """The bounds are text, both inclusive."""
        return dump(
            {
                "version": 1,
                "broker": broker_id,
                "block_start": str(block.first),
                "block_end": str(block.first + block.count - 1),
            }
        )

    @staticmethod
    def decode(data: bytes) -> ProducerIds | None:
        """The last block; None if there was none yet."""
        if not data:
            return None
        value = load(ProducerIdsNode.path, data)
        try:
            first, last = int(value["block_start"]), int(value["block_end"])
        except (KeyError, ValueError, TypeError) as error:
            raise MalformedNode(ProducerIdsNode.path, data, error) from error
        return ProducerIds(first, last - first + 1)


class FeaturesNode:
    """Finalized feature levels; its version is their epoch."""

    path = "/feature"

    @staticmethod
    def encode(features: Mapping[str, int]) -> bytes:
        """Version 2, enabled."""
        levels = {name: {"max_version_level": level} for name, level in features.items()}
        return dump({"version": 2, "status": 1, "features": levels})

    @staticmethod
    def decode(data: bytes) -> dict[str, int]:
        """Versions 1 and 2; when features are switched off there are none."""
        value = load(FeaturesNode.path, data)
        try:
            if value["status"] != 1:
                return {}
            return {name: number_of(levels["max_version_level"]) for name, levels in value["features"].items()}
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise MalformedNode(FeaturesNode.path, data, error) from error
