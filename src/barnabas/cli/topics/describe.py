"""`barnabas topics --describe`.

The columns Elr and LastKnownElr are there for scripts that read lines by column, and empty: Barnabas has no eligible
leader replicas, and librdkafka does not ask other brokers for theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import Style, choose_style, print_json, print_table
from barnabas.cli.topics.matching import required_topics

if TYPE_CHECKING:
    from barnabas.cli.topics.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.topics import ConfigValue, PartitionInfo, TopicInfo


def describe(cluster: ClusterAdmin, options: Options) -> None:
    """`--describe`."""
    admin = cluster.topics
    topics = admin.describe_topics(required_topics(cluster, options))
    if options.topic_id:
        topics = [topic for topic in topics if topic.topic_id == options.topic_id]
        if not topics and not options.if_exists:
            raise Failed(f"TopicId '{options.topic_id}' does not exist as expected")
    configs = admin.topic_configs(topic.name for topic in topics)
    live = admin.live_brokers() if options.unavailable_partitions else frozenset[int]()
    shown = [
        Described(topic, overridden(configs[topic.name]), wanted_partitions(topic, configs[topic.name], live, options))
        for topic in topics
        if not options.topics_with_overrides or overridden(configs[topic.name])
    ]
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json([described.as_json(with_partitions=not options.topics_with_overrides) for described in shown])
        case Style.PLAIN:
            for described in shown:
                described.print_lines(options)
        case Style.TABLE:
            for described in shown:
                described.print_table(options)


@dataclass(frozen=True, slots=True)
class Described:
    """A topic as `--describe` shows it: its overridden configs, and those of its partitions that were asked for."""

    topic: TopicInfo
    configs: list[ConfigValue]
    partitions: list[PartitionInfo]

    @property
    def config_text(self) -> str:
        """Overridden configs as kafka-topics writes them."""
        return ",".join(f"{config.name}={config.value}" for config in self.configs)

    def print_lines(self, options: Options) -> None:
        """One line for the topic and one per partition, as kafka-topics prints them."""
        topic = self.topic
        if not options.report:
            fields = [f"Topic: {topic.name}"]
            if topic.topic_id:
                fields.append(f"TopicId: {topic.topic_id}")
            fields.append(f"PartitionCount: {len(topic.partitions)}")
            fields.append(f"ReplicationFactor: {topic.replication_factor}")
            fields.append(f"Configs: {self.config_text}")
            click.echo("\t".join(fields))
        if options.topics_with_overrides:
            return
        for partition in self.partitions:
            click.echo(
                f"\tTopic: {topic.name}\tPartition: {partition.partition}"
                f"\tLeader: {'none' if partition.leader is None else partition.leader}"
                f"\tReplicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}\tElr: \tLastKnownElr: "
            )

    def print_table(self, options: Options) -> None:
        """A heading and a table of partitions."""
        topic = self.topic
        if options.report and not self.partitions:
            return
        click.echo(click.style(topic.name, bold=True) + (f"  id {topic.topic_id}" if topic.topic_id else ""))
        if self.configs:
            click.echo(self.config_text)
        if options.topics_with_overrides:
            return
        print_table(
            ("Partition", "Leader", "Replicas", "In sync"),
            (
                (p.partition, "none" if p.leader is None else p.leader, _ids(p.replicas), _ids(p.isr))
                for p in self.partitions
            ),
        )

    def as_json(self, *, with_partitions: bool) -> dict[str, object]:
        """Everything, as plain values."""
        value: dict[str, object] = {
            "topic": self.topic.name,
            "topicId": self.topic.topic_id,
            "partitionCount": len(self.topic.partitions),
            "replicationFactor": self.topic.replication_factor,
            "configs": {config.name: config.value for config in self.configs},
        }
        if with_partitions:
            value["partitions"] = [
                {"partition": p.partition, "leader": p.leader, "replicas": list(p.replicas), "isr": list(p.isr)}
                for p in self.partitions
            ]
        return value


def _ids(brokers: tuple[int, ...]) -> str:
    return ",".join(map(str, brokers))


def overridden(configs: list[ConfigValue]) -> list[ConfigValue]:
    """Configs that somebody has set: for the topic, for a broker or in a file."""
    return [config for config in configs if not config.default]


def wanted_partitions(
    topic: TopicInfo, configs: list[ConfigValue], live: frozenset[int], options: Options
) -> list[PartitionInfo]:
    """All partitions, or with reports those that one of the reports is about."""
    if not options.report:
        return list(topic.partitions)
    min_isr = next((int(config.value or 1) for config in configs if config.name == "min.insync.replicas"), 1)

    def wanted(partition: PartitionInfo) -> bool:
        isr = len(partition.isr)
        return (
            (options.under_replicated_partitions and isr < len(partition.replicas))
            or (options.unavailable_partitions and partition.leader not in live)
            or (options.under_min_isr_partitions and (partition.leader is None or isr < min_isr))
            or (options.at_min_isr_partitions and isr == min_isr)
        )

    return [partition for partition in topic.partitions if wanted(partition)]
