"""The levels of this process's loggers, under the names that Kafka's tools know; they last until the broker stops.

There is a logger for each module that was loaded and for each package above one: `barnabas.storage` sets the level of
all of storage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidConfig, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """Every logger with the level that holds for it."""
    found = {ROOT: _name(logging.root.level)}
    for name in sorted(logging.root.manager.loggerDict):
        found[name] = _name(logging.getLogger(name).getEffectiveLevel())
    return found


def check_level(name: str, level: str | None) -> None:
    """Refuse a change that `set_levels` could not make."""
    if level is None:
        if name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
    elif level not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise InvalidConfig(f"Logger {name} does not exist!")


def set_levels(levels: Mapping[str, str | None], principal: str) -> None:
    """Give loggers levels, or with None let them follow their parents again.

    Who asked for that is logged first: the audit log and this one can be switched off so.
    """
    for name, level in levels.items():
        logger.warning(
            "The level of logger %s becomes %s, as %s asked.", name, level or "that of its parent", principal
        )
    for name, level in levels.items():
        chosen = logging.root if name == ROOT else logging.getLogger(name)
        chosen.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name(number: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if number >= least), "TRACE")
