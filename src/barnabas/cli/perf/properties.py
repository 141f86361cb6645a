"""Client properties as the performance tools take them: in a file, as `name=value`, and by Kafka's older flags.

`--command-property` and `--producer-props` take any number of pairs after them, as in Kafka. Click gives an option one
value, so the pairs after the first arrive as arguments of the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.connection import DEFAULT_BOOTSTRAP_SERVER
from barnabas.cli.files import read_properties
from barnabas.cli.help import F, option
from barnabas.cli.output import remark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CONNECT_SECONDS: Final = 3.0
_OF_BYTES: Final = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""Java's classes, which Kafka's tools overrule too: a tool that measures sends and reads bytes."""


def address_option(command: F) -> F:
    """`--bootstrap-server`, which goes before what properties say."""
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Where to find the cluster; one broker is enough.  [default: that of the properties, or "
        f"{DEFAULT_BOOTSTRAP_SERVER}]",
        section="Connection",
    )(command)


def pairs(given: Iterable[str]) -> dict[str, str]:
    """`name=value` pairs; raises UsageError for anything else."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{text!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def from_files(old_flag: str, old_file: Path | None, new_file: Path | None) -> dict[str, Any]:
    """What the file of --command-config says, or that of Kafka's older flag, which gets a remark."""
    if old_file is not None:
        if new_file is not None:
            raise click.UsageError(f"Give --command-config or {old_flag}, not both.")
        deprecated(old_flag, "--command-config")
    file = new_file or old_file
    if file is None:
        return {}
    found: dict[str, Any] = read_properties(file)
    for name in _OF_BYTES:
        found.pop(name, None)
    return found


def with_address(properties: dict[str, Any], bootstrap_server: str | None) -> dict[str, Any]:
    """The properties, at the address of --bootstrap-server if it is given, else at their own or the default one."""
    if bootstrap_server is not None:
        return properties | {"bootstrap.servers": bootstrap_server}
    return {"bootstrap.servers": DEFAULT_BOOTSTRAP_SERVER} | properties


def open_perf_client(kind: str, properties: dict[str, Any]) -> Any:
    """A client of librdkafka; one that could only wait for a broker that is not there is not made."""
    from barnabas.clients.addresses import connect
    from barnabas.clients.config import open_client
    from barnabas.clients.library import load_kafka

    client = open_client(load_kafka(), kind, properties)
    connect(properties["bootstrap.servers"], CONNECT_SECONDS).socket.close()
    return client


def deprecated(flag: str, instead: str) -> None:
    """Say that Kafka has another flag now."""
    remark(f"Option {flag} is deprecated in Kafka: use {instead}.")
