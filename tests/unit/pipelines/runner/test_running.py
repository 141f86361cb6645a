"""How a run is stopped from outside."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from barnabas.pipelines.runner import running

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from barnabas.pipelines.runner.queries import SinkQuery


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_although_spark_has_a_handler_of_its_own(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    stops: list[bool] = []

    def sparks_own(_: int, __: object) -> None:
        raise AssertionError("the batch that is under way would be cut off")

    def session(*_: Any, **__: Any) -> MagicMock:
        signal.signal(signal.SIGINT, sparks_own)
        return MagicMock()

    def supervise(_: Sequence[SinkQuery], stop: Event) -> None:
        signal.raise_signal(number)
        stops.append(stop.is_set())

    monkeypatch.setattr(running, "spark_session", session)
    monkeypatch.setattr(running, "supervise", supervise)
    try:
        running.run_pipelines([], by_signals=True)
        assert stops == [True]
        assert signal.getsignal(signal.SIGINT) is sparks_own, "who had it gets it back"
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
