"""Options as users write them for Spark: known names in any case, and values that mean something. Pure.

Spark hands options on with lower-case names, so they are looked up without regard to case, and errors show them as
the documentation spells them. A name that is not known is an error that names the nearest known one: an option that
silently does nothing costs an afternoon.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark.client_properties import client_properties

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

PREFIX: Final = "kafka."
SERVERS: Final = "kafka.bootstrap.servers"
OF_SPARK: Final = ("checkpointLocation", "queryName")
"""What Spark itself takes from the options of a stream, and hands on to its source or sink."""

log = logging.getLogger("barnabas.pipelines")


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options of one source or sink; the keys are lower-case."""

    values: Mapping[str, str]

    @classmethod
    def of(cls, given: Mapping[str, str], known: Collection[str], without_effect: Collection[str] = ()) -> GivenOptions:
        """Check the names. Raises InvalidOption; an option without effect is only warned of."""
        values = {name.lower(): value for name, value in given.items()}
        spelled = {name.lower(): name for name in (SERVERS, *known, *without_effect, *OF_SPARK)}
        for name in values:
            if name not in spelled and not name.startswith(PREFIX):
                raise InvalidOption(f"there is no option {name}{_nearest(name, spelled)}")
        for name in without_effect:
            if name.lower() in values:
                log.warning("The option %s has no effect: it configures Spark's own Kafka source.", name)
        return cls(values)

    def text(self, name: str) -> str | None:
        """The value, without the space around it; None if it was not given."""
        value = self.values.get(name.lower())
        return None if value is None else value.strip()

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise InvalidOption(f"option {name} is {value!r}, and should be true or false")
        return value.lower() == "true"

    def positive(self, name: str) -> int | None:
        """A whole number above 0."""
        value = self.text(name)
        if value is None:
            return None
        if not value.isdecimal() or int(value) == 0:
            raise InvalidOption(f"option {name} is {value!r}, and should be a whole number above 0")
        return int(value)

    def one_of(self, name: str, choices: Collection[str], default: str) -> str:
        """One of some words, in any case."""
        value = (self.text(name) or default).lower()
        if value not in choices:
            raise InvalidOption(f"option {name} is {value!r}, and should be {' or '.join(choices)}")
        return value

    def client(self) -> dict[str, str]:
        """The properties of Kafka's clients: what begins with `kafka.`, without it. Raises InvalidOption."""
        found = {name.removeprefix(PREFIX): value for name, value in self.values.items() if name.startswith(PREFIX)}
        if not found.get("bootstrap.servers", "").strip():
            raise InvalidOption(f"option {SERVERS} is missing: give the brokers' addresses, as localhost:9092")
        return client_properties(found)


def _nearest(name: str, spelled: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    if name == "path":  # what load(), save() and start() are given
        return f"; topics are named by the option {'subscribe' if 'subscribe' in spelled else 'topic'}"
    without_prefix = f"{PREFIX}{name}"
    close = [without_prefix] if without_prefix in spelled else get_close_matches(name, spelled, n=1)
    if close:
        return f"; did you mean {spelled[close[0]]}?"
    return f"; properties of Kafka's clients begin with {PREFIX}, as {PREFIX}{name}"
