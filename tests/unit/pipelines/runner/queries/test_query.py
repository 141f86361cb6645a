"""A query that is started again and again leaves nothing behind."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.pipelines.runner.queries import query
from barnabas.pipelines.runner.queries.query import SinkQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipelines.spec.model import Pipeline, Sink


class Listener:
    """Knows whether it was closed."""

    def __init__(self, *_: object) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True

    def wait_for_last(self) -> None: ...


class Streams:
    """The listeners of a session."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.seen: list[Listener] = []

    def addListener(self, listener: Listener) -> None:  # noqa: N802  (Spark's name)
        self.listeners.append(listener)
        self.seen.append(listener)

    def removeListener(self, listener: Listener) -> None:  # noqa: N802  (Spark's name)
        self.listeners.remove(listener)


class Spark:
    """Makes sessions, which Spark keeps until it ends."""

    def __init__(self) -> None:
        self.sessions: list[Spark] = []
        self.streams = Streams()

    def newSession(self) -> Spark:  # noqa: N802  (Spark's name)
        self.sessions.append(Spark())
        return self.sessions[-1]


class Described:
    """What is asked of a pipeline and its sink here."""

    kafka = None
    metrics = None
    name = "p"
    trigger = "availableNow"

    def query(self, _: object) -> str:
        return "p.sink"


class Failing(SinkQuery):
    """Spark refuses its writer."""

    def _about(self) -> dict[str, Any]:
        return {}

    def _writer(self, *_: object) -> Any:
        raise RuntimeError("Spark refuses it")


def test_restarts_leave_no_session_and_no_listener_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "register", lambda _: None)
    monkeypatch.setattr(query, "ClusterView", lambda _: nullcontext())
    monkeypatch.setattr(query, "BatchListener", Listener)
    spark = Spark()
    failing = Failing(cast("SparkSession", spark), cast("Pipeline", Described()), cast("Sink", None))
    for _ in range(3):
        with pytest.raises(RuntimeError):
            failing.start()
    failing.close()
    assert len(spark.sessions) == 1
    streams = spark.sessions[0].streams
    assert (len(streams.seen), streams.listeners) == (3, [])
    assert all(listener.is_closed for listener in streams.seen)
