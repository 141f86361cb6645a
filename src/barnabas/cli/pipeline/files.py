"""The pipelines that a command of `barnabas pipeline` is about, and the cluster that they use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.help import F, option
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.files import FILE, read_properties

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.spec.model import Pipeline


@dataclass(frozen=True, kw_only=True)
class FileOptions(Options):
    """FILE..., at least one."""

    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class ServerOptions(Options):
    """`--bootstrap-server` and `--command-config`."""

    bootstrap_server: str | None
    command_config: Path | None

    def at_cluster(self, pipeline: Pipeline) -> Pipeline:
        """A pipeline that connects as these options say, where they say something else than its file."""
        from barnabas.pipelines.spec.model import with_changes

        properties = {} if self.command_config is None else read_properties(self.command_config)
        if self.bootstrap_server is not None:
            properties["bootstrap.servers"] = self.bootstrap_server
        return with_changes(pipeline, kafka=properties)


def files_argument(command: F) -> F:
    """FILE..., the field of `FileOptions`."""
    return click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)(command)


def server_options(command: F) -> F:
    """The fields of `ServerOptions`, which are stronger than what files say."""
    for add in (
        option(
            "--command-config",
            type=FILE,
            help="Properties of the connection, such as a login, in place of those in the files.",
            section="Connection",
            shared=True,
        ),
        option(
            "--bootstrap-server",
            metavar="HOST:PORT,...",
            help="Brokers of the cluster, in place of those that the files name.",
            section="Connection",
            shared=True,
        ),
    ):
        command = add(command)
    return command
