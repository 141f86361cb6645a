"""What the command that runs several brokers does when it is asked to restart them, and one of them is in trouble."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.cli import start
from barnabas.cli.common.failures import Failed
from barnabas.cli.start import rolling, several
from barnabas.cli.start.several import _Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

ASKED_MEANWHILE = "It was asked again meanwhile: to restart all brokers, ask once more."


class FakeBroker:
    """A child without a process."""

    def __init__(self, broker_id: int, words: list[str], starter_pipe: int) -> None:
        self.broker_id = broker_id
        self.runs = True
        self.code = 0
        self.ready_pipe = -1
        self.ready_at = 0.0
        self.is_late = False
        self.report: dict[str, Any] | None = {"listeners": "h:1", "data": "d", "metrics": None}
        self.is_end_told = False
        self.starts = 0
        self.hangs = False
        self.gets_ready = True

    def tell_end(self) -> str | None:
        if self.runs or self.is_end_told:
            return None
        self.is_end_told = True
        return f"Broker {self.broker_id} has ended"

    def ask_to_end(self) -> None:
        self.runs = self.hangs

    def ends_within(self, seconds: float) -> bool:
        return not self.runs

    def wait_for_end(self, until: float) -> None:
        self.runs = self.hangs = False

    def start_again(self) -> None:
        self.starts += 1
        self.runs, self.is_end_told = True, False
        if not self.gets_ready:
            self.report, self.ready_pipe = None, 99


class Runs:
    """A run of such brokers, and what it says."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, count: int = 3) -> None:
        self.said: list[str] = []
        self.looks = 0
        patch.setattr(several, "BrokerChild", FakeBroker)
        patch.setattr(several, "_say", self.said.append)
        patch.setattr(several, "LOOK_SECONDS", 0)
        self.run = _Run([(folder / str(number), ["start"]) for number in range(count)], None, 0)

    @property
    def brokers(self) -> Sequence[FakeBroker]:
        return cast("Sequence[FakeBroker]", self.run._children)

    def add_brokers(self) -> None:
        self.run._children = cast("Any", [FakeBroker(number, [], 0) for number in range(3)])

    def until(self, on_start: Callable[[], None], is_over: Callable[[], bool]) -> None:
        """Run until something is so, for some looks more."""
        left = 3

        def look() -> None:
            nonlocal left
            self.looks += 1
            left -= is_over()
            if not left or self.looks > 1000:
                self.run.notice(signal.SIGTERM, None)

        self.run.until_the_end(on_start, look)

    def restart(self) -> None:
        self.run._had_terminal = False
        self.run.notice(signal.SIGHUP, None)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    return Runs(monkeypatch, tmp_path)


def test_who_asks_twice_while_brokers_are_started_again_does_not_ask_for_a_restart_of_all(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two of three killed all partitions went offline: the third was stopped before the others were in sync."""
    happened: list[Any] = []

    def wait(started: dict[int, float], *_: Any, **__: Any) -> bool:
        assert not any("is ready again" in each for each in runs.said)
        happened.append(sorted(started))
        runs.restart()
        return True

    monkeypatch.setattr(rolling, "wait_for_started", wait)
    monkeypatch.setattr(rolling, "roll", lambda *_, **__: happened.append("roll"))

    def two_end() -> None:
        for broker in runs.brokers[1:]:
            broker.runs = False
        runs.restart()

    runs.until(two_end, lambda: bool(happened))
    assert happened == [[1, 2]]
    assert [broker.starts for broker in runs.brokers] == [0, 1, 1]
    assert runs.said[-3:] == ["Broker 1 is ready again.", "Broker 2 is ready again.", ASKED_MEANWHILE]


def test_a_broker_that_ends_while_others_come_in_sync_is_started_when_that_is_asked(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have what they miss: nobody was heard for ten minutes."""
    waits: list[list[int]] = []

    def wait(started: dict[int, float], *_: Any, given_up: Callable[[], bool], **__: Any) -> bool:
        waits.append(sorted(started))
        if len(waits) == 1:
            runs.brokers[0].runs = False
            assert not given_up(), "nobody asked yet"
            runs.restart()
            assert given_up()
            return False
        return not given_up()

    monkeypatch.setattr(rolling, "wait_for_started", wait)

    def one_ends() -> None:
        runs.brokers[1].runs = False
        runs.restart()

    runs.until(one_ends, lambda: len(waits) > 1)
    assert waits == [[1], [0]]
    assert [broker.starts for broker in runs.brokers] == [1, 1, 0]
    assert "Broker 1 is ready again. Not all of its replicas are in sync yet." in runs.said
    assert runs.said[-1] == "Broker 0 is ready again."


def test_a_broker_that_ends_again_at_once_is_not_waited_for(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def wait(*_: Any, given_up: Callable[[], bool], **__: Any) -> bool:
        runs.brokers[2].runs = False
        asked.append(given_up())
        return False

    monkeypatch.setattr(rolling, "wait_for_started", wait)

    def two_end() -> None:
        for broker in runs.brokers[1:]:
            broker.runs = False
        runs.restart()

    runs.until(two_end, lambda: bool(asked))
    assert asked == [True]


def test_a_restart_that_was_given_up_is_not_begun_again_at_once(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    rolls = []

    def roll(*_: Any, **__: Any) -> None:
        rolls.append(1)
        runs.restart()
        raise Failed("t-0 was not in sync")

    monkeypatch.setattr(rolling, "roll", roll)
    runs.until(runs.restart, lambda: bool(rolls))
    assert rolls == [1]
    assert runs.said == ["The restart was given up: t-0 was not in sync", ASKED_MEANWHILE]


def test_a_fault_in_a_restart_stops_no_broker(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The package had been upgraded, so what was imported then took other arguments: all brokers were stopped."""

    def roll(*_: Any, **__: Any) -> None:
        raise TypeError("it takes other arguments now")

    monkeypatch.setattr(rolling, "roll", roll)
    runs.until(runs.restart, lambda: bool(runs.said))
    assert runs.said == ["The restart was given up: TypeError: it takes other arguments now"]
    assert runs.looks > 2, "the brokers go on"
    assert "Traceback" in caplog.text


def test_a_fault_while_a_broker_that_was_started_comes_in_sync_stops_none(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: Any, **__: Any) -> bool:
        raise TypeError("it takes other arguments now")

    def one_ends() -> None:
        runs.brokers[1].runs = False
        runs.restart()

    monkeypatch.setattr(rolling, "wait_for_started", wait)
    runs.until(one_ends, lambda: len(runs.said) > 2)
    assert runs.said[-1] == "Broker 1 is ready again. But: TypeError: it takes other arguments now"
    assert runs.looks > 2, "the brokers go on"


def test_what_restarts_is_imported_before_somebody_asks(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be another version then."""
    monkeypatch.delitem(sys.modules, rolling.__name__)
    monkeypatch.delattr(start, "rolling")
    runs.until(lambda: None, lambda: True)
    assert rolling.__name__ in sys.modules


def test_no_broker_is_stopped_if_the_settings_would_be_refused(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first one was stopped, and could not start again with the file as it had become."""
    rolls = []
    monkeypatch.setattr(rolling, "roll", lambda *_, **__: rolls.append(1))
    config = tmp_path / "server.properties"
    runs.run._brokers = [(folder, ["start", "--config", str(config)]) for folder, _ in runs.run._brokers]
    runs.add_brokers()
    config.write_text("num.io.threads=many\n")
    assert not runs.run._roll()
    assert "The restart was given up: Invalid value many for configuration num.io.threads" in runs.said[-1]
    assert not rolls
    config.write_text("num.io.threads=8\n")
    assert runs.run._roll()
    assert rolls


def test_the_end_of_another_broker_is_told_while_one_does_not_get_ready(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told when the other was ready, which it was never."""
    monkeypatch.setattr(several, "READY_SECONDS", 0.0)
    monkeypatch.setattr(runs.run, "_look", lambda: None)
    runs.add_brokers()
    runs.brokers[0].gets_ready = False
    runs.brokers[1].runs = False
    with pytest.raises(Failed, match="broker 0 is not ready after 0 s"):
        runs.run._restart(0)
    assert [each.split(".")[0] for each in runs.said] == ["Broker 1 has ended"]
    assert runs.brokers[0].is_late
    assert not runs.run._roll()
    assert runs.said[-1] == "The restart was given up: broker 0 is not ready yet"


def test_a_broker_that_hangs_in_its_stop_does_not_keep_the_command_from_ending(runs: Runs) -> None:
    """Ctrl-C waited for a minute, and then the broker was started, to be stopped."""
    runs.add_brokers()
    runs.brokers[0].hangs = True
    runs.run.notice(signal.SIGINT, None)
    runs.run._restart(0)
    assert (runs.brokers[0].runs, runs.brokers[0].starts) == (True, 0)
