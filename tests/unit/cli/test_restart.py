"""`barnabas restart` asks nobody who would not hear it, and starts all that have ended."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.restart import ignores_sighup, restart_one
from barnabas.cli.start import command, rolling, service, several

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.cli.conftest import Run

HOLD = """
import signal, sys
from pathlib import Path
from barnabas.cli.start.several import _announced
signal.signal(signal.SIGHUP, getattr(signal, sys.argv[2]))
with _announced(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="where /proc tells which signals a process ignores")
def test_who_was_started_by_nohup_is_not_asked_in_vain(run: Run, tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path), "SIG_IGN"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        assert ignores_sighup(holder.pid)
        result = run("restart", "--data", tmp_path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"process {holder.pid} runs these brokers and ignores SIGHUP" in result.stderr
        holder.stdin.close()
        assert holder.wait(30) == 0
    assert not ignores_sighup(holder.pid)


def test_a_broker_that_cannot_be_started_keeps_no_other_from_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, waited = {"0"}, []

    def start_in_background(_: list[str], folder: Path) -> None:
        if folder.name == "1":
            raise Failed("its disk is broken")
        running.add(folder.name)

    monkeypatch.setattr(service, "is_running", lambda folder: folder.name in running)
    monkeypatch.setattr(command, "start_in_background", start_in_background)
    monkeypatch.setattr(rolling, "wait_for_started", lambda started, *_, **__: waited.append(sorted(started)))
    result = run("restart", "--brokers", "3", "--listen", "localhost:9092", "--data", tmp_path)
    assert running == {"0", "2"}
    assert waited == [[2]]
    assert (result.exit_code, result.stderr) == (1, "Error: its disk is broken\n")


class Brokers:
    """Three that run in the background, without processes, and a restart that `happens` as a test has it."""

    def __init__(self, patch: pytest.MonkeyPatch, run: Run, folder: Path) -> None:
        self._patch = patch
        self._run = run
        self._folder = folder
        self.running = {"0", "1", "2"}
        self.on_start: Callable[[str], None] = lambda _: None
        patch.setattr(service, "is_running", lambda folder: folder.name in self.running)
        patch.setattr(service, "stop_or_kill", lambda folder, _: self.running.discard(folder.name))
        patch.setattr(command, "start_in_background", self._start)

    def _start(self, _: list[str], folder: Path) -> None:
        self.on_start(folder.name)
        self.running.add(folder.name)

    def restart(self, roll: Callable[..., None]) -> Any:
        self._patch.setattr(rolling, "roll", roll)
        words = ("--brokers", "3", "--listen", "localhost:9092", "--data", self._folder)
        return self._run("restart", *words)


@pytest.fixture
def brokers(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Brokers:
    return Brokers(monkeypatch, run, tmp_path)


def test_no_other_broker_is_stopped_when_one_ends_in_the_middle(brokers: Brokers, tmp_path: Path) -> None:
    """The cluster takes a while to find that out, and until then all seemed to be in sync."""

    def roll(*_: Any, given_up: Callable[[], bool], **__: Any) -> None:
        assert not given_up()
        brokers.running.discard("1")
        given_up()
        raise AssertionError("it went on")

    result = brokers.restart(roll)
    assert result.stderr == f"Error: the broker on {tmp_path / '1'} has ended. To start it, type this again.\n"
    assert result.exit_code == 1


def test_two_restarts_of_the_same_brokers_do_not_stop_two_at_once(brokers: Brokers, tmp_path: Path) -> None:
    def roll(*_: Any, **__: Any) -> None:
        result = brokers.restart(lambda *_, **__: pytest.fail("another one began"))
        assert result.exit_code == 1
        assert f"Error: the brokers in {tmp_path} are being restarted (process {os.getpid()})\n" in result.stderr

    assert brokers.restart(roll).exit_code == 0
    assert brokers.restart(lambda *_, **__: None).exit_code == 0, "the first one is over"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_restart_that_is_interrupted_leaves_no_broker_stopped(brokers: Brokers, number: signal.Signals) -> None:
    """Whoever closed the terminal had a broker fewer."""

    def roll(_: object, restart: Callable[[int], None], *__: Any, given_up: Callable[[], bool], **___: Any) -> None:
        brokers.on_start = lambda _: os.kill(os.getpid(), number)
        assert not given_up()
        restart(1)
        assert brokers.running == {"0", "1", "2"}
        assert given_up()

    before = signal.getsignal(number)
    assert brokers.restart(roll).exit_code == 128 + number
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("first", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_terminal_that_is_closed_tells_it_twice(brokers: Brokers, first: signal.Signals) -> None:
    """The shell does, and then the system: the second signal killed the restart, and the broker at hand was down."""

    def roll(_: object, restart: Callable[[int], None], *__: Any, given_up: Callable[[], bool], **___: Any) -> None:
        def close_terminal(_: str) -> None:
            os.kill(os.getpid(), first)
            os.kill(os.getpid(), signal.SIGHUP)
            os.kill(os.getpid(), signal.SIGHUP)

        brokers.on_start = close_terminal
        restart(1)
        assert brokers.running == {"0", "1", "2"}
        assert given_up()

    before = signal.getsignal(signal.SIGHUP)
    assert brokers.restart(roll).exit_code == 128 + first
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_broker_is_started_again_though_nobody_reads_that_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "the terminal is gone")

    started = []

    def start(words: list[str], folder: Path) -> Any:
        started.append(folder)
        return SimpleNamespace(pid=1), "ready"

    monkeypatch.setattr(click, "echo", fail)
    monkeypatch.setattr(service, "stop_or_kill", lambda *_: 1)
    monkeypatch.setattr(service, "start_in_background", start)
    restart_one(tmp_path, [], 1.0)
    assert started == [tmp_path]


def test_no_more_brokers_are_started_after_an_interruption(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers.running = {"0"}
    brokers.on_start = lambda _: os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr(rolling, "wait_for_started", lambda *_, **__: pytest.fail("it waited"))
    assert brokers.restart(lambda *_, **__: None).exit_code == 128 + signal.SIGTERM
    assert brokers.running == {"0", "1"}


def test_no_more_brokers_are_started_after_an_interruption_where_all_had_ended(brokers: Brokers) -> None:
    """`barnabas stop` stopped those that ran, and then the others were started."""
    brokers.running = set()
    brokers.on_start = lambda _: os.kill(os.getpid(), signal.SIGTERM)
    assert brokers.restart(lambda *_, **__: None).exit_code == 128 + signal.SIGTERM
    assert brokers.running == {"0"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_interruption_ends_a_restart_at_once(brokers: Brokers, number: signal.Signals) -> None:
    """And a broker that is not ready yet, as `service.start_in_background` does it."""
    before = signal.getsignal(number)

    def roll(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), number)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        raise KeyboardInterrupt

    assert brokers.restart(roll).exit_code == 128 + signal.SIGINT
    assert signal.getsignal(number) is before


def test_a_broker_is_not_restarted_alone_while_it_is_with_others(brokers: Brokers, run: Run, tmp_path: Path) -> None:
    def roll(*_: Any, **__: Any) -> None:
        result = run("restart", "--data", tmp_path / "1")
        assert result.stderr == f"Error: the brokers in {tmp_path / '1'} are being restarted (process {os.getpid()})\n"
        assert result.exit_code == 1

    assert brokers.restart(roll).exit_code == 0


def test_brokers_are_not_restarted_while_one_of_them_is_alone(brokers: Brokers, run: Run, tmp_path: Path) -> None:
    """`barnabas stop` said that it was stopped, and then it was started."""
    seen = []

    def on_start(_: str) -> None:
        seen.append(several.restarter(tmp_path / "1"))
        assert brokers.restart(lambda *_, **__: pytest.fail("another one began")).exit_code == 1

    brokers.on_start = on_start
    assert run("restart", "--data", tmp_path / "1").exit_code == 0
    assert seen == [os.getpid()]


def test_what_a_command_that_has_just_ended_had_locked_is_nobodys(tmp_path: Path) -> None:
    """Another one held a file that was gone: nobody saw it, and a third one could hold the next."""
    flock, left = fcntl.flock, ["once"]

    def flock_after_it_was_removed(file: Any, how: int) -> None:
        if left:
            left.pop()
            (tmp_path / several.STARTER_FILE).unlink()
        flock(file, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", flock_after_it_was_removed)
        with several._announced(tmp_path):
            assert several.starter(tmp_path) == os.getpid()
