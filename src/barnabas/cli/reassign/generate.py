"""`barnabas reassign-partitions --generate`: propose a plan."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.values.pairs import parse_numbers
from barnabas.cli.reassign.plans import as_text, read_topics
from barnabas.cli.reassign.progress import directories
from barnabas.machines.controller.placement import place

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.cli.reassign.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.model.ids import TopicPartition


def generate(cluster: ClusterAdmin, options: Options) -> None:
    """`--generate`."""
    assert options.topics_to_move_json_file is not None
    topics = read_topics(options.topics_to_move_json_file)
    wanted = parse_brokers(options.broker_list or "")
    found = cluster.replicas.layout(topics)
    missing = sorted(set(topics) - {partition.topic for partition in found.replicas})
    if missing:
        raise Failed(f"Topic {missing[0]} not found.")
    racks = usable_racks(found.racks, wanted, ignored=options.disable_rack_aware)
    proposed = propose(topics, found.replicas, racks)
    current, _ = directories(cluster, {broker for brokers in found.replicas.values() for broker in brokers})
    click.echo(f"Current partition replica assignment\n{as_text(found.replicas, current)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{as_text(proposed, {})}")


def usable_racks(racks: Mapping[int, str | None], wanted: Collection[int], *, ignored: bool) -> dict[int, str | None]:
    """The racks of the wanted brokers that are up, all None if racks are ignored; raises Failed if some have none."""
    found = {broker: rack for broker, rack in racks.items() if broker in wanted}
    if ignored:
        return dict.fromkeys(found)
    if len({rack is None for rack in found.values()}) == 2:
        raise Failed(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    return found


def propose(
    topics: Collection[str], replicas: Mapping[TopicPartition, tuple[int, ...]], racks: Mapping[int, str | None]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Where the partitions of topics could be, with as many replicas as they have."""
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in topics:
        partitions = sorted(partition for partition in replicas if partition.topic == topic)
        factor = len(replicas[partitions[0]])
        start = random.randrange(max(len(racks), 1) ** 2)
        placed = place(racks, start, range(len(partitions)), factor)
        proposed.update(zip(partitions, placed, strict=True))
    return proposed


def parse_brokers(text: str) -> list[int]:
    """Broker ids by commas; raises UsageError."""
    brokers = parse_numbers(text, "--broker-list")
    if len(set(brokers)) != len(brokers):
        raise click.UsageError(f"--broker-list {text} has a broker more than once.")
    return brokers
