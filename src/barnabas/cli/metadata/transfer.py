"""`barnabas metadata export` and `import`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import remark
from barnabas.cli.common.values.files import FILE_OR_INPUT, INPUT, read_input
from barnabas.cli.metadata.completeness import counts, unknown_topics
from barnabas.cli.metadata.stores import StoreOptions, store_options


@dataclass(frozen=True, kw_only=True)
class ExportOptions(StoreOptions):
    """The options of `barnabas metadata export`."""

    file: Path
    with_credentials: bool


@click.command(
    "export",
    cls=Command,
    short_help="Write a cluster's metadata to a file.",
    examples=[
        ("of the broker with its data in ./data", "barnabas metadata export tree.json"),
        ("of an Apache Kafka", "barnabas metadata export tree.json --zookeeper localhost:2181/kafka"),
        ("print the paths of all nodes", "barnabas metadata export - | jq '.nodes | keys'"),
    ],
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@option(
    "--with-credentials",
    is_flag=True,
    help="Also export users, passwords and delegation tokens. Only you can read the file then.",
    section="What is exported",
)
@store_options
@takes(ExportOptions)
def export(options: ExportOptions) -> None:
    """Write a cluster's metadata to FILE, or to standard output (-).

    Which brokers are up and which is the controller is left out, and so is what users log in with.
    """
    import asyncio

    from barnabas.metadata.transfer import export_tree

    async def read_tree() -> dict[str, Any]:
        async with options.open(must_exist=True) as source:
            return await export_tree(source, with_credentials=options.with_credentials)

    tree = asyncio.run(read_tree())
    folder = options.folder
    if unknown := unknown_topics(tree, folder):
        raise Failed(
            f"The metadata store of {folder} does not know {unknown}, of which there are partitions in {folder}: it is "
            "older than the data. Export from where the cluster ran last (--zookeeper), or this store nevertheless "
            "with --store FILE."
        )
    text = json.dumps(tree, indent=2)
    if str(options.file) == INPUT:
        click.echo(text)
    else:
        draft = options.file.with_name(f"{options.file.name}.tmp")
        draft.unlink(missing_ok=True)
        draft.touch(mode=0o600 if options.with_credentials else 0o666)
        draft.write_text(f"{text}\n", encoding="utf-8")
        draft.replace(options.file)
    remark(f"Exported {counts(tree)} to {'standard output' if str(options.file) == INPUT else options.file}.")


@dataclass(frozen=True, kw_only=True)
class ImportOptions(StoreOptions):
    """The options of `barnabas metadata import`."""

    file: Path
    outdated: bool


@click.command(
    "import",
    cls=Command,
    short_help="Write an exported file into a new store.",
    examples=[
        ("into the store of a new broker", "barnabas metadata import tree.json --data ./data"),
        ("for an Apache Kafka", "barnabas metadata import tree.json --zookeeper localhost:2181/kafka"),
        (
            "restore a backup after a loss",
            "barnabas metadata import backup.json --outdated --zookeeper localhost:2181/barnabas",
        ),
    ],
)
@click.argument("file", type=FILE_OR_INPUT)
@option(
    "--outdated",
    is_flag=True,
    help="The file is older than the logs: skip epochs and producer ids that may be in use.",
    section="What is imported",
)
@store_options
@takes(ImportOptions)
def import_(options: ImportOptions) -> None:
    """Write an exported FILE, or standard input (-), into a store that has no cluster yet.

    A store that is in use is refused before anything is written.
    """
    import asyncio

    from barnabas.metadata.stores.sqlite import files_of
    from barnabas.metadata.transfer import TransferError, import_tree

    tree = read_tree(options.file)
    folder = options.folder
    if unknown := unknown_topics(tree, folder):
        raise Failed(
            f"{options.file} does not know {unknown}, of which there are partitions in {folder}: it is older than the "
            "data, and a broker would set them aside. Export again from where the cluster ran last, or import "
            "nevertheless with --store FILE."
        )

    async def write_tree() -> None:
        async with options.open(must_exist=False) as target:
            await import_tree(target, tree, outdated=options.outdated)

    try:
        asyncio.run(write_tree())
    except TransferError as error:
        old = [] if options.zookeeper is not None else files_of(options.path)
        hint = f". To replace the store, move it away: {', '.join(map(str, old))}" if old else ""
        raise Failed(f"{error}{hint}") from None
    remark(f"Imported {counts(tree)}.")


def read_tree(file: Path) -> dict[str, Any]:
    """An exported tree; raises Failed for what is none."""
    text, name = read_input(file)
    try:
        tree = json.loads(text)
    except ValueError as error:
        raise Failed(f"{name} is not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise Failed(f"{name} does not hold an exported tree")
    return tree
