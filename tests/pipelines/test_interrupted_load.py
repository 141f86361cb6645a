"""Ctrl-C ends a load in one line, whatever Spark is doing, and leaves no process behind."""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.clients import Producer
from barnabas.pipelines.tables.opening import open_table
from barnabas.testing.broker import Broker
from tests.support.processes import Process
from tests.support.spark_processes import pids_of_session
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(400)  # on a busy machine Spark takes its time to start

TOLD = "Interrupted between two commits: the same load goes on from there."


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Broker() as broker:
        with Producer(broker.bootstrap_servers) as producer:
            for number in range(100):
                producer.send("numbers", str(number))
        yield broker.bootstrap_servers


def load(server: str, folder: Path, *words: str) -> Process:
    command = [sys.executable, "-m", "barnabas.cli.main", "load", "numbers", "--to", str(folder / "numbers")]
    return Process("load", [*command, "--bootstrap-server", server, "--every", "200ms", *words], folder / "load.log")


def test_one_ctrl_c_ends_a_load_that_goes_on(server: str, tmp_path: Path) -> None:
    with load(server, tmp_path) as process:
        wait_until(lambda: any(tmp_path.glob("numbers/*.parquet")), "the first commit", 240)
        process.send(signal.SIGINT)
        assert process.wait(60) == 130
        wait_until(lambda: not pids_of_session(process.pid), "the end of what Spark had started")
        *before, told = process.output().splitlines()
        assert told == TOLD
        assert all(re.match(r"Starting Spark|Still |Waiting for Spark|\d+ records, ", line) for line in before), before
    with open_table(str(tmp_path / "numbers")) as table:
        assert table.size().rows == 100


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_load_that_waits_for_spark_is_ended_at_once(server: str, tmp_path: Path, number: signal.Signals) -> None:
    with load(server, tmp_path) as process:
        process.wait_for_output("Starting Spark")
        wait_until(lambda: len(pids_of_session(process.pid)) > 1, "Java")
        process.send(number)
        assert process.wait(60) == 130
        wait_until(lambda: not pids_of_session(process.pid), "the end of what Spark had started")
        assert process.output().splitlines() == ["Starting Spark.", TOLD]


@pytest.mark.parametrize(
    ("setting", "reason", "advice"),
    [
        ("spark.driver.memory=lots", "lots", "Is Java 17 or newer"),  # Java refuses it
        ("spark.executor.memory=1", "Executor memory 1 must be", "Check the master and the settings"),  # Spark does
    ],
)
def test_spark_that_cannot_start_says_why_in_one_line(
    server: str, tmp_path: Path, setting: str, reason: str, advice: str
) -> None:
    with load(server, tmp_path, "--conf", setting) as process:
        assert process.wait(120) == 1
        starting, *_, told = process.output().splitlines()
        assert starting == "Starting Spark."
        assert told.startswith("Error: Spark could not start: ") and reason in told and advice in told, told
