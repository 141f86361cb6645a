"""All sources of a scrape, in the order in which their series stand on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.metrics.scrape import Scraper
from barnabas.broker.metrics.series.broker import BrokerSeries
from barnabas.broker.metrics.series.coordinators import CoordinatorSeries
from barnabas.broker.metrics.series.groups import GroupSeries
from barnabas.broker.metrics.series.network import NetworkSeries
from barnabas.broker.metrics.series.partitions import PartitionSeries
from barnabas.broker.metrics.series.process import ProcessSeries
from barnabas.broker.metrics.series.requests import RequestSeries
from barnabas.broker.metrics.series.storage import StorageSeries
from barnabas.broker.metrics.series.topics import TopicTraffic
from barnabas.broker.serving.login import LoginCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.assembly import Assembly
    from barnabas.broker.lifecycle import BrokerState
    from barnabas.broker.metrics.event_loop import EventLoopWatch
    from barnabas.net.server import Server


def make_scraper(
    assembly: Assembly, state: Callable[[], BrokerState], server: Callable[[], Server | None], loop: EventLoopWatch
) -> Scraper:
    """A scraper of everything that there is to know of a broker."""
    broker = assembly.broker
    number = broker.settings.number
    most_partitions, most_groups = number("metrics.max.partitions"), number("metrics.max.groups")
    assert assembly.request_times is not None
    return Scraper(
        {
            "broker": BrokerSeries(broker, state),
            "network": NetworkSeries(
                broker, server, LoginCounts() if assembly.logins is None else assembly.logins.counts
            ),
            "storage": StorageSeries(broker, assembly.cleaning, server),
            "topics": TopicTraffic(broker.replicas.partitions, most_partitions),
            "partitions": PartitionSeries(broker.broker_id, broker.replicas, broker.metadata, most_partitions),
            "groups": GroupSeries(broker, most_groups, number("metrics.max.group.offsets")),
            "coordinators": CoordinatorSeries(broker, most_groups),
            "requests": RequestSeries(assembly.request_times),
            "process": ProcessSeries(loop),
        }
    )
