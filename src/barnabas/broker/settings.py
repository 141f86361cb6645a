"""A running broker's configuration: what it was started with, and what was changed since through the metadata tree.

From strong to weak, as in Kafka: this broker's dynamic settings, those for all brokers, server.properties, defaults.
Values are read here whenever they are needed, so a change takes effect with the next request; whoever must act on a
change (resize, re-arm a timer, hand a log its new LogConfig) subscribes.

A Settings follows the metadata cache, and must be made before everyone else who does: subscribers of the cache are
called in their order, so the others then find new values here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.controller.image import ALL_BROKERS, ConfigResource
from barnabas.model.config.authorizer import check_classes
from barnabas.model.config.broker import check_logins, check_together
from barnabas.model.config.definition import Mode, Support, Value
from barnabas.model.config.keys.all_keys import BROKER_KEYS, TOPIC_KEYS, broker_key_of, of_one_listener
from barnabas.model.config.keys.topic_keys import SYNONYMS
from barnabas.model.config.per_listener import ListenerValues, parse_listener_settings
from barnabas.model.config.topic import check_overrides, resolve
from barnabas.model.config.values import Values
from barnabas.model.errors import ConfigError, InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.broker.security.password_encoder import PasswordEncoder
    from barnabas.metadata.images.cache import Delta, MetadataCache
    from barnabas.model.config.broker import BrokerConfig
    from barnabas.model.log_config import LogConfig

logger = logging.getLogger(__name__)

_IDENTITY_AT_START: Final = (
    "sasl.oauthbearer.",
    "org.apache.kafka.sasl.oauthbearer.",
    "sasl.kerberos.",
    "ssl.principal.mapping.rules",
)
"""How keys of one listener begin that say whom to believe, and that are read at the start only.

They are refused while the broker runs: whoever is told that a stricter issuer was set must be able to rely on it.
"""
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
_SECRETS: Final = ("password.encoder.secret", "password.encoder.old.secret")
_LOG_KEYS: Final = frozenset(name for synonyms in SYNONYMS.values() for name, _ in synonyms)


class Changed(NamedTuple):
    """Broker keys and topics whose configuration has changed."""

    keys: frozenset[str]
    """Broker keys with new values, and whole names of settings of single listeners."""
    topics: frozenset[str]
    """Topics whose LogConfig may be another: their own overrides changed, or a default of all."""


class Settings(Values):
    """The live configuration of one broker."""

    __slots__ = (
        "_common",
        "_live",
        "_log_configs",
        "_metadata",
        "_passwords",
        "_per_listener",
        "_start",
        "_subscribers",
        "dynamic",
        "dynamic_default",
        "static",
        "writing",
    )

    def __init__(self, static: BrokerConfig, metadata: MetadataCache) -> None:
        self.static = static
        self._passwords = _password_encoder(static) if any(map(static.text_or_none, _SECRETS)) else None
        self.dynamic: Mapping[str, str] = {}
        """This broker's own dynamic settings, of those that can be used."""
        self.dynamic_default: Mapping[str, str] = {}
        """The dynamic settings for all brokers, of those that can be used."""
        self.writing = asyncio.Lock()
        """Held by whoever reads dynamic settings to write them back changed."""
        self._metadata = metadata
        self._start = {name: key.default for name, key in BROKER_KEYS.items()} | dict(static.parsed)
        self._live: Mapping[str, Value] = self._start
        self._per_listener: Mapping[str, Value] = static.per_listener
        self._log_configs: dict[str, tuple[Mapping[str, str], LogConfig]] = {}
        self._common: LogConfig | None = None
        self._subscribers: list[Callable[[Changed], None]] = []
        self._reload()
        metadata.subscribe(self._on_change)

    def value(self, name: str) -> Value:
        """The key's value at this moment."""
        return self._live[name]

    @property
    def passwords(self) -> PasswordEncoder:
        """Encrypts passwords that are stored among dynamic settings."""
        if self._passwords is None:
            self._passwords = _password_encoder(self.static)
        return self._passwords

    def of_listener(self, name: str) -> ListenerValues:
        """The values that count for one listener from now on: a later change needs a new call."""
        return ListenerValues(name, self._per_listener, self)

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
                if (key := broker_key_of(name)) is not None:
                    key.parse(text)
                check_classes({name: text})
            except (InvalidConfig, ConfigError) as error:
                raise InvalidRequest(str(error)) from None
        if all_brokers:
            _refuse(
                "Cannot update these configs at default cluster level, broker id must be specified",
                filter(_is_per_broker, dynamic),
            )
        layers = (dynamic, self.dynamic) if all_brokers else (self.dynamic_default, dynamic)
        try:
            check_together(_Layers(self._start | _values(layers[0]) | _values(layers[1])))
            self._check_logins(self.proposed(dynamic, all_brokers=all_brokers))
        except ConfigError as error:
            raise InvalidRequest(str(error)) from None

    def check_start(self) -> None:
        """Refuse to start on dynamic settings whose Java classes somebody relies on, with ConfigError."""
        own = self.static.node_id
        for whose, settings in (
            (ALL_BROKERS, self._metadata.default_broker_config()),
            (ConfigResource.broker(own), self._metadata.broker_config(own)),
        ):
            try:
                check_classes(settings)
            except ConfigError as error:
                name = whose.name or "<default>"
                raise ConfigError(f"the dynamic settings in /config/brokers/{name} cannot be used: {error}") from None

    def _check_logins(self, values_of: Callable[[str], ListenerValues]) -> None:
        """Refuse settings by which nobody could log in any more, with ConfigError."""
        for listener in self.static.listeners:
            if listener.uses_sasl:
                check_logins(values_of(listener.name), self.static.inter_broker_listener)

    def proposed(self, dynamic: Mapping[str, str], *, all_brokers: bool) -> Callable[[str], ListenerValues]:
        """Gives the values that would count for a listener if these were the dynamic settings."""
        dynamic = _usable(dynamic, "a request")
        layers = (dynamic, self.dynamic) if all_brokers else (self.dynamic_default, dynamic)
        shared = _Layers(self._start | _values(layers[0]) | _values(layers[1]))
        own = {**self.static.per_listener, **parse_listener_settings(layers[0]), **parse_listener_settings(layers[1])}
        return lambda name: ListenerValues(name, own, shared)

    def _reload(self) -> None:
        """Take over the dynamic settings of the newest image."""
        own = self._metadata.broker_config(self.static.node_id)
        self.dynamic_default = _usable(self._decrypted(self._metadata.default_broker_config()), "all brokers")
        self.dynamic = _usable(self._decrypted(own), f"broker {self.static.node_id}")
        self._live = self._start | _values(self.dynamic_default) | _values(self.dynamic)
        self._per_listener = {
            **self.static.per_listener,
            **parse_listener_settings(self.dynamic_default),
            **parse_listener_settings(self.dynamic),
        }

    def _decrypted(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings with passwords as they are, without those that cannot be read."""
        return {name: read for name, text in settings.items() if (read := self._decrypt(name, text)) is not None}

    def _decrypt(self, name: str, text: str) -> str | None:
        """A setting as it was set; None for a password that cannot be read."""
        if not is_secret(name):
            return text
        from barnabas.broker.security.password_encoder import CannotDecrypt

        try:
            return self.passwords.decode(text)
        except CannotDecrypt as error:
            logger.error("Dynamic setting %s is ignored: %s", name, error)
            return None

    def _on_change(self, delta: Delta) -> None:
        for topic in delta.deleted:
            self._log_configs.pop(topic.name, None)
        if delta.configs or delta.is_whole:
            keys = self._changed_keys(delta)
            topics = frozenset(resource.name for resource in delta.configs if resource.kind == "topics")
            if keys & _LOG_KEYS:
                self._common = None
                self._log_configs.clear()
                topics = frozenset(delta.after.topics)
            if keys or topics:
                self._notify(Changed(keys, topics))

    def _changed_keys(self, delta: Delta) -> frozenset[str]:
        """The broker keys with new values; all of them, if it is not certain what subscribers have applied."""
        own = ConfigResource.broker(self.static.node_id)
        if not (delta.is_whole or ALL_BROKERS in delta.configs or own in delta.configs):
            return frozenset()
        before, before_of_listeners = self._live, self._per_listener
        self._reload()
        keys = _different(before, self._live)
        of_listeners = _different(before_of_listeners, self._per_listener)
        _report(keys, self._live)
        _report(of_listeners, self._per_listener)
        if delta.is_whole:
            return frozenset(self._live) | self._per_listener.keys() | of_listeners
        return keys | of_listeners

    def _notify(self, changed: Changed) -> None:
        """Call every subscriber; raises an ExceptionGroup that names those that failed."""
        failures: dict[str, Exception] = {}
        for callback in self._subscribers:
            try:
                callback(changed)
            except Exception as error:  # whatever it was: the others apply the settings all the same
                failures[getattr(callback, "__qualname__", repr(callback))] = error
        if failures:
            raise ExceptionGroup(f"{', '.join(failures)} could not apply new settings", list(failures.values()))


def _password_encoder(values: Values) -> PasswordEncoder:
    from barnabas.broker.security.password_encoder import PasswordEncoder  # here: few brokers store passwords

    return PasswordEncoder(values)


class _Layers(Values):
    """Values that might come to be."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def value(self, name: str) -> Value:
        return self._values[name]


def is_secret(name: str) -> bool:
    """Whether a setting, of one listener or of the broker, is a password."""
    key = broker_key_of(name)
    return key is not None and key.sensitive


def _is_read_only(name: str) -> bool:
    base = of_one_listener(name)
    if base is not None:
        return base.startswith(_IDENTITY_AT_START)
    key = BROKER_KEYS.get(name)
    return key is not None and key.mode is Mode.READ_ONLY and key.support is not Support.RETIRED


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
        key = broker_key_of(name)
        if _is_read_only(name):
            logger.error("Dynamic setting %s of %s is ignored: it cannot change while the broker runs.", name, whose)
            continue
        try:
            if key is not None:
                key.parse(text)
            check_classes({name: text})
        except (InvalidConfig, ConfigError) as error:
            logger.error("A dynamic setting of %s is ignored: %s", whose, error)
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
            logger.error("A setting of topic %s is ignored: %s", topic, error)
            continue
        readable[name] = text
    return readable


def _different(before: Mapping[str, Value], after: Mapping[str, Value]) -> frozenset[str]:
    """The names whose values are not the same in both."""
    return frozenset(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _report(names: Iterable[str], values: Mapping[str, Value]) -> None:
    for name in sorted(names):
        key = broker_key_of(name)
        if key is None:
            continue
        if key.support is Support.HONOURED:
            shown = "[hidden]" if key.sensitive else key.write(values.get(name))
            logger.info("%s is now %s", name, shown)
        else:
            logger.warning("%s was changed, which has no effect in Barnabas.", name)
