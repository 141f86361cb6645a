"""Spark is stopped without a wait for what PySpark looks at once a second."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.pipelines.spark.context import stop_spark

DEADLINE = 30.0


class Server:
    """PySpark's server of accumulators, which ends when it is let."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps
        self.address_family = socket.AF_INET
        self.may_end, self.has_ended = threading.Event(), threading.Event()

    def shutdown(self) -> None:
        self._steps.append("server asked")
        self.may_end.wait(DEADLINE)
        self.has_ended.set()


class Session:
    """A session, whose context takes the server along when it is stopped with it."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.steps: list[str] = []
        self.server = Server(self.steps)
        self.sparkContext = SimpleNamespace(_accumulatorServer=self.server)
        self._error = error

    def stop(self) -> None:
        self.steps.append("Spark stopped" if self.sparkContext._accumulatorServer is None else "Spark waits for it")
        if self._error is not None:
            raise self._error


def test_spark_is_stopped_before_its_server_of_accumulators_and_that_one_is_not_waited_for() -> None:
    session: Any = Session()
    stop_spark(session)
    assert not session.server.has_ended.is_set()
    session.server.may_end.set()
    assert session.server.has_ended.wait(DEADLINE)
    assert session.steps == ["Spark stopped", "server asked"]


def test_the_server_of_accumulators_ends_also_where_java_is_gone() -> None:
    session: Any = Session(error=ConnectionRefusedError("Java is gone"))
    with pytest.raises(ConnectionRefusedError):
        stop_spark(session)
    session.server.may_end.set()
    assert session.server.has_ended.wait(DEADLINE)


def test_a_session_without_such_a_server_is_stopped() -> None:
    session: Any = Session()
    session.sparkContext._accumulatorServer = None
    stop_spark(session)
    assert session.steps == ["Spark stopped"]


def test_a_server_of_accumulators_with_a_file_is_left_to_pyspark_which_removes_that() -> None:
    session: Any = Session()
    session.server.address_family = socket.AF_UNIX
    stop_spark(session)
    assert session.steps == ["Spark waits for it"]
