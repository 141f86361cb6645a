"""Options that every command which talks to a broker shares, and the connection they describe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.help import F, option

if TYPE_CHECKING:
    from barnabas.clients.admin import Admin

DEFAULT_BOOTSTRAP_SERVER = "localhost:9092"


def connection_options(command: F) -> F:
    """`--bootstrap-server` and `--command-config`."""
    command = option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A properties file for the client, with librdkafka's names.",
        section="Connection",
    )(command)
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        help="Where to find the cluster; one broker is enough.",
        section="Connection",
    )(command)


def open_admin(bootstrap_server: str, command_config: Path | None) -> Admin:
    """An admin client with the options' settings."""
    from barnabas.clients.admin import Admin

    properties: dict[str, str] = {}
    if command_config is not None:
        from barnabas.model.config.properties import parse_properties

        properties = parse_properties(command_config.read_text(encoding="utf-8"))
        properties.pop("bootstrap.servers", None)
    return Admin(bootstrap_server, properties=properties)
