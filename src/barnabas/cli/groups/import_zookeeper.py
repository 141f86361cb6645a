"""`barnabas groups import-zookeeper`: offsets of the oldest consumers, brought over into a group.

The consumers of Kafka 0.8, which lived on until Kafka 2.0, kept their offsets in ZooKeeper: a decimal number in each of
/consumers/GROUP/offsets/TOPIC/PARTITION. It names the next record to read, as committed offsets do. Nothing is written
to that ZooKeeper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options, timeout_option
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table, remark
from barnabas.cli.common.zookeeper import open_zookeeper
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.metadata.stores.store import MetadataStore, StoredNode


class Found(NamedTuple):
    """What ZooKeeper has of a group: how many of its consumers are running, and how far they have read."""

    running: int
    offsets: dict[TopicPartition, int]


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas groups import-zookeeper`."""

    zookeeper: str
    group: str
    topic: tuple[str, ...]
    dry_run: bool
    timeout: int
    as_json: bool


@click.command(
    "import-zookeeper",
    cls=Command,
    short_help="Import offsets that old consumers kept in ZooKeeper.",
    examples=[
        (
            "show what would be committed",
            "barnabas groups import-zookeeper --zookeeper zk1:2181/kafka --group billing --dry-run",
        ),
        ("commit it", "barnabas groups import-zookeeper --zookeeper zk1:2181/kafka --group billing"),
        ("only one topic", "barnabas groups import-zookeeper --zookeeper zk1:2181 --group billing --topic orders"),
    ],
)
@option(
    "--zookeeper",
    metavar="HOST:PORT,.../CHROOT",
    required=True,
    help="The ZooKeeper of the old cluster. It is only read.",
    section="From",
)
@option("--group", metavar="ID", required=True, help="The group, in ZooKeeper and in this cluster.", section="What")
@option(
    "--topic",
    metavar="NAME",
    multiple=True,
    help="Only this topic; repeatable.  [default: all topics for which the group has offsets]",
    section="What",
)
@option("--dry-run", is_flag=True, help="Show what would be committed, and commit nothing.", section="What")
@connection_options
@timeout_option
@json_option
@takes(Options)
def import_zookeeper(options: Options) -> None:
    """Commit the offsets that a group's consumers of Kafka 0.8 kept in ZooKeeper (/consumers/GROUP/offsets).

    Move the topics with their records first. The group must have no active members, neither in this cluster nor in the
    old one. An offset outside of its log is moved to the nearer end of the log.
    """
    import asyncio

    group, zookeeper = options.group, options.zookeeper
    found = asyncio.run(read_offsets(zookeeper, group, options.topic))
    if found.running:
        raise Failed(f"{found.running} consumers of group {group} are running at {zookeeper}. Stop them first.")
    if not found.offsets:
        raise Failed(
            f"There are no offsets below /consumers/{group}/offsets at {zookeeper}"
            f"{' of ' + ', '.join(options.topic) if options.topic else ''}. Is a chroot missing (HOST:PORT/CHROOT)?"
        )
    with options.connect(options.timeout) as cluster:
        offsets = commit(cluster, group, found.offsets, dry_run=options.dry_run)
    show(group, found.offsets, offsets, dry_run=options.dry_run, as_json=options.as_json)


async def read_offsets(zookeeper: str, group: str, topics: Collection[str]) -> Found:
    """Read a group's nodes. The chroot becomes part of the paths, since a store would make one that is not there."""
    hosts, slash, chroot = zookeeper.partition("/")
    root = f"{slash}{chroot}".rstrip("/") + f"/consumers/{group}"
    store = open_zookeeper(hosts)
    await store.start()
    try:
        running = len(await below(store, f"{root}/ids"))
        nodes = await below(store, f"{root}/offsets")
    finally:
        await store.close()
    return Found(running, parse_nodes(nodes, f"{root}/offsets/", topics))


async def below(store: MetadataStore, path: str) -> list[StoredNode]:
    """The nodes below a path, none if it is not there."""
    return [] if await store.find(path) is None else await store.subtree(path)


def parse_nodes(nodes: Collection[StoredNode], prefix: str, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Offsets from nodes named TOPIC/PARTITION; a node that holds something else is an error that names it."""
    offsets = {}
    for node in nodes:
        topic, slash, partition = node.path.removeprefix(prefix).partition("/")
        if not slash or (topics and topic not in topics):
            continue
        if "-" in partition:
            raise Failed(
                f"{node.path} is of Kafka 0.7, whose offsets are positions in files: there is no record number in it "
                "to import. Reset the group by time instead: `barnabas groups --reset-offsets --to-datetime ...`"
            )
        text = node.data.decode(errors="replace").strip()
        if not partition.isdecimal() or not text.isdecimal():
            raise Failed(f"{node.path} does not hold an offset of a partition: {text[:40]!r}")
        offsets[TopicPartition(topic, int(partition))] = int(text)
    return offsets


def commit(
    cluster: ClusterAdmin, group: str, wanted: dict[TopicPartition, int], *, dry_run: bool
) -> dict[TopicPartition, int]:
    """Check the group and the partitions, and commit; returns the offsets as they were committed."""
    from barnabas.cli.groups.reset import is_active, within_logs
    from barnabas.cli.groups.scope import require_led

    described = cluster.groups.describe([group])[group]
    if is_active(described):
        raise Failed(
            f"Group '{group}' is {described.state}: offsets can only be imported while it has no active members. "
            "Stop its consumers first."
        )
    require_led(cluster, wanted)
    offsets = within_logs(cluster, wanted)
    if not dry_run:
        cluster.groups.commit(group, offsets)
    return offsets


def show(
    group: str,
    found: dict[TopicPartition, int],
    offsets: dict[TopicPartition, int],
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """What was, or would be, committed."""
    rows = [(group, *partition, found[partition], offset) for partition, offset in sorted(offsets.items())]
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json(
                {
                    "group": group,
                    "executed": not dry_run,
                    "offsets": [
                        {"topic": topic, "partition": number, "zookeeperOffset": old, "newOffset": new}
                        for _, topic, number, old, new in rows
                    ],
                }
            )
        case Style.PLAIN:
            columns = (
                Column("GROUP", 15, grows=True),
                Column("TOPIC", 15, grows=True),
                Column("PARTITION", 10),
                Column("ZOOKEEPER-OFFSET", 17),
                Column("NEW-OFFSET"),
            )
            click.echo()
            print_columns(columns, rows)
        case Style.TABLE:
            print_table(("Group", "Topic", "Partition", "In ZooKeeper", "New offset"), rows)
    count = f"{len(rows)} offset{'' if len(rows) == 1 else 's'}"
    remark(f"Would import {count}; nothing was committed." if dry_run else f"Imported {count} into group {group}.")
