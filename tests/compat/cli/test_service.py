"""Brokers as services: started, found, refused and stopped through the command line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.start.service import is_running, read_pid
from tests.support.brokers import Barnabas
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.compat.cli.conftest import Cli

READY = re.compile(
    r"Barnabas \S+ is ready on 127\.0\.0\.1:(\d+); data in (.+) \(\d+ topics, \d+ partitions\); started in \d+\.\d\d s"
)


@pytest.fixture
def daemon(cli: Cli, tmp_path: Path) -> Iterator[int]:
    """A broker in the background, with its data in `tmp_path / "data"`; its pid. It is ended in any case."""
    started = cli("start", "--daemon", "--listen", "127.0.0.1:0", "--data", tmp_path / "data")
    assert (started.returncode, started.stderr) == (0, ""), started
    ready, process = started.stdout.splitlines()
    assert READY.fullmatch(ready), ready
    found = re.fullmatch(rf"It is process (\d+); its log is {tmp_path / 'data' / 'barnabas.log'}", process)
    assert found, process
    pid = int(found[1])
    yield pid
    cli("stop", "--data", tmp_path / "data", "--timeout", "10")
    if exists(pid):
        os.kill(pid, signal.SIGKILL)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_daemon_serves_until_it_is_stopped(cli: Cli, daemon: int, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert (data / "barnabas.pid").read_text() == f"{daemon}\n"
    ready = READY.search((data / "barnabas.log").read_text())
    assert ready
    bootstrap = f"127.0.0.1:{ready[1]}"
    assert cli("topics", "--create", "--topic", "t", "--bootstrap-server", bootstrap).returncode == 0
    assert not (data / ".kafka_cleanshutdown").exists()

    stopped = cli("stop", "--data", data)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout == f"Stopped the broker on {data} (process {daemon}).\n"
    assert (data / ".kafka_cleanshutdown").exists()
    assert not (data / "barnabas.pid").exists()
    assert cli("stop", "--data", data).stdout == f"No broker is running on {data}.\n"

    dead = cli("topics", "--list", "--bootstrap-server", bootstrap)
    assert dead.returncode == 1
    assert dead.stderr.startswith(f"Error: no broker answers at {bootstrap} (connection refused).")


@pytest.mark.parametrize("flags", [(), ("--daemon",)])
def test_a_second_broker_on_the_same_data_is_refused_in_one_line(
    cli: Cli, daemon: int, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    data = tmp_path / "data"
    second = cli("start", *flags, "--listen", "127.0.0.1:0", "--data", data)
    assert (second.returncode, second.stdout) == (1, "")
    assert second.stderr.startswith("Error: ")
    assert str(data) in second.stderr
    assert second.stderr.count("\n") == 1
    assert exists(daemon)
    assert (data / "barnabas.pid").read_text() == f"{daemon}\n"


HOLD_POSIX_LOCK = """
import fcntl, sys
with open(sys.argv[1], "a") as lock:
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("taken")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_apache_kafka_and_we_refuse_each_others_directories(cli: Cli, tmp_path: Path) -> None:
    """Java locks files by POSIX's rules, which a lock by flock does not see."""
    with Barnabas(tmp_path) as broker:
        lock = broker.data / ".lock"
        javas = subprocess.run([sys.executable, "-c", HOLD_POSIX_LOCK, lock], stderr=subprocess.PIPE, text=True)
        assert (javas.returncode, javas.stderr) == (1, "taken\n")
        assert broker.stop() == 0
    words = [sys.executable, "-c", HOLD_POSIX_LOCK, str(lock)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as java:
        assert java.stdout is not None
        assert java.stdout.readline() == "held\n"
        refused = cli("start", "--listen", "127.0.0.1:0", "--data", broker.data)
        java.communicate("")
    assert refused.returncode == 1
    assert "in use" in refused.stderr


def test_a_port_that_is_taken_is_told_in_one_line(cli: Cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = cli("start", "--listen", f"127.0.0.1:{port}", "--data", tmp_path / "data")
    assert (refused.returncode, refused.stdout) == (1, "")
    error = [line for line in refused.stderr.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert str(port) in error[0]
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with Barnabas(tmp_path) as broker:
        broker.send(number)
        assert broker.wait() == 0
        assert (broker.data / ".kafka_cleanshutdown").exists()
        assert "Traceback" not in broker.output()


def test_after_a_kill_the_old_pid_file_is_in_nobodys_way(cli: Cli, tmp_path: Path) -> None:
    with Barnabas(tmp_path) as broker:
        broker.kill()
        assert (broker.data / "barnabas.pid").exists()
        assert cli("stop", "--data", broker.data).stdout == f"No broker is running on {broker.data}.\n"
    with Barnabas(tmp_path) as again:
        assert (again.data / "barnabas.pid").read_text() == f"{again.pid}\n"
        assert cli("stop", "--data", again.data).returncode == 0
        assert again.wait() == 0


def test_nothing_is_left_in_the_working_directory(tmp_path: Path) -> None:
    """Libraries that are installed beside the broker, such as hypothesis, are not loaded by it."""
    here, data = tmp_path / "here", tmp_path / "data"
    here.mkdir()
    words = [sys.executable, "-m", "barnabas.cli.main", "start", "--listen", "127.0.0.1:0", "--data", str(data)]
    with subprocess.Popen(words, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        assert child.stdout is not None
        wait_until((data / "barnabas.pid").exists, "the pid file")
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0, child.stdout.read()
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("repeated", [False, True], ids=["stop", "stop with the words of the start"])
def test_a_cluster_in_the_background_is_ended_by_one_stop(cli: Cli, tmp_path: Path, repeated: bool) -> None:
    data = tmp_path / "data"
    words = ("--brokers", "2", "--daemon", "--listen", f"127.0.0.1:{free_port(2)}", "--data", data)
    started = cli("start", *words)
    pids = [int(pid) for pid in re.findall(r"It is process (\d+)", started.stdout)]
    try:
        assert (started.returncode, len(pids)) == (0, 2), started
        stopped = cli("stop", *(words if repeated else ("--data", data)))
        assert stopped.stdout.splitlines() == [
            f"Stopped the broker on {data / str(number)} (process {pid})." for number, pid in enumerate(pids)
        ]
        assert (stopped.returncode, stopped.stderr) == (0, "")
        assert not any(is_running(data / str(number)) for number in range(2))
        assert cli("stop", "--data", data).stdout == f"No broker is running on {data}.\n"
    finally:
        for pid in filter(exists, pids):
            os.kill(pid, signal.SIGKILL)


def test_a_cluster_in_the_background_is_restarted_broker_by_broker(cli: Cli, tmp_path: Path) -> None:
    data = tmp_path / "data"
    words = ("--brokers", "2", "--listen", f"127.0.0.1:{free_port(2)}", "--data", data)
    started = cli("start", "--daemon", *words)
    pids = [int(pid) for pid in re.findall(r"It is process (\d+)", started.stdout)]
    try:
        assert (started.returncode, len(pids)) == (0, 2), started
        restarted = cli("restart", *words, "--set", "num.partitions=3")
        pids += [int(pid) for pid in re.findall(r"It is process (\d+)", restarted.stdout)]
        assert (restarted.returncode, len(set(pids))) == (0, 4), restarted
        assert restarted.stdout.splitlines()[0] == f"Restarting the broker on {data / '0'} (1 of 2)."
        assert restarted.stdout.splitlines()[-1] == "All brokers were restarted."
        assert [read_pid(data / str(number)) for number in range(2)] == pids[2:]
        wrong = cli("restart", *words, "--set", "num.partitions=few")
        assert (wrong.returncode, "num.partitions" in wrong.stderr) == (1, True), wrong
        refused = cli("restart", "--data", data)
        assert f"{data} has 2 brokers: repeat the options" in refused.stderr
        assert [read_pid(data / str(number)) for number in range(2)] == pids[2:], "nothing was stopped"
        assert cli("stop", *words).stdout.count("Stopped the broker") == 2
    finally:
        for pid in filter(exists, pids):
            os.kill(pid, signal.SIGKILL)


def test_brokers_in_the_background_that_have_ended_are_started_and_the_others_left_alone(
    cli: Cli, tmp_path: Path
) -> None:
    """The first one was stopped while another was dead: nobody was left."""
    data = tmp_path / "data"
    words = ("--brokers", "2", "--listen", f"127.0.0.1:{free_port(2)}", "--first-id", "5", "--data", data)
    started = cli("start", "--daemon", *words)
    pids = [int(pid) for pid in re.findall(r"It is process (\d+)", started.stdout)]
    try:
        assert (started.returncode, len(pids)) == (0, 2), started
        os.kill(pids[1], signal.SIGKILL)
        wait_until(lambda: not is_running(data / "1"), "its end")
        restarted = cli("restart", *words)
        pids += [int(pid) for pid in re.findall(r"It is process (\d+)", restarted.stdout)]
        assert (restarted.returncode, restarted.stderr, len(pids)) == (0, "", 3), restarted
        lines = restarted.stdout.splitlines()
        assert lines[0] == f"Starting the broker on {data / '1'} again. The others are left alone."
        assert lines[-1] == "Those that had ended run again. To restart all, type this again."
        assert [read_pid(data / str(number)) for number in range(2)] == [pids[0], pids[2]]
    finally:
        cli("stop", *words)
        for pid in filter(exists, pids):
            os.kill(pid, signal.SIGKILL)


def test_where_one_broker_of_a_cluster_cannot_start_none_is_left_running(cli: Cli, tmp_path: Path) -> None:
    port = free_port(2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port + 1))
        taken.listen()
        started = cli("start", "--brokers", "2", "--daemon", "--listen", f"127.0.0.1:{port}", "--data", tmp_path)
    pids = [int(pid) for pid in re.findall(r"It is process (\d+)", started.stdout)]
    assert (started.returncode, len(pids)) == (1, 1), started
    assert f"127.0.0.1:{port + 1}" in started.stderr
    assert not is_running(tmp_path / "0")
