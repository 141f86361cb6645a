"""`barnabas start --brokers N`: a cluster of processes on one host, restarted broker by broker."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.start.service import is_running, read_pid
from barnabas.cli.start.several import starter
from barnabas.clients import Producer
from barnabas.clients.scraping import MetricsAccess
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY = (
    r"^Barnabas \S+: {} brokers are ready on (\S+); data in .*; started in [0-9.]+ s(?:; metrics on ports [0-9, ]+)?$"
)


@contextmanager
def started(folder: Path, brokers: str, *more: str) -> Iterator[tuple[Process, str]]:
    """A cluster that is ready, and the addresses that its one line tells."""
    words = [sys.executable, "-m", "barnabas.cli.main", "start", "--brokers", brokers]
    words += ["--listen", f"127.0.0.1:{free_port(3)}", "--data", str(folder / "data"), *more]
    with Process("brokers", words, folder / "brokers.log") as process:
        count = len(os.sched_getaffinity(0)) if brokers == "auto" else brokers
        line = READY.format(count).replace(r"(\S+)", r"((?:\S+, )*\S+)")
        found = wait_until(lambda: re.search(line, process.output(), re.MULTILINE), "the brokers to be ready")
        yield process, found[1].replace(" ", "")


def test_three_brokers_start_together_and_stop_together(tmp_path: Path) -> None:
    with started(tmp_path, "3") as (brokers, servers):
        assert brokers.output().count("ready on") == 1
        admin = AdminClient({"bootstrap.servers": servers})
        wait_until(lambda: len(admin.list_topics(timeout=30).brokers) == 3, "three brokers to be known")
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)

        def leaders() -> set[int]:
            return {each.leader for each in admin.list_topics("t", timeout=30).topics["t"].partitions.values()}

        wait_until(lambda: leaders() == {0, 1, 2}, "each broker to lead a partition")
        assert re.search(r"^\[2\] \S+ \S+ INFO", brokers.output(), re.MULTILINE), "each has a prefix of its own"
        assert brokers.stop() == 0
        assert "This broker stops although" not in brokers.output(), "the last one waited for those that were gone"
    assert all((tmp_path / "data" / number / ".kafka_cleanshutdown").exists() for number in ("0", "1", "2"))
    assert {folder.name for folder in (tmp_path / "data").iterdir()} >= {"0", "1", "2", "metadata"}


def test_each_of_several_brokers_tells_its_own_figures(tmp_path: Path) -> None:
    first = free_port(3)
    with started(tmp_path, "3", "--metrics", str(first)) as (brokers, _):
        for number in range(3):
            page = MetricsAccess().get(f"http://127.0.0.1:{first + number}/metrics", 20).decode()
            assert re.search(r"^kafka_server_kafkaserver_brokerstate 3$", page, re.MULTILINE), page[:500]
        assert f"metrics on ports {first}, {first + 1}, {first + 2}\n" in brokers.output()
        pages = {MetricsAccess().get(f"http://127.0.0.1:{first + number}/metrics", 20) for number in range(3)}
        active = [b"kafka_controller_kafkacontroller_activecontrollercount 1" in page for page in pages]
        assert sum(active) == 1, "they are three brokers"
        assert brokers.stop() == 0


def test_there_is_a_broker_for_each_core_and_the_host_is_their_rack(tmp_path: Path) -> None:
    with started(tmp_path, "auto", "--first-id", "7") as (_, servers):
        admin = AdminClient({"bootstrap.servers": servers})
        nodes = admin.describe_cluster(request_timeout=30).result().nodes
        assert {node.id for node in nodes} == {7 + number for number in range(len(os.sched_getaffinity(0)))}
        assert {node.rack for node in nodes} == {socket.gethostname()}


def test_brokers_are_restarted_one_after_the_other_while_clients_go_on(tmp_path: Path) -> None:
    with started(tmp_path, "2") as (brokers, servers):
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 4, 2)])["t"].result(30)
        folders = [tmp_path / "data" / number for number in ("0", "1")]
        before = [read_pid(folder) for folder in folders]
        assert starter(tmp_path / "data") == brokers.pid
        with Producer(servers) as producer:
            sent = [producer.send("t", "before", partition=number % 4) for number in range(8)]
            os.kill(brokers.pid, signal.SIGHUP)
            while "All brokers were restarted." not in brokers.output():
                sent += [producer.send("t", "meanwhile", partition=number) for number in range(4)]
                producer.flush()
        assert all(each.result(30).offset >= 0 for each in sent)
        now = [read_pid(folder) for folder in folders]
        assert all(map(is_running, folders))
        assert not set(before) & set(now)
        assert [line for line in brokers.output().splitlines() if line.startswith("Restarting")] == [
            "Restarting broker 0 (1 of 2).",
            "Restarting broker 1 (2 of 2).",
        ]
        os.kill(brokers.pid, signal.SIGHUP)
        wait_until(lambda: brokers.output().count("Restarting broker 0") == 2, "the second restart")
        words = [sys.executable, "-m", "barnabas.cli.main", "stop", "--data", str(tmp_path / "data")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.stdout == f"Stopped the brokers in {tmp_path / 'data'} (process {brokers.pid}).\n", done.stderr
        assert brokers.wait() == 0
        assert not any(map(is_running, folders)), "what was stopped in a restart does not come back"


def test_brokers_stop_cleanly_when_the_command_that_started_them_is_killed(tmp_path: Path) -> None:
    folders = [tmp_path / "data" / number for number in ("0", "1")]
    with started(tmp_path, "2") as (brokers, _):
        assert all(map(is_running, folders))
        brokers.kill()
        wait_until(lambda: not any(map(is_running, folders)), "the brokers to stop")
        assert brokers.output().count("The command that started this broker has ended.") == 2
        assert starter(tmp_path / "data") is None
    assert all((folder / ".kafka_cleanshutdown").exists() for folder in folders)


def test_a_broker_that_is_killed_is_told_of_in_one_line_and_started_again_by_restart(tmp_path: Path) -> None:
    """Nobody said anything, and a restart of all would have stopped a second one before the first was back."""
    data = tmp_path / "data"
    with started(tmp_path, "3") as (brokers, servers):
        pids = [read_pid(data / number) for number in ("0", "1", "2")]
        assert pids[1] is not None
        os.kill(pids[1], signal.SIGKILL)
        command = f"barnabas restart --brokers 3 --data {data}"
        line = f"Broker 1 (process {pids[1]}) was killed by SIGKILL. 2 of 3 go on. Start it again with: {command}\n"
        wait_until(lambda: line in brokers.output(), "its end to be told of")
        words = [sys.executable, "-m", "barnabas.cli.main", *command.split()[1:]]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith(f"Asked process {brokers.pid} to restart its brokers, or those that have ended.")
        wait_until(lambda: "Broker 1 is ready again.\n" in brokers.output(), "it to be ready again")
        admin = AdminClient({"bootstrap.servers": servers})
        wait_until(lambda: len(admin.list_topics(timeout=30).brokers) == 3, "three brokers to be known")
        now = [read_pid(data / number) for number in ("0", "1", "2")]
        assert (now[0], now[2]) == (pids[0], pids[2]), "the others are left alone"
        assert brokers.output().count("Broker 1 (process") == 1, "its end is told once"
        for number in ("0", "1", "2"):
            words = [sys.executable, "-m", "barnabas.cli.main", "stop", "--data", str(data / number)]
            subprocess.run(words, check=True, capture_output=True, timeout=60)
        assert brokers.wait() == 0
        told = re.findall(
            r"^Broker \d \(process \d+\) ended with exit code 0\. (\d of 3 go on|No .*)", brokers.output(), re.M
        )
        assert len(told) == 3, brokers.output()
        assert told[-1] == "No broker is left."


def test_brokers_that_were_killed_are_in_sync_before_they_are_ready_again_and_no_other_is_stopped(
    tmp_path: Path,
) -> None:
    """Whoever typed `barnabas restart` twice had all partitions offline."""
    data = tmp_path / "data"
    with started(tmp_path, "3") as (brokers, servers):
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("t", 12, 3)])["t"].result(30)
        pids = [read_pid(data / number) for number in ("0", "1", "2")]
        for pid in pids[1:]:
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: brokers.output().count("was killed by SIGKILL") == 2, "their ends to be told of")
        with Producer(servers, acks=1) as producer:
            for number in range(120):
                producer.send("t", b"x" * 100_000, partition=number % 12)
        os.kill(brokers.pid, signal.SIGHUP)
        wait_until(lambda: "Starting broker 1 again." in brokers.output(), "the start")
        os.kill(brokers.pid, signal.SIGHUP)
        wait_until(lambda: brokers.output().count("is ready again.\n") == 2, "both to be ready again")
        found = admin.list_topics("t", timeout=30).topics["t"].partitions.values()
        assert {len(each.isrs) for each in found} == {3}
        again = read_pid(data / "1")
        assert again is not None
        os.kill(again, signal.SIGKILL)
        wait_until(lambda: f"Broker 1 (process {again}) was killed" in brokers.output(), "its end to be told of")
        assert "Restarting" not in brokers.output()
        assert read_pid(data / "0") == pids[0], "it was never stopped"


def test_a_broker_that_cannot_start_is_told_of(tmp_path: Path) -> None:
    first = free_port(2)
    words = [sys.executable, "-m", "barnabas.cli.main", "start", "--brokers", "2"]
    words += ["--listen", f"127.0.0.1:{first}", "--data", str(tmp_path / "data")]
    log = tmp_path / "brokers.log"
    line = r"^Broker 1 \(process \d+\) ended with exit code 1 before it was ready\. 1 of 2 go on\. Start it again"
    with socket.create_server(("127.0.0.1", first + 1)), Process("brokers", words, log) as brokers:
        wait_until(lambda: re.search(line, brokers.output(), re.MULTILINE), "its end to be told of")
        assert brokers.stop() == 0
