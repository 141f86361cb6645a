"""`barnabas shims DIR`: small programs named like Kafka's scripts, each of which runs Barnabas."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from barnabas.cli.common import options as common
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import remark
from barnabas.cli.common.values.files import NEW_FOLDER
from barnabas.cli.shims.scripts import ALL

MARK: Final = "Written by `barnabas shims`"
"""Stands in every shim: a file without it is someone else's, and is left alone."""
SAMPLES_FOLDER: Final = Path(__file__).parent / "samples"
SAMPLES: Final = (
    "server.properties",
    "kraft/server.properties",
    "zookeeper.properties",
    "producer.properties",
    "consumer.properties",
)


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas shims`."""

    directory: Path
    samples: Path | None


@click.command(
    "shims",
    cls=Command,
    examples=[
        ("write the programs and sample files", "barnabas shims bin --samples config"),
        (
            "then follow the tutorial",
            "bin/kafka-server-start.sh -daemon config/server.properties\n"
            "  bin/kafka-topics.sh --create --topic test --bootstrap-server localhost:9092",
        ),
        (
            "put them into the path, for scripts that expect Kafka there",
            'barnabas shims ~/.local/kafka-bin; PATH="$HOME/.local/kafka-bin:$PATH"',
        ),
    ],
)
@click.argument("directory", metavar="DIR", type=NEW_FOLDER)
@option(
    "--samples",
    type=NEW_FOLDER,
    metavar="DIR",
    help="Also write sample files (server.properties and others) into this folder, if they do not exist.",
)
@takes(Options)
def command(options: Options) -> None:
    """Write programs with the names of Kafka's scripts into DIR, with and without .sh, to follow tutorials.

    They take the flags of all Kafkas since 0.8, and warn about flags that no longer exist, such as --zookeeper. They
    talk to localhost:9092, unless --bootstrap-server or the variable BARNABAS_BOOTSTRAP_SERVER names another address.
    """
    directory = options.directory
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / (name + suffix) for name in ALL for suffix in ("", ".sh")]
    foreign = [path for path in paths if path.exists() and MARK not in path.read_text(errors="replace")]
    if foreign:
        raise Failed(f"{foreign[0]} is there already and was not written by Barnabas: choose another directory.")
    for path in paths:
        path.write_text(shim(directory, path.name.removesuffix(".sh")), encoding="utf-8")
        path.chmod(0o755)
    click.echo(f"Wrote {len(paths)} programs to {directory}.")
    if options.samples is not None:
        write_samples(options.samples)


def shim(directory: Path, script: str) -> str:
    """The text of one shim."""
    words = shlex.join([sys.executable, "-m", "barnabas.cli.shims.run", str(directory.absolute()), script])
    return f'#!/bin/sh\n# {MARK}: what {script} of Apache Kafka does, done by Barnabas.\nexec {words} "$@"\n'


def write_samples(folder: Path) -> None:
    """Copy the sample files; those that are there already are kept."""
    for name in SAMPLES:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            remark(f"Kept {target}.")
        else:
            target.write_text((SAMPLES_FOLDER / name).read_text(encoding="utf-8"), encoding="utf-8")
            click.echo(f"Wrote {target}.")
