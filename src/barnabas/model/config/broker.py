"""A broker's configuration as it was started with: server.properties and `--set`, checked, with Kafka's defaults.

`BrokerConfig.load` is the only way to make one, so everything that has a BrokerConfig has a usable one: every value was
parsed by its key, and the rules that span several keys hold. What the broker will ignore is told in `warnings`, once
per key, and a key that is nearly one of ours or Kafka's stops the start, since a typing error must not go unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from barnabas.model.config.definition import Key, Standing, Value
from barnabas.model.config.keys import BROKER_KEYS, of_one_listener
from barnabas.model.config.listeners import (
    Listener,
    check_advertised,
    check_listeners,
    parse_listeners,
    parse_protocol_map,
)
from barnabas.model.config.old_names import of_today
from barnabas.model.config.topic_keys import SYNONYMS
from barnabas.model.config.values import Values
from barnabas.model.errors import ConfigError, InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_NODE_ID: Final = 1
RACK_AWARE_SELECTOR: Final = "RackAwareReplicaSelector"

_TOO_CLOSE: Final = 0.92
"""Names more alike than this are taken for typing errors."""


@dataclass(frozen=True, slots=True)
class BrokerConfig(Values):
    """A checked configuration; immutable. What changes at run time lives in `broker/settings`."""

    given: Mapping[str, str]
    """What was set, as it was written, unknown keys included."""
    parsed: Mapping[str, Value]
    """The values of the known keys that were set."""
    node_id: int
    listeners: tuple[Listener, ...]
    """Where to listen; Kafka's controller listeners are left out."""
    advertised: tuple[Listener, ...]
    """What clients are told, by listener name. An empty host is for the broker to fill in with the machine's name,
    port 0 with the port it got."""
    inter_broker_listener: str
    log_dirs: tuple[Path, ...]
    metadata_store: Path
    """Where the metadata tree is, unless it is in a ZooKeeper."""
    zookeeper: str | None
    """The connect string of the ZooKeeper that holds the metadata tree, if one does."""
    warnings: tuple[str, ...]
    """What to tell the user about keys that have no effect; one line each."""

    @staticmethod
    def load(properties: Mapping[str, str]) -> BrokerConfig:
        """Check a configuration; raises ConfigError when it cannot be used."""
        return _load(properties)

    def value(self, name: str) -> Value:
        """The key's value: what was set, else the default."""
        if name in self.parsed:
            return self.parsed[name]
        return BROKER_KEYS[name].default

    def is_set(self, name: str) -> bool:
        """Whether the key was set, and not left to its default."""
        return name in self.given


def _load(properties: Mapping[str, str]) -> BrokerConfig:
    given: dict[str, str] = {}
    parsed: dict[str, Value] = {}
    properties, warnings = of_today(properties)
    for name, text in properties.items():
        given[name] = text
        key = BROKER_KEYS.get(name)
        if key is None:
            warnings.append(_about_unknown(name))
            continue
        parsed[name] = _parse(key, text)
        if key.standing in (Standing.IGNORED, Standing.RETIRED):
            warnings.append(f"{name} is a key of Apache Kafka that has no effect here: ignored")
    node_id = _node_id(parsed)
    _give_both_ids(node_id, given, parsed)
    draft = _Draft(parsed)
    check_together(draft)
    _check_selector(draft)
    listeners, advertised = _listeners(draft)
    log_dirs = tuple(Path(item) for item in draft.items("log.dirs") or draft.items("log.dir"))
    return BrokerConfig(
        given=MappingProxyType(given),
        parsed=MappingProxyType(parsed),
        node_id=node_id,
        listeners=listeners,
        advertised=advertised,
        inter_broker_listener=_inter_broker_listener(draft, advertised),
        log_dirs=log_dirs,
        metadata_store=_metadata_store(draft, log_dirs),
        zookeeper=_zookeeper(draft),
        warnings=tuple(warnings),
    )


class _Draft(Values):
    """Parsed values before the rules that span several keys were checked."""

    __slots__ = ("_parsed",)

    def __init__(self, parsed: Mapping[str, Value]) -> None:
        self._parsed = parsed

    def value(self, name: str) -> Value:
        return self._parsed.get(name, BROKER_KEYS[name].default)

    def is_set(self, name: str) -> bool:
        return name in self._parsed


def _parse(key: Key, text: str) -> Value:
    try:
        return key.parse(text)
    except InvalidConfig as error:
        takes = "" if key.takes is None else f", takes {key.takes}"
        raise ConfigError(f"{error} (type {key.type.name.lower()}{takes})") from None


def _about_unknown(name: str) -> str:
    """A warning about a key that nobody knows; raises ConfigError when it looks like a typing error."""
    if of_one_listener(name) is not None:
        return f"{name} sets one listener apart, which has no effect here: ignored"
    if name in SYNONYMS:
        return f"{name} is a topic's key: ignored; the broker's default for it is {SYNONYMS[name][0][0]}"
    plain = re.sub("[_-]", ".", name).lower()
    nearest = plain if plain in BROKER_KEYS else _nearest(plain)
    if nearest is not None:
        raise ConfigError(f"{name} is not a configuration key: did you mean {nearest}?")
    return f"{name} is not a key that Barnabas or Apache Kafka knows: ignored"


def _nearest(name: str) -> str | None:
    import difflib  # here, because only a mistake needs it and the start should not pay for it

    matches = difflib.get_close_matches(name, BROKER_KEYS, n=1, cutoff=_TOO_CLOSE)
    return matches[0] if matches else None


def _node_id(parsed: Mapping[str, Value]) -> int:
    node_id, broker_id = parsed.get("node.id"), parsed.get("broker.id")
    if broker_id == -1:
        broker_id = None
    if node_id is not None and broker_id is not None and node_id != broker_id:
        raise ConfigError(f"node.id is {node_id} and broker.id is {broker_id}: they are one thing, set them alike")
    chosen = node_id if node_id is not None else broker_id
    if chosen is None:
        return DEFAULT_NODE_ID
    if not isinstance(chosen, int) or chosen < 0:
        raise ConfigError(f"broker.id is {chosen}: it must be 0 or more")
    return chosen


def _give_both_ids(node_id: int, given: dict[str, str], parsed: dict[str, Value]) -> None:
    """node.id and broker.id are shown alike, whichever of them was set."""
    for name in ("node.id", "broker.id"):
        given[name] = str(node_id)
        parsed[name] = node_id


def check_together(values: Values) -> None:
    """The rules that span several keys, of those that may change at run time; raises ConfigError."""
    _check_times(values)
    _check_limits(values)


def _check_times(values: Values) -> None:
    """The rules for the times that log keys stand for, whichever unit they were given in."""
    for topic_key, least in (("retention.ms", 1), ("segment.ms", 1), ("segment.jitter.ms", 0)):
        for name, _ in SYNONYMS[topic_key]:
            value = values.number_or_none(name)
            if value is None:
                continue
            if value < least and not (topic_key == "retention.ms" and value < 0):
                unlimited = "-1 (unlimited) or " if topic_key == "retention.ms" else ""
                raise ConfigError(f"{name} is {value}: it must be {unlimited}{least} or more")
            break


def _check_limits(values: Values) -> None:
    queued, largest = values.number("queued.max.request.bytes"), values.number("socket.request.max.bytes")
    if 0 < queued < largest:
        raise ConfigError(
            f"queued.max.request.bytes is {queued}, less than socket.request.max.bytes ({largest}): "
            "one largest request must fit; raise the first or lower the second"
        )
    overrides = parse_connection_overrides(values.text("max.connections.per.ip.overrides"))
    if values.number("max.connections.per.ip") == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip is 0, so nobody could connect: "
            "name the addresses that may in max.connections.per.ip.overrides"
        )


def parse_connection_overrides(text: str) -> dict[str, int]:
    """Read max.connections.per.ip.overrides: the most connections, by host or address."""
    limits: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = entry.rpartition(":")
        if not colon or not host.strip() or not (count.strip().isascii() and count.strip().isdigit()):
            raise ConfigError(
                f"max.connections.per.ip.overrides has the entry {entry!r}: write HOST:COUNT, separated by commas"
            )
        limits[host.strip()] = int(count)
    return limits


def _listeners(draft: _Draft) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    protocols = parse_protocol_map(draft.text("listener.security.protocol.map"))
    quorum = {name.upper() for name in draft.items("controller.listener.names")}

    def clients_only(key: str) -> list[str]:
        return [entry for entry in draft.items(key) if entry.partition("://")[0].strip().upper() not in quorum]

    listeners = parse_listeners("listeners", clients_only("listeners"), protocols)
    if not listeners:
        raise ConfigError("listeners has none for clients: add one, for example PLAINTEXT://:9092")
    check_listeners(listeners)
    if not draft.is_set("advertised.listeners"):
        advertised = listeners
        meta = next((listener for listener in listeners if listener.host in ("0.0.0.0", "::")), None)
        if meta is not None:
            raise ConfigError(
                f"listeners has {meta}, an address that clients cannot use: "
                f"set advertised.listeners to one that they can, for example {meta.name}://localhost:{meta.port}"
            )
    else:
        advertised = parse_listeners("advertised.listeners", clients_only("advertised.listeners"), protocols)
    if not advertised:
        raise ConfigError("advertised.listeners has none for clients: add one, for example PLAINTEXT://localhost:9092")
    check_advertised(advertised, listeners)
    return listeners, advertised


def _inter_broker_listener(draft: _Draft, advertised: tuple[Listener, ...]) -> str:
    name, protocol = draft.text_or_none("inter.broker.listener.name"), draft.text("security.inter.broker.protocol")
    if name is not None and draft.is_set("security.inter.broker.protocol"):
        raise ConfigError("inter.broker.listener.name and security.inter.broker.protocol are both set: set only one")
    wanted = (name or protocol).upper()
    names = [listener.name for listener in advertised]
    if wanted in names:
        return wanted
    key = "security.inter.broker.protocol" if name is None else "inter.broker.listener.name"
    raise ConfigError(
        f"{key} is {wanted}, which is not among the advertised listeners ({', '.join(names)}): "
        "set inter.broker.listener.name to one of them"
    )


def _check_selector(draft: _Draft) -> None:
    selector = draft.text_or_none("replica.selector.class")
    if selector and selector.rpartition(".")[2] != RACK_AWARE_SELECTOR:
        raise ConfigError(
            f"replica.selector.class is {selector}: only org.apache.kafka.common.replica.{RACK_AWARE_SELECTOR} is known"
        )


def _zookeeper(draft: _Draft) -> str | None:
    hosts = draft.text_or_none("zookeeper.connect")
    if hosts and draft.is_set("metadata.store"):
        raise ConfigError("zookeeper.connect and metadata.store are both set: the metadata tree has one place, set one")
    username, password = draft.text_or_none("zookeeper.auth.username"), draft.text_or_none("zookeeper.auth.password")
    if bool(username) != bool(password):
        raise ConfigError("of zookeeper.auth.username and zookeeper.auth.password one is set: set both, or none")
    if draft.flag("zookeeper.set.acl") and not username:
        raise ConfigError(
            "zookeeper.set.acl makes nodes that only their maker can use: "
            "set zookeeper.auth.username and zookeeper.auth.password, so that brokers have a name"
        )
    return hosts or None


def _metadata_store(draft: _Draft, log_dirs: tuple[Path, ...]) -> Path:
    given = draft.text_or_none("metadata.store")
    if given == "":
        raise ConfigError("metadata.store is empty: name a file, or take the key out")
    if given is None:
        return log_dirs[0].with_name(f"{log_dirs[0].name}.metadata")
    path = Path(given)
    inside = next((directory for directory in log_dirs if path.is_relative_to(directory)), None)
    if inside is not None:
        raise ConfigError(f"metadata.store is {path}, inside the data directory {inside}: put it elsewhere")
    return path
