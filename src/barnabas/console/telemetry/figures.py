"""The few figures of a client that matter, out of the hundreds that it pushes.

Java's clients tell rates and lag, also by topic and partition under the same names; librdkafka tells latencies by
broker. A figure that a client does not tell is None.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.console.telemetry.otlp import MetricPoint

PREFIX: Final = "org.apache.kafka."
RECORDS: Final = (
    "producer.record.send.rate",
    "consumer.fetch.manager.records.consumed.rate",
    "consumer.share.fetch.manager.records.consumed.rate",
)
BYTES: Final = (
    "producer.outgoing.byte.rate",
    "consumer.fetch.manager.bytes.consumed.rate",
    "consumer.share.fetch.manager.bytes.consumed.rate",
)
LATENCY: Final = (
    "producer.request.latency",
    "producer.node.request.latency",
    "consumer.fetch.manager.fetch.latency",
    "consumer.share.fetch.manager.fetch.latency",
    "consumer.node.request.latency",
)
"""Without their end, which is .avg or .max; the first that there is counts."""
LAG: Final = "consumer.fetch.manager.records.lag"
ERRORS: Final = ("producer.record.error.rate",)


class ClientFigures(NamedTuple):
    """What a page shows of one client in a row."""

    kind: str
    """producer, consumer, share consumer; empty if none of its metrics tells."""
    records: float | None
    bytes: float | None
    """Each second."""
    errors: float | None
    """Records that could not be sent, each second."""
    latency: float | None
    worst: float | None
    """Milliseconds: the mean and the longest of a producer's requests, or of a consumer's fetches."""
    lag: float | None
    """Records behind the end of its partitions, all together."""


def figures_of(points: Sequence[MetricPoint]) -> ClientFigures:
    """The figures of one push."""
    by_name: dict[str, list[MetricPoint]] = {}
    for point in points:
        if point.name.startswith(PREFIX):
            by_name.setdefault(point.name.removeprefix(PREFIX), []).append(point)
    latency = next((name for name in LATENCY if f"{name}.avg" in by_name or f"{name}.max" in by_name), LATENCY[0])
    averages, longest = by_name.get(f"{latency}.avg", ()), by_name.get(f"{latency}.max", ())
    return ClientFigures(
        kind=_kind(by_name),
        records=_total(by_name, RECORDS),
        bytes=_total(by_name, BYTES),
        errors=_total(by_name, ERRORS),
        latency=fmean(each.value for each in averages) if averages else None,
        worst=max((each.value for each in longest), default=None),
        lag=_lag(by_name),
    )


def _kind(names: dict[str, list[MetricPoint]]) -> str:
    words = {tuple(name.split(".")[:2]) for name in names}
    if any(first == "consumer" and second == "share" for first, second in (each for each in words if len(each) == 2)):
        return "share consumer"
    return next((kind for kind in ("producer", "consumer", "admin") if any(each[0] == kind for each in words)), "")


def _total(by_name: dict[str, list[MetricPoint]], names: Sequence[str]) -> float | None:
    """The client's own figure, or the sum of those of its topics, without those of partitions."""
    for name in names:
        points = by_name.get(name)
        if not points:
            continue
        own = [each.value for each in points if not _has(each, "topic")]
        of_topics = [each.value for each in points if _has(each, "topic") and not _has(each, "partition")]
        return sum(own) if own else sum(of_topics)
    return None


def _lag(by_name: dict[str, list[MetricPoint]]) -> float | None:
    of_partitions = [each.value for each in by_name.get(LAG, ()) if _has(each, "partition")]
    if of_partitions:
        return sum(of_partitions)
    return max((each.value for each in by_name.get(f"{LAG}.max", ())), default=None)


def _has(point: MetricPoint, label: str) -> bool:
    return any(name == label for name, _ in point.labels)
