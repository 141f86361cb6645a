"""The words for what can be done about an error: errors carry a remedy as data, and the command line has its flags.

A broker's log is read by people of the command line, too: `WordedRemedies` puts the words behind an error in it.
"""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING, Final

from barnabas.model.base_error import BarnabasError
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def with_remedy(text: str, remedy: Remedy | None) -> str:
    """What happened, and behind it what to do; not every remedy has something to say."""
    words = "" if remedy is None else WORDS[remedy.kind](remedy.subject)
    return f"{text.rstrip('.')}. {words}" if words else text


def with_remedy_of(text: str, errors: Iterable[BarnabasError | None]) -> str:
    """What happened to several things, and behind it what to do about the first for which there is something to do."""
    return with_remedy(text, next((error.remedy for error in errors if error is not None and error.remedy), None))


def _nearest_config(name: str) -> str:
    import difflib

    from barnabas.model.config.keys.all_keys import TOPIC_KEYS

    near = difflib.get_close_matches(name, TOPIC_KEYS, n=1)
    return f"Did you mean {near[0]}?" if near else ""


def _rule(permission: str) -> str:
    """The flags of `barnabas acls` that give a permission: an operation, a kind of resource, and perhaps its name."""
    if not permission:
        return ""
    operation, kind, *name = permission.split(" ", 2)
    flag = "--user-principal" if kind == "user" else f"--{kind.replace('_', '-')}"
    what = "" if kind == "cluster" else f" {shlex.quote(name[0]) if name else 'NAME'}"
    return f" --allow-principal User:NAME --operation {operation} {flag}{what}"


WORDS: Final[dict[RemedyKind, Callable[[str], str]]] = {
    RemedyKind.START_BROKER: lambda _: (
        "Start one with `barnabas start`, or name another with --bootstrap-server HOST:PORT."
    ),
    RemedyKind.CHECK_LISTENER: lambda _: (
        "Is that the right port, and does the listener speak the security protocol you use? If the broker is busy, its "
        "log says so."
    ),
    RemedyKind.CHECK_SECURITY: lambda _: (
        "Look at the properties of the connection: security.protocol, ssl.* and sasl.*."
    ),
    RemedyKind.ASK_FOR_PERMISSION: lambda permission: (
        "No rule allows it to the user of --command-config: an administrator makes one with "
        f"`barnabas acls --add{_rule(permission)}`."
    ),
    RemedyKind.CORRECT_CONFIG_NAME: _nearest_config,
    RemedyKind.CHOOSE_PORT: lambda _: (
        "Stop the program that uses the port, or choose another port with --listen HOST:PORT (0 takes a free one)."
    ),
    RemedyKind.UNSET_CONFIG: lambda key: f"To start without it, add `--set {key}=` (with nothing behind the =).",
    RemedyKind.CHECK_LOG: lambda folder: f"Stop the broker, and look with `barnabas log check {folder}`.",
    RemedyKind.SEQUENCE_OFFSETS: lambda folder: (
        "Before you move the data to Apache Kafka, stop the broker and give them one with "
        f"`barnabas log mend {folder}`."
    ),
    RemedyKind.ACCEPT_LOSS: lambda folder: (
        f"Or stop the broker, and give up the records that are missing with `barnabas log mend --accept-loss {folder}`."
    ),
    RemedyKind.IMPORT_METADATA: lambda _: (
        "Stop all brokers, and bring the tree back from an export with `barnabas metadata import`."
    ),
    RemedyKind.LIST_TOPICS: lambda _: "List the topics with `barnabas topics --list`.",
    RemedyKind.USE_PIPELINE_NAME: lambda name: (
        f"Go on under that name (`--name {name}` for a load, `name` in a pipeline's file), or choose another table."
    ),
    RemedyKind.USE_DECODER: lambda kind: f"Give --decode {kind or 'as in the first load'}, or load into another table.",
    RemedyKind.ALLOW_DATA_LOSS: lambda _: "To go on without these records, add --allow-data-loss.",
    RemedyKind.DELETE_GROUP: lambda group: f"The group is deleted with `barnabas groups --delete --group {group}`.",
    RemedyKind.EXPIRE_VERSIONS: lambda _: "Old versions are dropped with `barnabas table expire`.",
    RemedyKind.NAME_CONSOLE: lambda name: f"Start it with --name {name} if that is right.",
    RemedyKind.ALLOW_CHANGES: lambda _: "Start it with --allow-changes to change things here.",
    RemedyKind.GIVE_CONSOLE_USER: lambda _: "Name one in the file of --command-config.",
    RemedyKind.GIVE_REGISTRY: lambda _: "Start it with --registry URL.",
    RemedyKind.GIVE_PUSH_TOKEN: lambda _: "Start it with --telemetry-token-file FILE to take them from others.",
    RemedyKind.GIVE_METRICS_TOKEN: lambda _: "Start the console with --metrics-token-file FILE.",
    RemedyKind.TRUST_METRICS_CERTIFICATE: lambda _: "Start the console with --metrics-ca-file FILE.",
}
"""What to type, by kind; each is given the subject of the remedy."""


class WordedRemedies(logging.Filter):
    """Puts what can be done behind an error in a log line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Every line is written."""
        if isinstance(record.args, tuple):
            record.args = tuple(map(_worded, record.args))
        return True


def _worded(argument: object) -> object:
    if isinstance(argument, BarnabasError) and argument.remedy is not None:
        return with_remedy(str(argument), argument.remedy)
    return argument
