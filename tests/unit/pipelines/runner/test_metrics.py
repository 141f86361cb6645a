"""The figures of a batch from what Spark tells."""

from __future__ import annotations

from typing import Any

from barnabas.pipelines.runner.metrics import BatchMetrics, batch_metrics

PROGRESS: dict[str, Any] = {
    "name": "orders.revenue",
    "batchId": 3,
    "timestamp": "2026-01-31T10:00:00.000Z",
    "durationMs": {"triggerExecution": 2000, "addBatch": 1500},
    "numInputRows": 500,
    "eventTime": {"watermark": "2026-01-31T09:50:00.000Z"},
    "stateOperators": [{"numRowsTotal": 4, "memoryUsedBytes": 100}, {"numRowsTotal": 6, "memoryUsedBytes": 50}],
    "sources": [
        {
            "startOffset": {"orders": {"0": 0}},
            "endOffset": {"orders": {"0": 400, "1": 100}},
            "latestOffset": {"orders": {"0": 450, "1": 100}},
        }
    ],
}
METRICS = BatchMetrics(
    query="orders.revenue",
    batch=3,
    at="2026-01-31T10:00:00.000Z",
    seconds=2.0,
    rows=500,
    rows_per_second=250.0,
    lag=50,
    state_rows=10,
    state_bytes=150,
    watermark="2026-01-31T09:50:00.000Z",
)


def test_a_batch_has_rows_time_lag_and_state() -> None:
    assert batch_metrics(PROGRESS) == METRICS


def test_offsets_may_be_text_too() -> None:
    source = {"endOffset": '{"orders":{"0":400}}', "latestOffset": '{"orders":{"0":450}}'}
    assert batch_metrics({**PROGRESS, "sources": [source, source]}).lag == 100


def test_what_a_source_does_not_say_is_not_known() -> None:
    source = {"endOffset": {"orders": {"0": 400}}, "latestOffset": None}
    found = batch_metrics({**PROGRESS, "sources": [source], "durationMs": {}, "eventTime": {}, "stateOperators": []})
    assert (found.lag, found.rows_per_second, found.watermark, found.state_rows) == (None, 0.0, None, 0)


def test_a_line_has_every_figure() -> None:
    assert METRICS.line() == (
        "query=orders.revenue batch=3 at=2026-01-31T10:00:00.000Z seconds=2.0 rows=500 rows_per_second=250.0 lag=50 "
        "state_rows=10 state_bytes=150 watermark=2026-01-31T09:50:00.000Z"
    )
