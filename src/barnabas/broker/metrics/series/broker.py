"""The broker in its cluster: its state, and what the controller knows."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.exposition import GAUGE, Family, counter, gauge, labels
from barnabas.machines.controller.image import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.lifecycle import BrokerState
    from barnabas.broker.metrics.scrape import Pace

VERSION: Final = version("barnabas")


class BrokerSeries:
    """Series of the broker as a whole."""

    def __init__(self, broker: BrokerContext, state: Callable[[], BrokerState]) -> None:
        self._broker = broker
        self._state = state

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """The broker as it is now."""
        return [*self._itself(), *await self._controller(pace)]

    def _itself(self) -> list[Family]:
        broker = self._broker
        info = Family("barnabas_build_info", GAUGE, "The version of this broker, its id and its cluster; always 1.")
        info.add(
            1, labels(version=VERSION, node_id=broker.broker_id, cluster_id=broker.metadata.image.cluster_id or "")
        )
        progress = broker.logs.progress
        return [
            info,
            gauge("kafka_server_kafkaserver_brokerstate", "The broker's state by Kafka's number.", int(self._state())),
            gauge(
                "barnabas_broker_fenced", "Whether the broker leads nothing.", int(broker.membership.fence.is_fenced)
            ),
            gauge("barnabas_recovery_logs", "Logs that the start found.", progress.logs),
            gauge(
                "barnabas_recovery_logs_loaded",
                "Logs of those that the start found that are loaded by now.",
                progress.loaded,
            ),
            self._broker_info(),
        ]

    def _broker_info(self) -> Family:
        """Which broker this is, as kafka_exporter tells it of all."""
        family = Family("kafka_broker_info", GAUGE, "Id and address of a broker; always 1.")
        endpoints = self._broker.metadata.image.brokers.get(self._broker.broker_id)
        for endpoint in [] if endpoints is None else list(endpoints.endpoints.values())[:1]:
            family.add(1, labels(id=self._broker.broker_id, address=f"{endpoint.host}:{endpoint.port}"))
        return family

    async def _controller(self, pace: Pace) -> list[Family]:
        """What the active controller knows of the cluster; zeros elsewhere, so that a sum counts everything once."""
        broker, active = self._broker, self._broker.controller.is_active
        image = broker.metadata.image
        offline = imbalanced = partitions = 0
        for topic in image.topics.values() if active else ():
            partitions += len(topic.partitions)
            for partition in topic.partitions:
                offline += partition.leader == NO_LEADER
                imbalanced += partition.leader not in (NO_LEADER, partition.replicas[0])
            if pace.is_over:
                await pace.rest()
        figures = (
            ("activecontrollercount", "Whether this broker is the active controller.", int(active)),
            ("offlinepartitionscount", "Partitions without a leader.", offline),
            ("preferredreplicaimbalancecount", "Partitions that another than the preferred replica leads.", imbalanced),
            ("globaltopiccount", "Topics of the cluster.", len(image.topics) if active else 0),
            ("globalpartitioncount", "Partitions of the cluster.", partitions),
            ("activebrokercount", "Brokers that are registered.", len(image.brokers) if active else 0),
        )
        families = [gauge(f"kafka_controller_kafkacontroller_{name}", text, value) for name, text, value in figures]
        elections, unclean = broker.controller.elections
        stats = "kafka_controller_controllerstats_"
        families += [
            counter(f"{stats}uncleanleaderelections", "Leaders that were elected here and lacked records.", unclean),
            counter("barnabas_leader_elections", "Leaders that were elected here.", elections),
        ]
        if active:
            families.append(gauge("kafka_brokers", "Number of brokers in the cluster.", len(image.brokers)))
        return families
