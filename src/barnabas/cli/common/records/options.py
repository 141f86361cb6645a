"""Options that `barnabas produce` and `barnabas consume` share, and what they say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.help import F, option
from barnabas.cli.common.output import remark
from barnabas.cli.common.records.formats import NAMES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def format_options(command: F) -> F:
    """`--key-format`, `--value-format`, `--key-schema`, `--value-schema`."""
    for part in ("value", "key"):
        command = option(
            f"--{part}-schema",
            metavar="FILE[:MESSAGE]",
            help=f"The schema of {part}s: an .avsc file of Avro, or a .proto or .desc file of Protobuf with a message.",
            section="Format",
        )(command)
        command = option(
            f"--{part}-format",
            type=click.Choice(NAMES),
            metavar="FORMAT",
            help=f"The format of {part}s: {', '.join(NAMES)}.  [default: string]",
            section="Format",
        )(command)
    return command


def check_properties(properties: Mapping[str, str], known: Sequence[str], switches: Collection[str], flag: str) -> None:
    """Say which properties do nothing. Kafka's tools take them without a word, and so does a script of theirs."""
    from difflib import get_close_matches

    for name, value in properties.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            remark(f"{flag} {name} has no effect{f': did you mean {near[0]}?' if near else '.'}")
        elif name in switches and value.strip().lower() not in ("true", "false"):
            remark(f"{flag} {name}={value} counts as false: write true or false.")
