"""`barnabas pipeline init`: an example that runs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common import options as common
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import remark
from barnabas.cli.common.values.files import NEW_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE_FILES: Final = ("pipeline.toml", "customers.csv", "orders.jsonl")


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas pipeline init`."""

    folder: Path


@click.command(
    cls=Command,
    short_help="Write an example.",
    examples=[
        ("into the current folder", "barnabas pipeline init"),
        ("into a folder of its own", "barnabas pipeline init orders"),
    ],
)
@click.argument("folder", default=".", type=NEW_FOLDER)
@takes(Options)
def init(options: Options) -> None:
    """Write an example into FOLDER: a pipeline, a table of customers, and some orders. No file is overwritten."""
    for path in write_example(options.folder):
        click.echo(path)
    remark("With a broker on localhost:9092 (`barnabas start`), the first lines of pipeline.toml say what to type.")


def write_example(folder: Path) -> list[Path]:
    """Write the example's files. Raises Failed if one of them is there."""
    paths = [folder / name for name in EXAMPLE_FILES]
    for path in paths:
        if path.exists():
            raise Failed(f"{path} is there already. Name another folder: barnabas pipeline init FOLDER.")
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        path.write_bytes(resources.files("barnabas.cli.pipeline").joinpath("example", path.name).read_bytes())
    return paths
