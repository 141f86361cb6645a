"""What is set for a resource and where each value comes from, as DescribeConfigs tells it.

Kafka's rules: a value's source is the strongest place that names the key itself, so a broker key that stands for
another (log.retention.hours for log.retention.ms) gives the value but is not told as its source.

The value of a password is never told, nor that of a key that nobody knows, which may be one. A setting of one listener
is what its key is: `listener.name.X.ssl.keystore.location` is told, `listener.name.X.ssl.keystore.password` is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.describe_configs.v4.response import DescribeConfigsResourceResult, DescribeConfigsSynonym
from kio.static.primitive import i8

from barnabas.broker.serving import log_levels
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.controller.names import check_name
from barnabas.model.config.definition import Mode, write_value
from barnabas.model.config.group import value as group_value
from barnabas.model.config.keys.all_keys import (
    BROKER_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    broker_key_of,
    listener_setting,
    of_one_listener,
)
from barnabas.model.config.keys.group_keys import broker_key
from barnabas.model.config.keys.topic_keys import SYNONYMS
from barnabas.model.config.topic import broker_default
from barnabas.model.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from barnabas.protocol.apis import ConfigSource, ResourceType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.settings import Settings
    from barnabas.model.config.definition import Key


ENTRIES: Final = 50
"""About as many keys has a resource."""
CHAINS: Final = {
    name: tuple(member for member, _ in chain)
    for chain in SYNONYMS.values()
    for name, _ in (chain if chain[0][0] != "log.flush.interval.ms" else chain[:1])
}
"""Broker keys that say the same thing, strongest first, by each of them."""


class Origin(NamedTuple):
    """One place where a value is set, and how it is written there."""

    name: str
    text: str | None
    source: ConfigSource


class Describer:
    """Describes resources for one request."""

    def __init__(self, broker: BrokerContext, with_synonyms: bool, with_documentation: bool) -> None:
        self._broker = broker
        self._settings = broker.settings
        self._with_synonyms = with_synonyms
        self._with_documentation = with_documentation

    def entries(self, kind: int, name: str) -> Iterable[DescribeConfigsResourceResult]:
        """Every key of a resource, sorted by name; raises ApiError when there is no such resource."""
        own_id = self._broker.broker_id
        match kind:
            case ResourceType.TOPIC:
                return self._topic(name)
            case ResourceType.BROKER if not name:
                return map(self._for_all_brokers, sorted(self._settings.dynamic_default))
            case ResourceType.BROKER:
                _check_broker_id(name, own_id, f"expected {own_id} or empty string, but")
                return map(self._of_this_broker, sorted(_broker_keys(self._settings)))
            case ResourceType.BROKER_LOGGER:
                _check_broker_id(name, own_id, f"expected {own_id} but")
                return self._loggers()
            case ResourceType.GROUP:
                return self._group(name)
            case _:
                raise unsupported(kind)

    def _topic(self, topic: str) -> Iterable[DescribeConfigsResourceResult]:
        check_name(topic)
        if self._broker.metadata.topic(topic) is None:
            raise UnknownTopicOrPartition(f"The topic '{topic}' does not exist.")
        return self.topic_with(self._broker.metadata.topic_config(topic))

    def topic_with(self, overrides: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
        """Every key of a topic that has, or would have, these overrides, sorted by name."""
        names = {name for name, key in TOPIC_KEYS.items() if not key.hidden} | overrides.keys()
        return (self._of_topic(name, overrides) for name in sorted(names))

    def _of_topic(self, name: str, overrides: Mapping[str, str]) -> DescribeConfigsResourceResult:
        key, text = TOPIC_KEYS.get(name), overrides.get(name)
        shown = _shown(key, text) if text is not None else write_value(broker_default(name, self._settings))
        origins = [Origin(name, shown, ConfigSource.DYNAMIC_TOPIC_CONFIG)] if text is not None else []
        if name in SYNONYMS:
            origins += _origins(self._settings, SYNONYMS[name][0][0])
        return self._entry(name, key, shown, origins, read_only=False)

    def _of_this_broker(self, name: str) -> DescribeConfigsResourceResult:
        key, origins = _key_of(name), _origins(self._settings, name)
        shown = write_value(self._settings.value(name)) if name in BROKER_KEYS else origins[0].text
        return self._entry(name, key, shown, origins, read_only=_is_read_only(name))

    def _for_all_brokers(self, name: str) -> DescribeConfigsResourceResult:
        key, text = _key_of(name), self._settings.dynamic_default[name]
        origins = [
            origin
            for origin in _origins(self._settings, name)
            if origin.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        return self._entry(name, key, text, origins, read_only=_is_read_only(name))

    def _loggers(self) -> Iterable[DescribeConfigsResourceResult]:
        for name, level in log_levels.levels().items():
            yield DescribeConfigsResourceResult(
                name=name,
                value=level,
                read_only=False,
                config_source=i8(ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG),
                is_sensitive=False,
                synonyms=(),
                documentation=None,
            )

    def _group(self, group_id: str) -> Iterable[DescribeConfigsResourceResult]:
        if not group_id:
            raise InvalidRequest("Group name must not be empty")
        settings = self._broker.metadata.image.config(ConfigResource("groups", group_id))
        return (self._of_group(name, settings) for name in sorted(GROUP_KEYS.keys() | settings.keys()))

    def _of_group(self, name: str, settings: Mapping[str, str]) -> DescribeConfigsResourceResult:
        """A group need not be there; a key that nobody knows is shown as it was set."""
        key, text = GROUP_KEYS.get(name), settings.get(name)
        shown = _shown(key, text) if text is not None else write_value(group_value(name, {}, self._settings))
        origins = [Origin(name, shown, ConfigSource.DYNAMIC_GROUP_CONFIG)] if text is not None else []
        behind = broker_key(name)
        if behind in BROKER_KEYS:
            origins += _origins(self._settings, behind)
        elif key is not None:
            origins.append(Origin(name, key.write(key.default), ConfigSource.DEFAULT_CONFIG))
        return self._entry(name, key, shown, origins, read_only=False)

    def _entry(
        self, name: str, key: Key | None, shown: str | None, origins: list[Origin], *, read_only: bool
    ) -> DescribeConfigsResourceResult:
        secret = key is None or key.sensitive
        synonyms = (
            DescribeConfigsSynonym(name=origin.name, value=None if secret else origin.text, source=i8(origin.source))
            for origin in origins
        )
        return DescribeConfigsResourceResult(
            name=name,
            value=None if secret else shown,
            read_only=read_only,
            config_source=i8(origins[0].source if origins else ConfigSource.DEFAULT_CONFIG),
            is_sensitive=secret,
            synonyms=tuple(synonyms) if self._with_synonyms else (),
            config_type=i8(0 if key is None else key.type),
            documentation=key.doc if key is not None and key.name == name and self._with_documentation else None,
        )


def _broker_keys(settings: Settings) -> set[str]:
    """What is shown of a broker: every key that is not hidden, and everything that was set."""
    shown = {name for name, key in BROKER_KEYS.items() if not key.hidden}
    return shown.union(settings.static.given, settings.dynamic_default, settings.dynamic)


def _origins(settings: Settings, name: str) -> list[Origin]:
    """Where the broker key is set, strongest first; not before it is named itself, as Kafka has it."""
    base = of_one_listener(name)
    names = CHAINS.get(name, (name,)) if base is None else (name, base)
    layers = (
        (settings.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (settings.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (settings.static.given, ConfigSource.STATIC_BROKER_CONFIG),
        ({member: _default(member) for member in names}, ConfigSource.DEFAULT_CONFIG),
    )
    found = [
        Origin(member, text, source)
        for texts, source in layers
        for member in names
        if (text := texts.get(member)) is not None
    ]
    first = next((place for place, origin in enumerate(found) if origin.name == name), len(found))
    return found[first:]


def _default(name: str) -> str | None:
    key = BROKER_KEYS.get(name)
    return None if key is None else key.write(key.default)


def _key_of(name: str) -> Key | None:
    """The key that a broker's setting is about; as in Kafka, those of OAUTHBEARER on one listener are not known."""
    setting = listener_setting(name)
    if setting is not None and setting.mechanism == "oauthbearer" and setting.key.startswith("sasl.oauthbearer."):
        return None
    return broker_key_of(name)


def _is_read_only(name: str) -> bool:
    """Settings of single listeners are told to be, though they can be changed: Kafka tells so."""
    key = BROKER_KEYS.get(name)
    return key is None or key.mode is Mode.READ_ONLY


def _shown(key: Key | None, text: str) -> str | None:
    """An override as it is understood; as it is written if it cannot be."""
    try:
        return text if key is None else key.write(key.read(text))
    except InvalidConfig:
        return text


def _check_broker_id(name: str, own_id: int, expected: str) -> None:
    if not name:
        raise InvalidRequest("Broker id must not be empty")
    if not name.removeprefix("-").isdecimal():
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if name != str(own_id):  # not 01 either: one request could name a broker in a hundred thousand ways
        raise InvalidRequest(f"Unexpected broker id, {expected} received {name}")


def unsupported(kind: int) -> InvalidRequest:
    """Why a kind of resource has no configuration here."""
    if kind == ResourceType.CLIENT_METRICS:
        return InvalidRequest("Client metrics have no configuration in Barnabas.")
    return InvalidRequest(f"Unknown resource type {kind}")
