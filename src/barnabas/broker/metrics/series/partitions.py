"""Series of partitions: their logs on this broker, and of those that it leads how their replicas are.

Each partition has seventeen lines, and there may be ten thousand of them, so they are written in place. Names are those
of Kafka's Log and Partition beans, and of kafka_exporter. The latter come from leaders alone, and the number of a
topic's partitions from the leader of the first that has one, so that a sum over all brokers counts each once.

A log that was not used since the start is not loaded for a scrape (`cold_logs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.metrics.exposition import GAUGE, Family, escape, gauge
from barnabas.broker.metrics.series.cold_logs import ColdLogs, LogFiles
from barnabas.machines.controller.image import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.metrics.scrape import Pace
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.replication.replicas import ReplicaManager
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.storage.log.log import Log


class ReplicaCounts:
    """How many partitions are in which condition, as the replica manager's gauges tell it."""

    __slots__ = ("at_min_isr", "leaders", "offline", "partitions", "reassigning", "under_min_isr", "under_replicated")

    def __init__(self) -> None:
        self.leaders = self.partitions = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.offline = self.reassigning = 0


class PartitionSeries:
    """Series by partition."""

    def __init__(self, broker_id: int, replicas: ReplicaManager, metadata: MetadataCache, most: int) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._most = most
        """Partitions that have series of their own."""
        self._cold = ColdLogs()

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """The state of replicas here."""
        image = self._metadata.image
        logs = _LogFamilies()
        led = _LeaderFamilies()
        counts = ReplicaCounts()
        hosted = self._replicas.partitions
        leaders, followers = list(hosted.leaders()), list(hosted.followers())
        await self._cold.look_up(hosted.logs(), pace)
        for number, partition in enumerate(leaders):
            topic, index = partition.tp
            labels = f'{{topic="{escape(topic)}",partition="{index}"}} '
            is_listed = number < self._most
            if is_listed:
                logs.add(labels, partition.log, self._files_of(partition.log))
            led.add(labels, partition, image, counts, is_listed)
            if pace.is_over:
                await pace.rest()
        for follower in followers[: max(self._most - len(leaders), 0)]:
            topic, index = follower.tp
            logs.add(f'{{topic="{escape(topic)}",partition="{index}"}} ', follower.log, self._files_of(follower.log))
            if pace.is_over:
                await pace.rest()
        counts.leaders, counts.partitions = len(leaders), len(leaders) + len(followers)
        counts.offline = len(self._replicas.unusable())
        topics = await self._topic_sizes(image, pace)
        return (*logs.families, *led.families, topics, *_counted(counts), self._omitted(counts.partitions))

    def _omitted(self, partitions: int) -> Family:
        return gauge(
            "barnabas_metrics_omitted_partitions",
            "Partitions without series of their own, because there are more than metrics.max.partitions.",
            max(partitions - self._most, 0),
        )

    async def _topic_sizes(self, image: ClusterImage, pace: Pace) -> Family:
        """How many partitions each topic has, of the topics that this broker speaks for."""
        family = Family("kafka_topic_partitions", GAUGE, "Number of partitions of this topic.")
        for number, topic in enumerate(image.topics.values()):
            first = next((one.leader for one in topic.partitions if one.leader != NO_LEADER), NO_LEADER)
            if first == self._broker_id and number < self._most:
                family.lines.append(f'kafka_topic_partitions{{topic="{escape(topic.name)}"}} {len(topic.partitions)}\n')
            if pace.is_over:
                await pace.rest()
        return family

    # Sizes

    def _files_of(self, log: Log) -> LogFiles | None:
        segments = log.loaded
        if segments is not None:
            found = segments.all
            return LogFiles(sum([each.size for each in found]), len(found))
        return self._cold.of(log)


class _LogFamilies:
    """Series of logs, of leaders and followers alike."""

    def __init__(self) -> None:
        self.families = (
            Family("kafka_log_log_size", GAUGE, "Bytes of the log on disk."),
            Family("kafka_log_log_numlogsegments", GAUGE, "Segments of the log."),
            Family("kafka_log_log_logstartoffset", GAUGE, "The first offset of the log."),
            Family("kafka_log_log_logendoffset", GAUGE, "The offset that the next record gets."),
        )
        self._size, self._segments, self._start, self._end = (family.lines.append for family in self.families)

    def add(self, labels: str, log: Log, files: LogFiles | None) -> None:
        if files is not None:
            self._size(f"kafka_log_log_size{labels}{files.size}\n")
            self._segments(f"kafka_log_log_numlogsegments{labels}{files.segments}\n")
        self._start(f"kafka_log_log_logstartoffset{labels}{log.log_start_offset}\n")
        self._end(f"kafka_log_log_logendoffset{labels}{log.log_end_offset}\n")


class _LeaderFamilies:
    """Series of partitions that this broker leads."""

    def __init__(self) -> None:
        self.families = (
            Family("kafka_cluster_partition_underreplicated", GAUGE, "Whether replicas are not in sync."),
            Family("kafka_cluster_partition_insyncreplicascount", GAUGE, "Replicas of the partition that are in sync."),
            Family("kafka_cluster_partition_replicascount", GAUGE, "Replicas of the partition."),
            Family("kafka_cluster_partition_underminisr", GAUGE, "Whether fewer than min.insync.replicas are in sync."),
            Family("kafka_cluster_partition_atminisr", GAUGE, "Whether just min.insync.replicas are in sync."),
            Family("kafka_cluster_partition_laststableoffsetlag", GAUGE, "Offsets after the last stable one."),
            Family("kafka_topic_partition_current_offset", GAUGE, "The offset at which consumers are at the end."),
            Family("kafka_topic_partition_oldest_offset", GAUGE, "The first offset of the partition."),
            Family("kafka_topic_partition_in_sync_replica", GAUGE, "Number of replicas in sync."),
            Family("kafka_topic_partition_leader", GAUGE, "The id of the broker that leads."),
            Family("kafka_topic_partition_leader_is_preferred", GAUGE, "Whether the preferred replica leads."),
            Family("kafka_topic_partition_replicas", GAUGE, "Number of replicas."),
            Family("kafka_topic_partition_under_replicated_partition", GAUGE, "Whether replicas are not in sync."),
        )
        self._appends = [family.lines.append for family in self.families]
        self._names = [family.sample for family in self.families]

    def add(
        self, labels: str, partition: LeaderPartition, image: ClusterImage, counts: ReplicaCounts, is_listed: bool
    ) -> None:
        leader, log = partition.leader, partition.log
        known = image.partition(*partition.tp)
        coming = 0 if known is None else len(known.adding)
        in_sync, replicas = len(leader.isr), len(leader.replicas)
        needed = log.config.min_insync_replicas
        under = in_sync < replicas - coming
        counts.under_replicated += under
        counts.under_min_isr += in_sync < needed
        counts.at_min_isr += in_sync == needed
        counts.reassigning += known is not None and known.is_reassigned
        if not is_listed:
            return
        high_watermark = leader.high_watermark
        stable = log.last_stable_offset(high_watermark) if log.is_open else high_watermark
        values = (
            int(under),
            in_sync,
            replicas,
            int(in_sync < needed),
            int(in_sync == needed),
            max(high_watermark - stable, 0),
            high_watermark,
            log.log_start_offset,
            in_sync,
            leader.broker_id,
            int(leader.replicas[0] == leader.broker_id),
            replicas,
            int(under),
        )
        for append, name, value in zip(self._appends, self._names, values, strict=True):
            append(f"{name}{labels}{value}\n")


def _counted(counts: ReplicaCounts) -> list[Family]:
    figures = (
        ("partitioncount", "Partitions with a replica here.", counts.partitions),
        ("leadercount", "Partitions that this broker leads.", counts.leaders),
        ("underreplicatedpartitions", "Partitions led here with replicas out of sync.", counts.under_replicated),
        (
            "underminisrpartitioncount",
            "Partitions led here with fewer than min.insync.replicas in sync.",
            counts.under_min_isr,
        ),
        ("atminisrpartitioncount", "Partitions led here with just min.insync.replicas in sync.", counts.at_min_isr),
        ("offlinereplicacount", "Replicas here whose log or log directory has failed.", counts.offline),
        ("reassigningpartitions", "Partitions led here whose replicas are being moved.", counts.reassigning),
    )
    return [gauge(f"kafka_server_replicamanager_{name}", text, value) for name, text, value in figures]
