"""Settings of one listener: `listener.name.X.KEY` counts for listener X instead of KEY.

Keys of SASL may be set for one mechanism of one listener, too: `listener.name.X.MECHANISM.KEY`. From strong to weak:
the mechanism, the listener, the broker. As in Kafka, the name of the listener is written in lower case there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.config.keys.all_keys import BROKER_KEYS, listener_setting
from barnabas.model.config.values import Values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.model.config.definition import Value

_PREFIXES: Final = ("ssl.", "sasl.")
_KEYS: Final = frozenset(
    {
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "principal.builder.class",
    }
)


def is_per_listener(key: str) -> bool:
    """Whether a broker key can be set for one listener."""
    return key.startswith(_PREFIXES) or key in _KEYS


def prefix_of(listener: str) -> str:
    """What the names of a listener's settings begin with."""
    return f"listener.name.{listener.lower()}."


def parse_listener_settings(texts: Mapping[str, str]) -> dict[str, Value]:
    """The values of those settings that are for one listener, by their whole names; raises InvalidConfig."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        setting = listener_setting(name)
        if setting is not None and (key := BROKER_KEYS.get(setting.key)) is not None and is_per_listener(key.name):
            values[name] = key._replace(name=name).parse(text)
    return values


class ListenerValues(Values):
    """The values that count for one listener."""

    __slots__ = ("_own", "_prefixes", "_shared", "listener")

    def __init__(self, listener: str, own: Mapping[str, Value], shared: Values, mechanism: str | None = None) -> None:
        self.listener = listener
        self._own = own
        """The settings of all listeners, by their whole names."""
        self._shared = shared
        prefix = prefix_of(listener)
        self._prefixes = (prefix,) if mechanism is None else (f"{prefix}{mechanism.lower()}.", prefix)

    def value(self, name: str) -> Value:
        """The key's value for this listener."""
        for prefix in self._prefixes:
            if prefix + name in self._own:
                return self._own[prefix + name]
        return self._shared.value(name)

    def own_value(self, name: str) -> Value:
        """The key's value as it was set for this listener (or mechanism) itself; None if it was not."""
        return next((self._own[prefix + name] for prefix in self._prefixes if prefix + name in self._own), None)

    def name_of(self, key: str) -> str:
        """The name under which the key was set, for messages."""
        return next((prefix + key for prefix in self._prefixes if prefix + key in self._own), key)

    def of_mechanism(self, mechanism: str) -> ListenerValues:
        """The values that count for one SASL mechanism of this listener."""
        return ListenerValues(self.listener, self._own, self._shared, mechanism)


def unknown_listeners(names: Iterable[str], listeners: Iterable[str]) -> list[str]:
    """Those names whose listener is not among `listeners`."""
    known = {listener.lower() for listener in listeners}
    settings = ((name, listener_setting(name)) for name in names)
    return [name for name, setting in settings if setting is not None and setting.listener not in known]
