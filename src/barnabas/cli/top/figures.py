"""What `barnabas top` shows, from two looks at all brokers."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.cli.top.reading import Snapshot, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BEANS: Final = "kafka_server_brokertopicmetrics_"
MOST_ROWS: Final = 10


class BrokerRow(NamedTuple):
    """One broker."""

    target: str
    messages: float
    bytes_in: float
    bytes_out: float
    requests: float
    produce_p99_ms: float | None
    idle: float | None
    connections: int
    leaders: int
    failure: str | None


class TopicRow(NamedTuple):
    """One topic, on all brokers together."""

    topic: str
    messages: float
    bytes_in: float
    bytes_out: float


class LagRow(NamedTuple):
    """One group and topic."""

    group: str
    topic: str
    lag: int
    per_second: float
    """By how much the lag grows."""


class SlowRow(NamedTuple):
    """One slow request."""

    broker: str
    kind: str
    client: str
    ms: float
    in_loop_ms: float


class Figures(NamedTuple):
    """All that is shown."""

    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    lags: tuple[LagRow, ...]
    slow: tuple[SlowRow, ...]
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        rows: dict[str, tuple[BrokerRow | TopicRow | LagRow | SlowRow, ...]] = {
            "brokers": self.brokers,
            "topics": self.topics,
            "lags": self.lags,
            "slowRequests": self.slow,
        }
        return {name: [row._asdict() for row in found] for name, found in rows.items()} | {
            "problems": list(self.problems)
        }


def compare(before: Sequence[Snapshot], now: Sequence[Snapshot]) -> Figures:
    """What happened between two looks at the same brokers."""
    known = {each.target: each for each in before if each.failure is None}
    pairs = [(known.get(each.target, each), each) for each in now]
    return Figures(
        tuple(_broker(first, second) for first, second in pairs),
        tuple(_topics(pairs)),
        tuple(_lags(pairs)),
        tuple(_slow(now)),
        tuple(_problems(now)),
    )


def _rate(before: float, now: float, seconds: float) -> float:
    """Per second; a counter that began anew counts from zero."""
    if seconds <= 0:
        return 0.0
    return (now - before if now >= before else now) / seconds


def _broker(first: Snapshot, second: Snapshot) -> BrokerRow:
    seconds = second.at - first.at

    def rate(name: str, **labels: str) -> float:
        return _rate(first.total(name, **labels), second.total(name, **labels), seconds)

    def one(name: str, **labels: str) -> float | None:
        return next((value for _, value in second.of(name, **labels) if value == value), None)

    fetches = second.total("kafka_network_requestmetrics_requests_total", request="Fetch")
    fetched = first.total("kafka_network_requestmetrics_requests_total", request="Fetch")
    return BrokerRow(
        printable(second.target),
        rate(f"{BEANS}messagesin_total", topic=""),
        rate(f"{BEANS}bytesin_total", topic=""),
        rate(f"{BEANS}bytesout_total", topic=""),
        max(rate("kafka_network_requestmetrics_requests_total") - _rate(fetched, fetches, seconds), 0.0),
        one("kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99"),
        one("kafka_network_socketserver_networkprocessoravgidle_percent"),
        int(second.total("kafka_server_socket_server_metrics_connection_count")),
        int(second.total("kafka_server_replicamanager_leadercount")),
        second.failure,
    )


def _topics(pairs: Iterable[tuple[Snapshot, Snapshot]]) -> list[TopicRow]:
    rates: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for first, second in pairs:
        for place, name in enumerate(("messagesin", "bytesin", "bytesout")):
            before = {labels.get("topic"): value for labels, value in first.of(f"{BEANS}{name}_total")}
            for labels, value in second.of(f"{BEANS}{name}_total"):
                if topic := labels.get("topic"):
                    rates[topic][place] += _rate(before.get(topic, 0.0), value, second.at - first.at)
    rows = [TopicRow(printable(topic), *values) for topic, values in rates.items()]
    return sorted(rows, key=lambda row: (-row.bytes_in - row.bytes_out, row.topic))[:MOST_ROWS]


def _lags(pairs: Iterable[tuple[Snapshot, Snapshot]]) -> list[LagRow]:
    rows = []
    for first, second in pairs:
        for name, group in (("kafka_consumergroup_lag_sum", "consumergroup"), ("barnabas_sharegroup_lag", "group")):
            before, now = (_by_topic(each, name, group) for each in (first, second))
            seconds = second.at - first.at
            for key, lag in now.items():
                grown = (lag - before.get(key, lag)) / seconds if seconds > 0 else 0.0
                rows.append(LagRow(printable(key[0]), printable(key[1]), int(lag), grown))
    return sorted(rows, key=lambda row: (-row.lag, row.group, row.topic))[:MOST_ROWS]


def _by_topic(snapshot: Snapshot, name: str, group: str) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = defaultdict(float)
    for labels, value in snapshot.of(name):
        found[labels.get(group, ""), labels.get("topic", "")] += value
    return found


def _slow(snapshots: Iterable[Snapshot]) -> list[SlowRow]:
    found = [
        (
            each.get("at_ms", 0),
            SlowRow(
                printable(snapshot.target),
                printable(each.get("kind", "")),
                printable(each.get("client_id", "")),
                1000 * each.get("seconds", 0.0),
                1000 * each.get("in_loop", 0.0),
            ),
        )
        for snapshot in snapshots
        for each in snapshot.slow
    ]
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])[:MOST_ROWS]]


def _problems(snapshots: Sequence[Snapshot]) -> list[str]:
    """What is wrong with the cluster, in words."""
    silent = [each for each in snapshots if each.failure is not None]
    problems = [f"{printable(each.target)} does not answer: {printable(each.failure, 200)}." for each in silent]
    if len(silent) == len(snapshots):
        return problems

    def total(name: str) -> int:
        return int(sum(each.total(name) for each in snapshots))

    if total("kafka_controller_kafkacontroller_activecontrollercount") == 0:
        problems.append("None of these brokers is the active controller.")
    for name, words in (
        ("kafka_controller_kafkacontroller_offlinepartitionscount", "partitions have no leader."),
        (
            "kafka_server_replicamanager_underminisrpartitioncount",
            "partitions refuse producers with acks=all.",
        ),
        ("kafka_server_replicamanager_underreplicatedpartitions", "partitions have replicas that are not in sync."),
        ("kafka_log_logmanager_offlinelogdirectorycount", "log directories have failed."),
    ):
        if count := total(name):
            problems.append(f"{count} {words}")
    return problems
