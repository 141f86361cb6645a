"""A broker's configuration as it was started with: server.properties and `--set`, checked, with Kafka's defaults.

`BrokerConfig.load` is the only way to make one, so everything that has a BrokerConfig has a usable one: every value was
parsed by its key, and the rules that span several keys hold. `warnings` has a line for each key that the broker will
ignore. A key that is nearly one of ours or Kafka's stops the start, since a typing error must not go unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from barnabas.model.config.authorizer import check_authorizer, check_classes
from barnabas.model.config.definition import Key, Support, Value
from barnabas.model.config.keys.all_keys import BROKER_KEYS, listener_setting
from barnabas.model.config.keys.old_names import of_today
from barnabas.model.config.keys.topic_keys import SYNONYMS
from barnabas.model.config.listeners import (
    Listener,
    check_advertised,
    check_listeners,
    metrics_listener,
    parse_listeners,
    parse_protocol_map,
)
from barnabas.model.config.per_listener import (
    ListenerValues,
    is_per_listener,
    parse_listener_settings,
    unknown_listeners,
)
from barnabas.model.config.properties import shown_name
from barnabas.model.config.values import Values
from barnabas.model.errors import ConfigError, InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.config.keys.all_keys import ListenerSetting

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
    per_listener: Mapping[str, Value]
    """The values that were set for single listeners, by their whole names (listener.name.X.KEY)."""
    node_id: int
    listeners: tuple[Listener, ...]
    """Where to listen; Kafka's controller listeners are left out."""
    advertised: tuple[Listener, ...]
    """The addresses that clients are given, by listener name. The broker puts the machine's name in the place of an
    empty host, and the port that it got in the place of port 0."""
    inter_broker_listener: str
    log_dirs: tuple[Path, ...]
    metadata_store: Path
    """Where the metadata tree is, unless it is in a ZooKeeper."""
    zookeeper: str | None
    """The connect string of the ZooKeeper that holds the metadata tree, if one does."""
    warnings: tuple[str, ...]
    """Lines to log about keys that have no effect."""

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

    def of_listener(self, name: str) -> ListenerValues:
        """The values that count for one listener."""
        return ListenerValues(name, self.per_listener, self)


def _load(properties: Mapping[str, str]) -> BrokerConfig:
    given: dict[str, str] = {}
    parsed: dict[str, Value] = {}
    properties, warnings = of_today(properties)
    for name, text in properties.items():
        given[name] = text
        key = BROKER_KEYS.get(name)
        if key is None:
            warnings += _warnings_of_unknown(name)
            continue
        parsed[name] = _parse(key, text)
        if key.support in (Support.IGNORED, Support.RETIRED):
            warnings.append(f"{name} is ignored: this key of Apache Kafka has no effect in Barnabas")
    check_classes(given)
    node_id = _node_id(parsed)
    _set_both_ids(node_id, given, parsed)
    draft = _Draft(parsed)
    check_together(draft)
    _check_selector(draft)
    check_authorizer(draft)
    listeners, advertised = _listeners(draft)
    per_listener = _of_single_listeners(given)
    metrics = metrics_listener(draft)
    if metrics is not None:
        if any(listener.name == metrics.listener.name for listener in listeners):
            raise ConfigError(f"listeners has one named {metrics.listener.name}, as metrics.listener is: rename it")
        if metrics.uses_tls:
            from barnabas.model.config.tls import check_tls  # here: most brokers have no TLS

            check_tls(ListenerValues(metrics.listener.name, per_listener, draft))
    known = [*listeners, *(() if metrics is None else (metrics.listener,))]
    warnings += [
        f"{name} is ignored: there is no listener of this name"
        for name in unknown_listeners(per_listener, (listener.name for listener in known))
    ]
    for listener in listeners:
        if listener.uses_tls:
            _check_tls(ListenerValues(listener.name, per_listener, draft))
    inter_broker_listener = _inter_broker_listener(draft, advertised)
    for listener in listeners:
        if listener.uses_sasl:
            check_logins(ListenerValues(listener.name, per_listener, draft), inter_broker_listener)
    log_dirs = tuple(Path(item) for item in draft.items("log.dirs") or draft.items("log.dir"))
    return BrokerConfig(
        given=MappingProxyType(given),
        parsed=MappingProxyType(parsed),
        per_listener=MappingProxyType(per_listener),
        node_id=node_id,
        listeners=listeners,
        advertised=advertised,
        inter_broker_listener=inter_broker_listener,
        log_dirs=log_dirs,
        metadata_store=_metadata_store(draft, log_dirs),
        zookeeper=_zookeeper(draft),
        warnings=tuple(warnings),
    )


def _check_tls(values: ListenerValues) -> None:
    from barnabas.model.config.principal_rules import PrincipalRules  # here: most brokers have no TLS
    from barnabas.model.config.tls import check_tls

    check_tls(values)
    PrincipalRules(values.text("ssl.principal.mapping.rules"))


def check_logins(values: ListenerValues, inter_broker_listener: str) -> None:
    """Refuse settings of a SASL listener by which nobody could log in, or no other broker; raises ConfigError."""
    from barnabas.model.config.sasl import broker_login, check_sasl  # here: most brokers have no logins

    check_sasl(values)
    if values.listener == inter_broker_listener:
        broker_login(values)


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


def _warnings_of_unknown(name: str) -> list[str]:
    """Warnings about a name that is no broker key; raises ConfigError when it looks like a typing error."""
    setting = listener_setting(name)
    if setting is not None:
        return _warnings_of_listener_setting(name, setting)
    if name in SYNONYMS:
        return [f"{name} is ignored: it is a key of topics; the default for all topics is {SYNONYMS[name][0][0]}"]
    if (meant := _meant(name)) is not None:
        raise ConfigError(f"{name} is not a configuration key: did you mean {meant}?")
    return [f"{shown_name(name)} is ignored: it is not a key of Barnabas or Apache Kafka"]


def _warnings_of_listener_setting(name: str, setting: ListenerSetting) -> list[str]:
    written, prefix = setting.listener, name[: name.index(setting.key)]
    if written != written.lower():
        raise ConfigError(f"{name} is not a configuration key: did you mean {prefix.lower()}{setting.key}?")
    key = BROKER_KEYS.get(setting.key)
    if key is None:
        if (meant := _meant(setting.key)) is not None:
            raise ConfigError(f"{name} is not a configuration key: did you mean {prefix}{meant}?")
        return [f"{name} is ignored: {setting.key} is not a key of Barnabas or Apache Kafka"]
    if not is_per_listener(key.name):
        return [f"{name} is ignored: {key.name} cannot be set for one listener"]
    if key.support in (Support.IGNORED, Support.RETIRED):
        return [f"{name} is ignored: this key of Apache Kafka has no effect in Barnabas"]
    if setting.mechanism is not None:
        from barnabas.model.config.sasl import MECHANISMS  # here: most brokers have no logins

        mechanisms = [each.lower() for each in MECHANISMS]
        if setting.mechanism not in mechanisms:
            return [f"{name} is ignored: {setting.mechanism} is none of the mechanisms {', '.join(mechanisms)}"]
    return []


def _of_single_listeners(given: Mapping[str, str]) -> dict[str, Value]:
    try:
        return parse_listener_settings(given)
    except InvalidConfig as error:
        raise ConfigError(str(error)) from None


def _meant(name: str) -> str | None:
    """The key that a name was probably meant to be; None if it resembles none."""
    plain = re.sub("[_-]", ".", name).lower()
    return plain if plain in BROKER_KEYS else _nearest(plain)


def _nearest(name: str) -> str | None:
    import difflib  # here, because only a mistake needs it and the start should not pay for it

    matches = difflib.get_close_matches(name, BROKER_KEYS, n=1, cutoff=_TOO_CLOSE)
    return matches[0] if matches else None


def _node_id(parsed: Mapping[str, Value]) -> int:
    node_id, broker_id = parsed.get("node.id"), parsed.get("broker.id")
    if broker_id == -1:
        broker_id = None
    if node_id is not None and broker_id is not None and node_id != broker_id:
        raise ConfigError(
            f"node.id is {node_id} and broker.id is {broker_id}: they are the same setting, so set only one"
        )
    chosen = node_id if node_id is not None else broker_id
    if chosen is None:
        return DEFAULT_NODE_ID
    if not isinstance(chosen, int) or chosen < 0:
        raise ConfigError(f"broker.id is {chosen}: it must be 0 or more")
    return chosen


def _set_both_ids(node_id: int, given: dict[str, str], parsed: dict[str, Value]) -> None:
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
            "the largest request must fit; raise the first or lower the second"
        )
    overrides = parse_connection_overrides(values.text("max.connections.per.ip.overrides"))
    if values.number("max.connections.per.ip") == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip is 0, so no client can connect: "
            "set it to 1 or more, or name addresses in max.connections.per.ip.overrides"
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
        raise ConfigError("listeners has no listener for clients: add one, for example PLAINTEXT://:9092")
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
        raise ConfigError(
            "advertised.listeners has no listener for clients: add one, for example PLAINTEXT://localhost:9092"
        )
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
            f"replica.selector.class is {selector}: only org.apache.kafka.common.replica.{RACK_AWARE_SELECTOR} works"
        )


def _zookeeper(draft: _Draft) -> str | None:
    hosts = draft.text_or_none("zookeeper.connect")
    if hosts and draft.is_set("metadata.store"):
        raise ConfigError(
            "zookeeper.connect and metadata.store are both set: the metadata is in one of them, set only one"
        )
    username, password = draft.text_or_none("zookeeper.auth.username"), draft.text_or_none("zookeeper.auth.password")
    if bool(username) != bool(password):
        raise ConfigError("only one of zookeeper.auth.username and zookeeper.auth.password is set: set both or neither")
    if draft.flag("zookeeper.set.acl") and not username:
        raise ConfigError(
            "zookeeper.set.acl is true, but the broker does not authenticate to ZooKeeper: "
            "set zookeeper.auth.username and zookeeper.auth.password"
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
