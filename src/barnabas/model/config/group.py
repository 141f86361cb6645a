"""A group's configuration: its own settings over the broker's values, within what the broker allows.

Settings are checked when they are set, with Kafka's words. A bound of the broker that was moved since counts when they
are read: what is out of bounds then is taken as the bound.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.model.config.keys.all_keys import GROUP_KEYS
from barnabas.model.config.keys.group_keys import BOUNDS, broker_key
from barnabas.model.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.config.definition import Value
    from barnabas.model.config.values import Values

_KINDS: Final = ("consumer", "share", "streams")
_DURATION: Final = re.compile(r"\+?P(?:\+?(\d+)D)?(?:T(?:\+?(\d+)H)?(?:\+?(\d+)M)?(?:\+?(\d+(?:[.,]\d*)?)S)?)?")


def check_settings(settings: Mapping[str, str], broker: Values) -> None:
    """Refuse settings that Kafka would refuse, with InvalidConfig and Kafka's words."""
    for name in settings:
        if name not in GROUP_KEYS:
            raise InvalidConfig(f"Unknown group config name: {name}")
    values = {name: GROUP_KEYS[name].parse(text) for name, text in settings.items()}
    for name, (least, most) in BOUNDS.items():
        value = values.get(name)
        if not isinstance(value, int):
            continue
        if least is not None and value < broker.number(least):
            raise InvalidConfig(f"{name} must be greater than or equal to {least}")
        if value > broker.number(most):
            raise InvalidConfig(f"{name} must be less than or equal to {most}")
    for kind in _KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if (session in values or heartbeat in values) and number(session, settings, broker) <= number(
            heartbeat, settings, broker
        ):
            raise InvalidConfig(f"{session} must be greater than {heartbeat}")


def value(name: str, settings: Mapping[str, str], broker: Values) -> Value:
    """What holds for a group: its own setting, else the broker's value, else the default."""
    key, text, behind = GROUP_KEYS[name], settings.get(name), broker_key(name)
    if text is not None:
        return key.read(text)
    return key.default if behind is None else broker.value(behind)


def number(name: str, settings: Mapping[str, str], broker: Values) -> int:
    """A value that is a number, within the bounds of the broker if the group has set it."""
    found = value(name, settings, broker)
    assert isinstance(found, int)
    if name not in settings or name not in BOUNDS:
        return found
    least, most = BOUNDS[name]
    return min(max(found, found if least is None else broker.number(least)), broker.number(most))


def duration_ms(text: str) -> int:
    """The milliseconds of a duration as `share.auto.offset.reset` has it after "by_duration:".

    >>> duration_ms("P1DT2H3M4.5S")
    93784500
    """
    found = _DURATION.fullmatch(text.upper())
    assert found is not None, "it was checked when it was set"
    days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in found.groups())
    return int(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)
