"""Options that `barnabas produce` and `barnabas consume` share, and what they say together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.files import read_properties
from barnabas.cli.help import F, option
from barnabas.cli.output import remark
from barnabas.cli.records.formats import NAMES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

CONNECT_SECONDS: Final = 3.0


def format_options(command: F) -> F:
    """`--key-format`, `--value-format`, `--key-schema`, `--value-schema`."""
    for part in ("value", "key"):
        command = option(
            f"--{part}-schema",
            metavar="FILE[:MESSAGE]",
            help=f"The {part}'s schema: an .avsc of Avro, or a .proto or .desc of Protobuf with the message's name.",
            section="Format",
        )(command)
        command = option(
            f"--{part}-format",
            type=click.Choice(NAMES),
            metavar="FORMAT",
            help=f"How {part}s are written: {', '.join(NAMES)}.  [default: string]",
            section="Format",
        )(command)
    return command


def old_and_new(new: tuple[str, ...], old: tuple[str, ...], new_flag: str, old_flag: str) -> dict[str, str]:
    """Pairs of a flag that Kafka has renamed; the old name gets a remark, both at once are refused."""
    if new and old:
        raise click.UsageError(f"Give {new_flag} or {old_flag}, not both.")
    if old:
        remark(f"{old_flag} is deprecated in Kafka: use {new_flag}.")
    found = {}
    for pair in new or old:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def check_properties(properties: Mapping[str, str], known: Sequence[str], switches: Collection[str], flag: str) -> None:
    """Say which properties do nothing. Kafka's tools take them without a word, and so does a script of theirs."""
    from difflib import get_close_matches

    for name, value in properties.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            remark(f"{flag} {name} has no effect{f': did you mean {near[0]}?' if near else '.'}")
        elif name in switches and value.strip().lower() not in ("true", "false"):
            remark(f"{flag} {name}={value} counts as false: write true or false.")


def one_file(new: Path | None, old: Path | None, new_flag: str, old_flag: str) -> dict[str, str]:
    """The properties of a file, by a flag that Kafka has renamed."""
    if new is not None and old is not None:
        raise click.UsageError(f"Give {new_flag} or {old_flag}, not both.")
    if old is not None:
        remark(f"{old_flag} is deprecated in Kafka: use {new_flag}.")
    file = new or old
    if file is None:
        return {}
    return read_properties(file)


def reach(bootstrap_server: str) -> None:
    """Raise BrokerUnreachable at once where librdkafka would try for minutes."""
    from barnabas.clients.addresses import connect

    connect(bootstrap_server, CONNECT_SECONDS).socket.close()
