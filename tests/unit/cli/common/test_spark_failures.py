"""How commands that run Spark end when they are interrupted."""

from __future__ import annotations

import logging

import click
import pytest

from barnabas.cli.common.spark_failures import ended_by_signals
from barnabas.pipelines.spark import java


def log(path: str, text: str) -> None:
    logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, path, 1, text, None, None))


def test_what_py4j_logs_of_a_java_that_is_ended_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def end_java(seconds: float) -> None:
        log("/somewhere/py4j/java_gateway.py", "Exception while sending command.")
        log("/somewhere/else.py", "what others say")

    monkeypatch.setattr(java, "end_java", end_java)
    with pytest.raises(click.exceptions.Exit), ended_by_signals("farewell"):
        raise KeyboardInterrupt
    assert caplog.messages == ["what others say"]
    log("/somewhere/py4j/java_gateway.py", "heard again")
    assert caplog.messages[-1] == "heard again"
