"""A running broker's configuration: what it was started with, and what was changed since through the metadata tree.

From strong to weak, as in Kafka: this broker's dynamic settings, those for all brokers, server.properties, defaults.
Values are read here whenever they are needed, so a change takes effect with the next request; whoever must act on a
change (resize, re-arm a timer, hand a log its new LogConfig) subscribes.

A Settings follows the metadata cache, and must be made before everyone else who does: subscribers of the cache are told
in their order, so the others then find new values here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.controller.image import ALL_BROKERS, ConfigResource
from barnabas.model.config.broker import check_together
from barnabas.model.config.definition import Mode, Standing, Value
from barnabas.model.config.keys import BROKER_KEYS, TOPIC_KEYS, of_one_listener
from barnabas.model.config.topic import check_overrides, resolve
from barnabas.model.config.topic_keys import SYNONYMS
from barnabas.model.config.values import Values
from barnabas.model.errors import ConfigError, InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.metadata.cache import Delta, MetadataCache
    from barnabas.model.config.broker import BrokerConfig
    from barnabas.model.config.definition import Key
    from barnabas.model.log_config import LogConfig

logger = logging.getLogger(__name__)

_ONLY_PER_LISTENER: Final = frozenset(
    {
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
_FOR_ALL_BROKERS: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
"""Keys of single listeners that may be set for all brokers at once."""
_LOG_KEYS: Final = frozenset(name for synonyms in SYNONYMS.values() for name, _ in synonyms)


class Changed(NamedTuple):
    """What is not what it was."""

    keys: frozenset[str]
    """Broker keys with new values."""
    topics: frozenset[str]
    """Topics whose LogConfig may be another: their own overrides changed, or a default of all."""


class Settings(Values):
    """The live configuration of one broker."""

    __slots__ = (
        "_common",
        "_live",
        "_log_configs",
        "_metadata",
        "_start",
        "_subscribers",
        "dynamic",
        "dynamic_default",
        "static",
        "writing",
    )

    def __init__(self, static: BrokerConfig, metadata: MetadataCache) -> None:
        self.static = static
        self.dynamic: Mapping[str, str] = {}
        """This broker's own dynamic settings, of those that can be used."""
        self.dynamic_default: Mapping[str, str] = {}
        """The dynamic settings for all brokers, of those that can be used."""
        self.writing = asyncio.Lock()
        """Held by whoever reads dynamic settings to write them back changed."""
        self._metadata = metadata
        self._start = {name: key.default for name, key in BROKER_KEYS.items()} | dict(static.parsed)
        self._live: Mapping[str, Value] = self._start
        self._log_configs: dict[str, tuple[Mapping[str, str], LogConfig]] = {}
        self._common: LogConfig | None = None
        self._subscribers: list[Callable[[Changed], None]] = []
        self._reload()
        metadata.subscribe(self._on_change)

    def value(self, name: str) -> Value:
        """The key's value at this moment."""
        return self._live[name]

    def log_config(self, topic: str) -> LogConfig:
        """The topic's effective configuration at this moment."""
        overrides = self._metadata.topic_config(topic)
        if not overrides:
            self._log_configs.pop(topic, None)
            if self._common is None:
                self._common = resolve({}, self)
            return self._common
        known = self._log_configs.get(topic)
        if known is not None and known[0] is overrides:
            return known[1]
        config = resolve(_readable(topic, overrides), self)
        self._log_configs[topic] = overrides, config
        return config

    def subscribe(self, callback: Callable[[Changed], None]) -> None:
        """Call `callback` after every change from now on."""
        self._subscribers.append(callback)

    def check_topic(self, overrides: Mapping[str, str | None]) -> None:
        """Refuse a topic's overrides that Kafka would refuse, with InvalidConfig."""
        missing = [name for name, text in overrides.items() if text is None]
        if missing:
            raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
        check_overrides({name: text for name, text in overrides.items() if text is not None}, self)

    def check_broker(self, dynamic: Mapping[str, str], *, all_brokers: bool) -> None:
        """Refuse a whole map of dynamic settings that cannot be used, with InvalidRequest and Kafka's words."""
        _refuse("Cannot update these configs dynamically", filter(_is_read_only, dynamic))
        _refuse(
            "These security configs can be dynamically updated only per-listener using the listener prefix",
            (name for name in dynamic if name in _ONLY_PER_LISTENER),
        )
        for name, text in dynamic.items():
            try:
                if (key := _key(name)) is not None:
                    key.parse(text)
            except InvalidConfig as error:
                raise InvalidRequest(str(error)) from None
        if all_brokers:
            _refuse(
                "Cannot update these configs at default cluster level, broker id must be specified",
                filter(_is_per_broker, dynamic),
            )
        layers = (dynamic, self.dynamic) if all_brokers else (self.dynamic_default, dynamic)
        try:
            check_together(_Layers(self._start | _values(layers[0]) | _values(layers[1])))
        except ConfigError as error:
            raise InvalidRequest(str(error)) from None

    def _reload(self) -> None:
        """Take over the dynamic settings of the newest image."""
        self.dynamic_default = _usable(self._metadata.default_broker_config(), "all brokers")
        self.dynamic = _usable(self._metadata.broker_config(self.static.node_id), f"broker {self.static.node_id}")
        self._live = self._start | _values(self.dynamic_default) | _values(self.dynamic)

    def _on_change(self, delta: Delta) -> None:
        for topic in delta.deleted:
            self._log_configs.pop(topic.name, None)
        if not delta.configs:
            return
        before, keys = self._live, frozenset[str]()
        if ALL_BROKERS in delta.configs or ConfigResource.broker(self.static.node_id) in delta.configs:
            self._reload()
            keys = frozenset(name for name, value in self._live.items() if before[name] != value)
            _report(keys, self._live)
        topics = frozenset(resource.name for resource in delta.configs if resource.kind == "topics")
        if keys & _LOG_KEYS:
            self._common = None
            self._log_configs.clear()
            topics = frozenset(delta.after.topics)
        changed = Changed(keys, topics)
        if keys or topics:
            for callback in self._subscribers:
                callback(changed)


class _Layers(Values):
    """Values that might come to be."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def value(self, name: str) -> Value:
        return self._values[name]


def _key(name: str) -> Key | None:
    """The key that a dynamic setting is about, for one listener or for the broker."""
    return BROKER_KEYS.get(of_one_listener(name) or name)


def _is_read_only(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    return key is not None and key.mode is Mode.READ_ONLY and key.standing is not Standing.RETIRED


def _is_per_broker(name: str) -> bool:
    base = of_one_listener(name)
    if base is not None:
        return base not in _FOR_ALL_BROKERS
    key = BROKER_KEYS.get(name)
    return key is not None and key.mode is Mode.PER_BROKER


def _refuse(reason: str, names: Iterable[str]) -> None:
    refused = ", ".join(names)
    if refused:
        raise InvalidRequest(f"{reason}: [{refused}]")


def _usable(settings: Mapping[str, str], whose: str) -> dict[str, str]:
    """The settings without those that an older or newer broker left and that mean nothing here."""
    usable: dict[str, str] = {}
    for name, text in settings.items():
        key = _key(name)
        if _is_read_only(name):
            logger.error("dynamic setting %s of %s is left out: it cannot change while the broker runs", name, whose)
            continue
        try:
            if key is not None:
                key.parse(text)
        except InvalidConfig as error:
            logger.error("dynamic setting of %s is left out: %s", whose, error)
            continue
        usable[name] = text
    return usable


def _values(settings: Mapping[str, str]) -> dict[str, Value]:
    return {name: BROKER_KEYS[name].parse(text) for name, text in settings.items() if name in BROKER_KEYS}


def _readable(topic: str, overrides: Mapping[str, str]) -> Mapping[str, str]:
    """The overrides without those that cannot be read."""
    readable: dict[str, str] = {}
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            continue
        try:
            key.read(text)
        except InvalidConfig as error:
            logger.error("override of topic %s is left out: %s", topic, error)
            continue
        readable[name] = text
    return readable


def _report(names: Iterable[str], values: Mapping[str, Value]) -> None:
    for name in sorted(names):
        key = BROKER_KEYS[name]
        if key.standing is Standing.HONOURED:
            logger.info("%s is now %s", name, key.write(values[name]))
        else:
            logger.warning("%s was changed, which has no effect here", name)
