"""Properties of a client, as produce, consume and the performance tools take them: in a file, and as NAME=VALUE.

Both have an older flag in Kafka. Pairs are stronger than the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.cli.common.combinations import flag, renamed
from barnabas.cli.common.help import F, option
from barnabas.cli.common.values.files import FILE, read_properties
from barnabas.cli.common.values.pairs import parse_pairs
from barnabas.cli.common.values.secrets import warn_of_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from barnabas.cli.common.options import Options

SERIALIZERS: Final = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""Names of Java classes, which mean nothing here: these tools send and read bytes."""


def client_options(client: str) -> Callable[[F], F]:
    """`--command-property` of a producer or consumer, and the older names of it and of `--command-config`."""

    def decorate(command: F) -> F:
        for add in (
            option(
                f"--{client}.config",
                f"{client}_config",
                type=FILE,
                help="Older name of --command-config.",
                section="Connection",
            ),
            option(
                f"--{client}-property",
                metavar="NAME=VALUE",
                multiple=True,
                help="Older name of --command-property.",
                section="Connection",
            ),
            option(
                "--command-property",
                metavar="NAME=VALUE",
                multiple=True,
                help=f"A property of the {client}; repeatable.",
                section="Connection",
            ),
        ):
            command = add(command)
        return command

    return decorate


def given_properties(options: Options, files: Sequence[str], pairs: Sequence[str] = ()) -> dict[str, str]:
    """What a file and pairs say; `files` and `pairs` name the fields of the flags, the new one and then the old."""
    file: Path | None = getattr(options, _chosen(options, files))
    found = {} if file is None else read_properties(file)
    if pairs:
        name = _chosen(options, pairs)
        given = parse_pairs(getattr(options, name), flag(name))
        warn_of_secrets(given, f"Put it into the file of {flag(files[0])}.")
        found |= given
    return found


def _chosen(options: Options, names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else renamed(options, *names)
