"""Traffic of topics and of the whole broker (BrokerTopicMetrics)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.exposition import COUNTER, Family, counter, labels
from barnabas.broker.replication.traffic import Traffic, grown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.broker.metrics.scrape import Pace
    from barnabas.broker.replication.hosted_partitions import HostedPartitions

PREFIX: Final = "kafka_server_brokertopicmetrics_"
OF_TOPICS: Final[tuple[tuple[str, str, Callable[[Traffic], int]], ...]] = (
    ("messagesin", "Messages that leaders here appended.", lambda traffic: traffic.messages_in),
    ("bytesin", "Bytes of batches that leaders here appended.", lambda traffic: traffic.bytes_in),
    ("bytesout", "Bytes that were sent to consumers.", lambda traffic: traffic.bytes_out),
    (
        "totalproducerequests",
        "Batches that producers sent: one for each partition of a Produce.",
        lambda traffic: traffic.batches + traffic.refused_batches,
    ),
    ("failedproducerequests", "Batches that were refused.", lambda traffic: traffic.refused_batches),
    (
        "totalfetchrequests",
        "Partitions that fetches were told of, because there was something new.",
        lambda traffic: traffic.fetches,
    ),
    ("failedfetchrequests", "Partitions that fetches were told an error of.", lambda traffic: traffic.failed_fetches),
)
OF_THE_BROKER: Final[tuple[tuple[str, str, Callable[[Traffic], int]], ...]] = (
    ("replicationbytesin", "Bytes that were fetched from leaders.", lambda traffic: traffic.replicated_in),
    ("replicationbytesout", "Bytes that were sent to followers.", lambda traffic: traffic.replicated_out),
)


class TopicTraffic:
    """Series by topic, and of all topics together, without a label."""

    def __init__(self, partitions: HostedPartitions, most: int) -> None:
        self._partitions = partitions
        self._most = most
        """Topics that have series of their own."""

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """What was counted until now."""
        live: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for partition in list(self._partitions.leaders()):
            messages, size = grown(partition)
            of_topic = live[partition.tp.topic]
            of_topic[0] += messages
            of_topic[1] += size
            if pace.is_over:
                await pace.rest()
        families = [Family(PREFIX + name, COUNTER, text) for name, text, _ in OF_TOPICS]
        every = self._partitions.past_traffic.copy()
        for number, (topic, counted) in enumerate(list(self._partitions.traffic.items())):
            traffic = counted.copy()
            if topic in live:
                traffic.messages_in += live[topic][0]
                traffic.bytes_in += live[topic][1]
            every.add(traffic)
            if number < self._most:
                label = labels(topic=topic)
                for family, (_, _, read) in zip(families, OF_TOPICS, strict=True):
                    family.add(read(traffic), label)
            if pace.is_over:
                await pace.rest()
        for family, (_, _, read) in zip(families, OF_TOPICS, strict=True):
            family.add(read(every))
        for name, text, read in OF_THE_BROKER:
            family = Family(PREFIX + name, COUNTER, text)
            family.add(read(every))
            families.append(family)
        replicas = "kafka_server_replicamanager_"
        return [
            *families,
            counter(f"{replicas}isrshrinks", "How often replicas fell out of sync.", every.isr_shrinks),
            counter(f"{replicas}isrexpands", "How often replicas came back in sync.", every.isr_expands),
        ]
