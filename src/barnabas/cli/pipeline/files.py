"""The pipelines that a command of `barnabas pipeline` is about, and the cluster that they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.help import F, option
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.files import FILE

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class FileOptions(Options):
    """FILE..., at least one."""

    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class ServerOptions(Options):
    """`--bootstrap-server`."""

    bootstrap_server: str | None


def files_argument(command: F) -> F:
    """FILE..., the field of `FileOptions`."""
    return click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)(command)


def server_option(command: F) -> F:
    """`--bootstrap-server`, which is stronger than what files say."""
    return option(
        "--bootstrap-server",
        metavar="HOST:PORT,...",
        help="Brokers of the cluster, in place of those that the files name.",
        section="Connection",
        shared=True,
    )(command)
