"""What each batch took: rows, time, lag and state, from what Spark tells its listeners. Pure.

Lag is how many offsets were there, and not yet read, when the batch was planned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from barnabas.pipelines.spark.group_progress import reported_offsets
from barnabas.pipelines.spark.read.offsets import between

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetrics:
    """The figures of one batch."""

    query: str
    """The pipeline and its sink: `orders.revenue`."""
    batch: int
    at: str
    """When it began, in UTC."""
    seconds: float
    rows: int
    """How many records were read."""
    rows_per_second: float
    lag: int | None
    """None if the source did not say where its topics end."""
    state_rows: int
    state_bytes: int
    watermark: str | None

    def line(self) -> str:
        """The figures as words of a log line."""
        return " ".join(f"{name}={'-' if value is None else value}" for name, value in asdict(self).items())


def batch_metrics(progress: Mapping[str, Any]) -> BatchMetrics:
    """The figures of a batch from Spark's JSON of its progress."""
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    state = progress.get("stateOperators", [])
    lags = [_lag(source) for source in progress["sources"] if source.get("endOffset") is not None]
    rows = progress["numInputRows"]
    return BatchMetrics(
        query=progress["name"],
        batch=progress["batchId"],
        at=progress["timestamp"],
        seconds=round(seconds, 3),
        rows=rows,
        rows_per_second=round(rows / seconds, 1) if seconds else 0.0,
        lag=None if None in lags else sum(lag for lag in lags if lag is not None),
        state_rows=sum(each.get("numRowsTotal", 0) for each in state),
        state_bytes=sum(each.get("memoryUsedBytes", 0) for each in state),
        watermark=progress.get("eventTime", {}).get("watermark"),
    )


def _lag(source: Mapping[str, Any]) -> int | None:
    latest = source.get("latestOffset")
    if latest is None:
        return None
    return sum(each.size for each in between(reported_offsets(source["endOffset"]), reported_offsets(latest)))
