"""`barnabas shims DIR`: small programs named like Kafka's scripts, each of which runs Barnabas."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

import click

from barnabas.cli.failures import Failed
from barnabas.cli.help import Command, option
from barnabas.cli.output import remark
from barnabas.cli.shims.scripts import ALL

MARK: Final = "Written by `barnabas shims`"
"""Stands in every shim: a file without it is someone else's, and is left alone."""
SAMPLES_FOLDER: Final = Path(__file__).parents[1] / "samples"
SAMPLES: Final = (
    "server.properties",
    "kraft/server.properties",
    "zookeeper.properties",
    "producer.properties",
    "consumer.properties",
)


@click.command(
    "shims",
    cls=Command,
    examples=[
        ("follow a tutorial word by word", "barnabas shims bin --samples config"),
        (
            "as it says",
            "bin/kafka-server-start.sh -daemon config/server.properties\n"
            "  bin/kafka-topics.sh --create --topic test --bootstrap-server localhost:9092",
        ),
        (
            "for scripts that expect Kafka in the path",
            'barnabas shims ~/.local/kafka-bin; PATH="$HOME/.local/kafka-bin:$PATH"',
        ),
    ],
)
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@option(
    "--samples",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Also write sample files there, server.properties and so on, where there are none yet.",
)
def command(directory: Path, samples: Path | None) -> None:
    """Write programs named like Kafka's scripts into DIR, with and without .sh, so that tutorials can be followed.

    They take the flags of all Kafkas since 0.8; flags that are no more, like --zookeeper, get a warning. They talk to
    localhost:9092 unless --bootstrap-server or the variable BARNABAS_BOOTSTRAP_SERVER says otherwise, and run the
    Python that wrote them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / (name + suffix) for name in ALL for suffix in ("", ".sh")]
    foreign = [path for path in paths if path.exists() and MARK not in path.read_text(errors="replace")]
    if foreign:
        raise Failed(f"{foreign[0]} is there already and was not written by Barnabas: choose another directory.")
    for path in paths:
        path.write_text(shim(directory, path.name.removesuffix(".sh")), encoding="utf-8")
        path.chmod(0o755)
    click.echo(f"Wrote {len(paths)} programs to {directory}.")
    if samples is not None:
        write_samples(samples)


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
