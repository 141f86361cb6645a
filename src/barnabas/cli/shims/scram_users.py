"""kafka-configs for users that log in by SCRAM, as `barnabas users`.

Kafka's tool takes a password as part of an argument. Whoever types it so has shown it to the machine already; from
there on it goes to the command as a line of standard input, and stands in no other list of processes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.common.failures import Failed
from barnabas.cli.configs.alter import parse_additions
from barnabas.machines.security.scram import BY_TITLE

if TYPE_CHECKING:
    from collections.abc import Sequence

_CREDENTIAL: Final = re.compile(r"(?:iterations=(?P<iterations>\d+),)?password=(?P<password>.+)")
_PASSED_ON: Final = ("--bootstrap-server", "--command-config")


class ScramUser(NamedTuple):
    """Words for `barnabas users`, and what it reads from standard input."""

    words: list[str]
    password: str | None


def scram_user(given: Sequence[str]) -> ScramUser | None:
    """What kafka-configs is to do with the password of a user; None if it is to do something else. Raises Failed."""
    options = _options(given)
    name = options.get("--user") or (options.get("--entity-name") if options.get("--entity-type") == "users" else None)
    if name is None or "--alter" not in given:
        return None
    rest = [word for flag in _PASSED_ON if flag in options for word in (flag, options[flag])]
    deleted = [key.strip() for key in options.get("--delete-config", "").split(",")]
    added = parse_additions(options["--add-config"]) if "--add-config" in options else {}
    chosen = [key for key in (*added, *deleted) if key in BY_TITLE]
    if not chosen:
        return None
    if len(chosen) > 1:
        raise Failed("kafka-configs changes one mechanism of a user at a time here: give one of them.")
    (mechanism,) = chosen
    if mechanism in deleted:
        return ScramUser(["users", "--delete", name, "--mechanism", mechanism, *rest], None)
    credential = _CREDENTIAL.fullmatch(added[mechanism])
    if credential is None:
        raise Failed(f"{mechanism} is of the form {mechanism}=[iterations=8192,password=...].")
    iterations = ["--iterations", credential["iterations"]] if credential["iterations"] else []
    return ScramUser(["users", "--add", name, "--mechanism", mechanism, *iterations, *rest], credential["password"])


def _options(given: Sequence[str]) -> dict[str, str]:
    """The flags with their values; those without one have the word that follows, which nobody asks for."""
    found = {}
    for place, word in enumerate(given):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            found[flag] = value if equals else given[place + 1] if place + 1 < len(given) else ""
    return found
