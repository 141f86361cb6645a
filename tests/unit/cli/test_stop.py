from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from barnabas.cli import stop
from barnabas.cli.start import command, service, several
from tests.support.programs import END_TOGETHER
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.unit.cli.conftest import Run

    Holder = Callable[..., subprocess.Popen[bytes]]

LOCK_AND_WAIT = """
import fcntl, os, signal, sys
from pathlib import Path
data, ignore = Path(sys.argv[1]), sys.argv[2] == "deaf"
if ignore:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
lock = os.open(data / ".lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
(data / "locked").touch()
signal.pause()
"""

RESTART_AND_WAIT = """
import signal, sys
from pathlib import Path
from barnabas.cli.start import service, several
data = Path(sys.argv[1])
left = int(sys.argv[3])
def end(*_):
    global left
    left -= 1
    if not left:
        (data / "ended").write_text("while the broker ran" if service.is_running(data / "0") else "too late")
        sys.exit()
signal.signal(signal.SIGTERM, end)
with several.restarting([Path(sys.argv[2])]):
    while True:
        signal.pause()
"""
"""`DATA FOLDER SIGNALS`: restarts the brokers of a folder until so many SIGTERM came."""

RESTART_FOR_EVER = """
import sys
from pathlib import Path
from barnabas.cli.restart import Interruptions
from barnabas.cli.start import service, several
folder, sys.executable = Path(sys.argv[1]), sys.argv[2]
with several.restarting([folder]), Interruptions.heard():
    service.start_in_background([], folder)
"""
"""`FOLDER PROGRAM`: starts a broker that is this program, and waits until it is ready."""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    """Start a process that holds the lock on `tmp_path`, or a folder below it, like a broker."""
    children: list[subprocess.Popen[bytes]] = []

    def start(folder: str = "", *, deaf: bool = False) -> subprocess.Popen[bytes]:
        data = tmp_path / folder
        data.mkdir(exist_ok=True)
        child = subprocess.Popen([sys.executable, "-c", LOCK_AND_WAIT, data, "deaf" if deaf else "polite"])
        children.append(child)
        wait_until((data / "locked").exists, "the lock")
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()


def test_a_broker_that_runs_is_ended(run: Run, tmp_path: Path, holder: Holder) -> None:
    child = holder()
    (tmp_path / "barnabas.pid").write_text(f"{child.pid}\n")
    result = run("stop", "--data", tmp_path)
    assert result.stdout == f"Stopped the broker on {tmp_path} (process {child.pid}).\n"
    assert result.exit_code == 0
    assert child.wait(60) < 0


def test_no_broker_is_no_error_and_a_stale_pid_file_goes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "barnabas.pid").write_text(f"{os.getpid()}\n")
    result = run("stop", "--data", tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"No broker is running on {tmp_path}.\n")
    assert not (tmp_path / "barnabas.pid").exists()


@pytest.mark.parametrize("pid", [None, "not a number", str(os.getpid())], ids=["none", "garbled", "another process"])
def test_a_process_that_does_not_hold_the_lock_is_left_alone(
    run: Run, tmp_path: Path, holder: Holder, pid: str | None
) -> None:
    child = holder()
    if pid is not None:
        (tmp_path / "barnabas.pid").write_text(pid)
    result = run("stop", "--data", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: a process has locked {tmp_path}, but barnabas.pid does not name it")
    assert child.poll() is None


def test_a_broker_that_does_not_end_is_told_with_what_to_do(run: Run, tmp_path: Path, holder: Holder) -> None:
    child = holder(deaf=True)
    (tmp_path / "barnabas.pid").write_text(str(child.pid))
    result = run("stop", "--data", tmp_path, "--timeout", "0.1")
    assert result.exit_code == 1
    assert f"(process {child.pid}) did not end within 0.1 s" in result.stderr
    assert f"kill -9 {child.pid}" in result.stderr


def test_one_broker_that_does_not_end_keeps_no_other_running(run: Run, tmp_path: Path, holder: Holder) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "1").mkdir()
    deaf, polite = holder("0", deaf=True), holder("1")
    (tmp_path / "0" / "barnabas.pid").write_text(str(deaf.pid))
    (tmp_path / "1" / "barnabas.pid").write_text(str(polite.pid))
    result = run("stop", "--data", tmp_path, "--timeout", "0.1")
    assert (result.exit_code, result.stdout) == (
        1,
        f"Stopped the broker on {tmp_path / '1'} (process {polite.pid}).\n",
    )
    assert f"(process {deaf.pid}) did not end within 0.1 s" in result.stderr


def test_all_brokers_are_told_before_one_is_waited_for(run: Run, tmp_path: Path) -> None:
    children = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = [sys.executable, "-c", END_TOGETHER, str(tmp_path), str(number), "2"]
        children.append(subprocess.Popen(words))
        (folder / "barnabas.pid").write_text(str(children[-1].pid))
    reaper = threading.Thread(target=lambda: [child.wait() for child in children])
    reaper.start()
    try:
        wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == 2, "both to be ready")
        result = run("stop", "--data", tmp_path, "--timeout", "20")
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.count("Stopped the broker on") == 2
    finally:
        for child in children:
            child.kill()
        reaper.join()


def test_a_pid_file_is_removed_only_by_its_owner(tmp_path: Path) -> None:
    service.write_pid(tmp_path)
    assert service.read_pid(tmp_path) == os.getpid()
    service.remove_pid(tmp_path)
    assert service.read_pid(tmp_path) is None
    (tmp_path / "barnabas.pid").write_text("1\n")
    service.remove_pid(tmp_path)
    assert service.read_pid(tmp_path) == 1


@pytest.mark.parametrize("text", ["nan", "inf", "1e9", "-1", "soon"])
def test_how_long_to_wait_is_a_number_up_to_a_day(run: Run, tmp_path: Path, text: str) -> None:
    result = run("stop", "--data", tmp_path, "--timeout", text)
    assert result.exit_code == 2
    assert "Invalid value for '--timeout'" in result.stderr


@pytest.mark.parametrize(
    ("folder", "signals", "timeout"),
    [(".", 1, "60"), ("0", 1, "60"), (".", 2, "0.1"), (".", 2, "0")],
    ids=["of all", "of one", "that waits for a broker", "without patience"],
)
def test_a_restart_of_the_brokers_is_ended_before_them(
    run: Run, tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch, folder: str, signals: int, timeout: str
) -> None:
    """It started one again after all had been stopped. One that waited for a broker kept all from being stopped."""
    monkeypatch.setattr(stop, "AT_ONCE_SECONDS", 5.0)
    broker = holder("0")
    (tmp_path / "0" / "barnabas.pid").write_text(f"{broker.pid}\n")
    place = tmp_path / folder
    with subprocess.Popen([sys.executable, "-c", RESTART_AND_WAIT, tmp_path, place, str(signals)]) as restart:
        wait_until(lambda: several.restarter(place) == restart.pid, "the restart")
        result = run("stop", "--brokers", "1", "--data", tmp_path, "--timeout", timeout)
        restart.kill()
    assert (tmp_path / "ended").read_text() == "while the broker ran"
    assert broker.wait(60) < 0, result
    assert several.restarter(place) is None


def test_a_restart_that_was_suspended_is_ended_too(run: Run, tmp_path: Path, holder: Holder) -> None:
    """The signal came when it went on, and it started the broker at hand then."""
    broker = holder("0")
    (tmp_path / "0" / "barnabas.pid").write_text(f"{broker.pid}\n")
    with subprocess.Popen([sys.executable, "-c", RESTART_AND_WAIT, tmp_path, tmp_path, "1"]) as restart:
        wait_until(lambda: several.restarter(tmp_path) == restart.pid, "the restart")
        restart.send_signal(signal.SIGSTOP)
        result = run("stop", "--brokers", "1", "--data", tmp_path)
        restart.kill()
    assert result.exit_code == 0
    assert (tmp_path / "ended").read_text() == "while the broker ran"


def test_a_restart_is_ended_with_the_broker_that_does_not_get_ready(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get ready when all were said to be stopped."""
    monkeypatch.setattr(stop, "AT_ONCE_SECONDS", 1.0)
    broker = tmp_path / "broker"
    broker.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/number\nexec sleep 60\n")
    broker.chmod(0o700)
    with subprocess.Popen([sys.executable, "-c", RESTART_FOR_EVER, tmp_path / "0", broker]) as restart:
        wait_until(lambda: (tmp_path / "number").is_file() and (tmp_path / "number").read_text(), "its start")
        result = run("stop", "--data", tmp_path / "0", "--timeout", "0")
        restart.kill()
    assert (result.exit_code, result.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "number").read_text()), 0)


def test_brokers_are_stopped_though_the_restart_of_them_does_not_end(
    run: Run, tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "AT_ONCE_SECONDS", 0.1)
    monkeypatch.setattr(service, "END_SECONDS", 0.1)
    broker = holder("0")
    (tmp_path / "0" / "barnabas.pid").write_text(f"{broker.pid}\n")
    with subprocess.Popen([sys.executable, "-c", RESTART_AND_WAIT, tmp_path, tmp_path, "1000"]) as restart:
        wait_until(lambda: several.restarter(tmp_path) == restart.pid, "the restart")
        result = run("stop", "--brokers", "1", "--data", tmp_path, "--timeout", "0.1")
        restart.kill()
    assert result.exit_code == 1
    assert f"the restart of the brokers in {tmp_path} (process {restart.pid}) did not end" in result.stderr
    assert broker.wait(60) < 0


def test_a_broker_that_does_not_end_is_killed_and_started_again_in_a_restart(
    run: Run, tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes first, as it hangs, and so kept all others from their restart."""
    started = []
    monkeypatch.setattr(command, "start_in_background", lambda _, folder: started.append(folder))
    child = holder(deaf=True)
    (tmp_path / "barnabas.pid").write_text(str(child.pid))
    result = run("restart", "--data", tmp_path, "--timeout", "0.1")
    assert result.stdout == (
        f"The broker on {tmp_path} (process {child.pid}) did not end within 0.1 s, and was killed.\n"
    )
    assert (child.wait(60), started) == (-signal.SIGKILL, [tmp_path])


def test_a_broker_that_ends_is_not_killed_in_a_restart(tmp_path: Path, holder: Holder) -> None:
    child = holder()
    (tmp_path / "barnabas.pid").write_text(str(child.pid))
    assert service.stop_or_kill(tmp_path, 60) is None
    assert child.wait(60) == -signal.SIGTERM
    assert service.stop_or_kill(tmp_path, 60) is None, "none runs"


def test_a_broker_is_stopped_by_a_python_that_knows_no_handles_of_processes(
    tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to stop, and then an AttributeError kept it from being started again."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    polite, deaf = holder("0"), holder("1", deaf=True)
    for folder, child in (("0", polite), ("1", deaf)):
        (tmp_path / folder / "barnabas.pid").write_text(str(child.pid))
    assert service.stop_or_kill(tmp_path / "0", 60) is None
    assert polite.wait(60) == -signal.SIGTERM
    assert service.stop_or_kill(tmp_path / "1", 0.1) == deaf.pid
    assert deaf.wait(60) == -signal.SIGKILL


def test_a_broker_of_which_there_can_be_no_handle_is_not_told_to_stop(
    tmp_path: Path, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> None:
        raise RuntimeError(f"no handle of {pid}")

    monkeypatch.setattr(service, "_handle", fail)
    child = holder()
    (tmp_path / "barnabas.pid").write_text(str(child.pid))
    with pytest.raises(RuntimeError):
        service.stop_or_kill(tmp_path, 60)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    assert service.is_running(tmp_path)
