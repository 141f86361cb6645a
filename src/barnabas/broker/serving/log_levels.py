"""The levels of this process's loggers, under the names that Kafka's tools know; they last until the broker stops.

There is a logger for each module that was loaded and for each package above one: `barnabas.storage` sets the level of
all of storage.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.model.errors import InvalidConfig, InvalidRequest

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
    """Refuse a change that `set_level` could not make."""
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


def set_level(name: str, level: str | None) -> None:
    """Give a logger a level, or with None let it follow its parent again."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name(number: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if number >= least), "TRACE")
