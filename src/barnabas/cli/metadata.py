"""`barnabas metadata`: carry a cluster's metadata (topics, ids, assignments, configs) to a file or a ZooKeeper.

Together with the data directories, which are in Kafka's format anyway, this moves a broker's data to Apache Kafka 3.9
in ZooKeeper mode, and back.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.failures import Failed
from barnabas.cli.files import read_text
from barnabas.cli.help import Command, F, Group, option
from barnabas.cli.output import remark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from barnabas.metadata.store import MetadataStore

TOPICS = "/brokers/topics/"
CONNECT_SECONDS = 5.0


@click.group(
    cls=Group,
    examples=[
        ("to Apache Kafka 3.9, once the broker has stopped", "barnabas metadata export tree.json"),
        ("then, before Kafka starts", "barnabas metadata import tree.json --zookeeper localhost:2181/kafka"),
        ("from Kafka", "barnabas metadata export tree.json --zookeeper localhost:2181/kafka"),
        ("to a new Barnabas", "barnabas metadata import tree.json --data /var/lib/barnabas"),
    ],
)
def command() -> None:
    """Carry topics, their ids and configs to another store and back.

    Records are not in the metadata: they are in the data directories, which move as they are.
    """


def store_options(command: F) -> F:
    """`--data`, `--store` and `--zookeeper`, of which at most one is given."""
    for decorate in (
        option(
            "--zookeeper",
            metavar="HOST:PORT/CHROOT",
            help="The metadata in a ZooKeeper.",
            section="Where the metadata is",
        ),
        option(
            "--store",
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="The metadata in this file (metadata.store).",
            section="Where the metadata is",
        ),
        option(
            "--data",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="The metadata of the broker with its data in DIR.  [default: ./data]",
            section="Where the metadata is",
        ),
    ):
        command = decorate(command)
    return command


@command.command(
    "export",
    cls=Command,
    short_help="Write a cluster's metadata to a file.",
    examples=[
        ("of the broker with its data in ./data", "barnabas metadata export tree.json"),
        ("of an Apache Kafka", "barnabas metadata export tree.json --zookeeper localhost:2181/kafka"),
        ("have a look", "barnabas metadata export - | jq '.nodes | keys'"),
    ],
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True))
@store_options
def export_command(file: Path, data: Path | None, store: Path | None, zookeeper: str | None) -> None:
    """Write a cluster's metadata to FILE, or to standard output (-).

    What belongs to a moment is left out: which brokers are up, and which is the controller.
    """
    import asyncio

    from barnabas.metadata.transfer import export_tree

    async def export() -> dict[str, Any]:
        async with open_store(data, store, zookeeper, must_exist=True) as source:
            return await export_tree(source)

    tree = asyncio.run(export())
    folder = _data(data, store, zookeeper)
    if strangers := _strangers(tree, folder):
        raise Failed(
            f"the metadata store of {folder} does not know {strangers}, of which there are partitions in {folder}: it "
            "is older than the data. Export from where the cluster ran last (--zookeeper), or this store nevertheless "
            "with --store FILE"
        )
    text = json.dumps(tree, indent=2)
    if str(file) == "-":
        click.echo(text)
    else:
        draft = file.with_name(f"{file.name}.tmp")
        draft.write_text(f"{text}\n", encoding="utf-8")
        draft.replace(file)
    remark(f"Exported {_counts(tree)} to {'standard output' if str(file) == '-' else file}.")


@command.command(
    "import",
    cls=Command,
    short_help="Write an exported file into a new store.",
    examples=[
        ("into the store of a new broker", "barnabas metadata import tree.json --data ./data"),
        ("for an Apache Kafka", "barnabas metadata import tree.json --zookeeper localhost:2181/kafka"),
        (
            "a backup, after a loss",
            "barnabas metadata import backup.json --outdated --zookeeper localhost:2181/barnabas",
        ),
    ],
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path, allow_dash=True))
@option(
    "--outdated",
    is_flag=True,
    help="The file is older than the logs: go on with epochs and producer ids that were never used.",
    section="What is imported",
)
@store_options
def import_command(file: Path, outdated: bool, data: Path | None, store: Path | None, zookeeper: str | None) -> None:
    """Write an exported FILE, or standard input (-), into a store that has no cluster yet.

    A store that is in use is refused before anything is written.
    """
    import asyncio

    from barnabas.metadata.sqlite import files_of
    from barnabas.metadata.transfer import TransferError, import_tree

    tree = _read(file)
    folder = _data(data, store, zookeeper)
    if strangers := _strangers(tree, folder):
        raise Failed(
            f"{file} does not know {strangers}, of which there are partitions in {folder}: it is older than the data, "
            "and a broker would set them aside. Export again from where the cluster ran last, or import nevertheless "
            "with --store FILE"
        )

    async def import_() -> None:
        async with open_store(data, store, zookeeper, must_exist=False) as target:
            await import_tree(target, tree, outdated=outdated)

    try:
        asyncio.run(import_())
    except TransferError as error:
        old = [] if zookeeper is not None else files_of(_store_path(data, store))
        hint = f". To replace the store, move it away: {', '.join(map(str, old))}" if old else ""
        raise Failed(f"{error}{hint}") from None
    remark(f"Imported {_counts(tree)}.")


@asynccontextmanager
async def open_store(
    data: Path | None, store: Path | None, zookeeper: str | None, *, must_exist: bool
) -> AsyncIterator[MetadataStore]:
    """The store that the options name, started; closed at the end."""
    if sum(given is not None for given in (data, store, zookeeper)) > 1:
        raise click.UsageError("Give one of --data, --store and --zookeeper.")
    opened = _zookeeper(zookeeper) if zookeeper is not None else _embedded(data, store, must_exist=must_exist)
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()


def _zookeeper(hosts: str) -> MetadataStore:
    if find_spec("kazoo") is None:
        raise Failed("this needs kazoo, which is not installed; install it with: pip install 'kazoo[sasl]'")
    from barnabas.metadata.zookeeper import ZooKeeperStore

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # it tells of every attempt; we tell of the outcome
    return ZooKeeperStore(hosts, connect_timeout=CONNECT_SECONDS)


def _embedded(data: Path | None, store: Path | None, *, must_exist: bool) -> MetadataStore:
    from barnabas.metadata.sqlite import SqliteStore

    path = _store_path(data, store)
    if must_exist and not path.exists():
        raise Failed(f"there is no metadata store at {path}: name it with --store FILE, or its broker with --data DIR")
    return SqliteStore(path)


def _store_path(data: Path | None, store: Path | None) -> Path:
    from barnabas.cli.broker_options import load_config

    return store or load_config(data=data).metadata_store


def _data(data: Path | None, store: Path | None, zookeeper: str | None) -> Path | None:
    """The data directory that goes with the metadata, where the options tell."""
    from barnabas.cli.broker_options import DEFAULT_DATA

    return data if store is not None or zookeeper is not None else data or DEFAULT_DATA


def _strangers(tree: Mapping[str, Any], data: Path | None) -> str:
    """Topics of which a data directory has partitions, and which the tree does not know, or has with another id."""
    from barnabas.storage.names import partition_of

    unknown = set()
    nodes = tree.get("nodes")
    if data is None or not data.is_dir() or not isinstance(nodes, dict):
        return ""
    for path in data.iterdir():
        if (tp := partition_of(path.name)) is None:
            continue
        node = nodes.get(f"{TOPICS}{tp.topic}")
        known = re.search(r'"topic_id": *"([^"]+)"', node) if isinstance(node, str) else None
        metadata = path / "partition.metadata"
        own = re.search(r"topic_id: (\S+)", metadata.read_text()) if metadata.exists() else None
        if node is None or (known is not None and own is not None and known[1] != own[1]):
            unknown.add(tp.topic)
    return ", ".join(sorted(unknown))


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = json.loads(sys.stdin.read() if str(file) == "-" else read_text(file))
    except ValueError as error:
        raise Failed(f"{file} is not JSON: {error}") from error
    if not isinstance(tree, dict):
        raise Failed(f"{file} does not hold an exported tree")
    return tree


def _counts(tree: Mapping[str, Any]) -> str:
    topics = sum(path.startswith(TOPICS) and "/" not in path.removeprefix(TOPICS) for path in tree["nodes"])
    return f"{len(tree['nodes'])} nodes, {topics} topics"
