"""`barnabas start --console`: the console comes with the brokers, shows them, and ends with them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from barnabas.cli.start.service import read_pid
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE, SEVERAL = (), ("--brokers", "2")


@contextmanager
def started(folder: Path, *more: str) -> Iterator[tuple[Process, int]]:
    """Brokers with a console, which listens; its port."""
    port = free_port()
    words = [sys.executable, "-P", "-m", "barnabas.cli.main", "start", "--console", f"127.0.0.1:{port}"]
    words += ["--listen", f"127.0.0.1:{free_port(2)}", "--data", str(folder / "data"), *more]
    with Process("brokers", words, folder / "brokers.log") as process:
        wait_until(lambda: re.search(rf"is on http://127\.0\.0\.1:{port} ", process.output()), "the console to listen")
        yield process, port


def brokers_up(port: int) -> int:
    """How many the console shows; none before the first one is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/overview", timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
    except HTTPError as error:
        with error:
            assert error.status == HTTPStatus.SERVICE_UNAVAILABLE
        return 0
    return sum(each["up"] for each in found["brokers"])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(("more", "brokers"), [(ONE, 1), (SEVERAL, 2)], ids=["one", "several"])
def test_a_console_comes_and_goes_with_its_brokers(tmp_path: Path, more: tuple[str, ...], brokers: int) -> None:
    with started(tmp_path, *more) as (process, port):
        wait_until(lambda: brokers_up(port) == brokers, "all brokers to be shown")
        assert process.stop() == 0
        assert not is_listening(port), "it has ended before the command does"
    assert list((tmp_path / "data.console").glob("history-*.sqlite")), "its history is beside the brokers' data"


@pytest.mark.parametrize("more", [ONE, SEVERAL], ids=["one", "several"])
def test_a_console_ends_when_the_command_that_started_it_is_killed(tmp_path: Path, more: tuple[str, ...]) -> None:
    with started(tmp_path, *more) as (process, port):
        wait_until(lambda: brokers_up(port), "a broker to be shown")
        process.kill()
        wait_until(lambda: not is_listening(port), "the console to end")


def test_a_console_that_cannot_listen_leaves_the_broker_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, listen = taken.getsockname()[1], free_port()
        words = [sys.executable, "-P", "-m", "barnabas.cli.main", "start", "--console", f"127.0.0.1:{port}"]
        words += ["--listen", f"127.0.0.1:{listen}", "--data", str(tmp_path / "data")]
        with Process("broker", words, tmp_path / "broker.log") as process:
            process.wait_for_output(f"Cannot listen on 127.0.0.1:{port}")
            wait_until(lambda: is_listening(listen), "the broker to listen")
            assert process.stop() == 0


def test_the_console_says_what_starts_a_broker_again_and_the_command_that_the_console_was_killed(
    tmp_path: Path,
) -> None:
    with started(tmp_path, "--brokers", "3") as (process, port):
        data = tmp_path / "data"
        wait_until(lambda: brokers_up(port) == 3, "all brokers to be shown")
        wait_until(lambda: read_pid(data / "1"), "its pid")
        os.kill(read_pid(data / "1") or 0, signal.SIGKILL)

        def problem() -> dict[str, Any] | None:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/overview", timeout=60) as answer:
                problems = json.load(answer)["problems"]
            return next((each for each in problems if each["title"] == "Broker 1 is down"), None)

        command = wait_until(problem, "the console to say so")["command"]
        assert command == f"barnabas restart --brokers 3 --data {data}"
        assert f"Start it again with: {command}\n" in process.output(), "both say the same"
        found = re.search(
            r"^(\d+)$",
            subprocess.run(
                ["pgrep", "-P", str(process.pid), "-f", "main console"], capture_output=True, text=True, check=True
            ).stdout,
            re.MULTILINE,
        )
        assert found is not None
        os.kill(int(found[1]), signal.SIGKILL)
        process.wait_for_output(r"The console \(process \d+\) has ended\. The brokers go on\.")
        assert process.stop() == 0
