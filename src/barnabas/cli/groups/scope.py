"""Which partitions an action is about: `--topic orders`, or `--topic orders:0,3` for some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.failures import Failed
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin


def partitions_of(cluster: ClusterAdmin, topics: Sequence[str]) -> list[TopicPartition]:
    """The partitions that the values of --topic name, in order; a topic that is not there is an error."""
    whole = [text for text in topics if ":" not in text]
    named = [partition for text in topics if ":" in text for partition in parse_partitions(text)]
    found = cluster.groups.leaders(whole) if whole else {}
    missing = sorted(set(whole) - {partition.topic for partition in found})
    if missing:
        raise Failed(f"There is no topic {', '.join(missing)}. `barnabas topics --list` shows all topics.")
    return sorted({*found, *named})


def parse_partitions(text: str) -> list[TopicPartition]:
    """`orders:0,3` as partitions."""
    topic, _, numbers = text.partition(":")
    if not topic or not all(number.strip().isdecimal() for number in numbers.split(",")):
        raise click.UsageError(f"--topic {text} is not of the form NAME or NAME:0,1,...")
    return [TopicPartition(topic, int(number)) for number in numbers.split(",")]


def require_led(cluster: ClusterAdmin, partitions: Iterable[TopicPartition]) -> None:
    """Fail for partitions that do not exist, or that no broker leads."""
    wanted = sorted(partitions)
    leaders = cluster.groups.leaders(partition.topic for partition in wanted) if wanted else {}
    missing = [str(partition) for partition in wanted if partition not in leaders]
    if missing:
        raise Failed(f"There is no partition {', '.join(missing)}. `barnabas topics --describe` shows all partitions.")
    headless = [str(partition) for partition in wanted if leaders[partition] is None]
    if headless:
        raise Failed(f"{', '.join(headless)} has no leader: try again when a broker that has a replica is up.")
