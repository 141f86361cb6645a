"""How many brokers there are for `auto`, and what they are told."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.common.broker_options import AUTO
from barnabas.cli.common.failures import Failed
from barnabas.cli.start import broker_child, service, several
from tests.support.programs import END_TOGETHER
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Told:
    """The options that matter here."""

    brokers: int | None = AUTO
    settings: tuple[str, ...] = ()
    config: Path | None = None


def test_auto_is_a_broker_for_each_core_and_stays_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert several.count_brokers(AUTO, tmp_path) == 4
    assert several.count_brokers(2, tmp_path) == 2
    for number in (0, 1, 2024):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / service.LOCK_FILE).touch()
    assert several.count_brokers(AUTO, tmp_path) == 2, "as many as there were"


def test_the_host_is_the_rack_of_auto_unless_one_is_set(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.rack=b\n")
    assert several.rack_setting(Told()) == (f"broker.rack={socket.gethostname()}",)  # type: ignore[arg-type]
    for other in (Told(3), Told(settings=("broker.rack = a",)), Told(config=file)):
        assert several.rack_setting(other) == ()  # type: ignore[arg-type]


def test_ids_count_up_from_the_first(tmp_path: Path) -> None:
    words = several.arguments(2, None, (), None, tmp_path, first_id=40)
    assert [folder.name for folder, _ in words] == ["0", "1"]
    assert ["node.id=40" in words[0][1], "node.id=41" in words[1][1]] == [True, True]


@pytest.mark.parametrize(
    ("first", "ports"),
    [(None, []), (9400, ["9400", "9401", "9402"]), (0, ["0", "0", "0"]), (65533, ["65533", "65534", "65535"])],
)
def test_each_broker_has_a_port_for_its_metrics(tmp_path: Path, first: int | None, ports: list[str]) -> None:
    words = [words for _, words in several.arguments(3, None, (), None, tmp_path, metrics=first)]
    assert [each[each.index("--metrics") + 1] for each in words if "--metrics" in each] == ports


def test_ports_of_metrics_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError, match="--metrics 65534 leaves no room for 3 brokers: ports end at 65535"):
        several.arguments(3, None, (), None, tmp_path, metrics=65534)


def test_only_one_command_runs_the_brokers_of_a_folder(tmp_path: Path) -> None:
    with several._announced(tmp_path):
        assert several.starter(tmp_path) == os.getpid()
        with pytest.raises(Failed, match=f"run already .process {os.getpid()}."), several._announced(tmp_path):
            pass
    assert several.starter(tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="where /proc tells which files a process has open")
def test_the_number_that_a_crash_left_behind_is_nobodys(tmp_path: Path) -> None:
    """`barnabas stop` sent SIGTERM to whoever had it, while another command was about to write its own."""
    path = tmp_path / several.STARTER_FILE
    path.write_text(f"{os.getppid()}\n")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert several.starter(tmp_path) is None


def test_who_looks_whether_brokers_run_keeps_nobody_from_running_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / several.STARTER_FILE
    path.touch()
    find = several._holder
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)

        def find_once_more(path: Path) -> int | None:
            fcntl.flock(looking, fcntl.LOCK_UN)
            return find(path)

        monkeypatch.setattr(several, "_holder", find_once_more)
        with several._announced(tmp_path):
            assert several.starter(tmp_path) == os.getpid()


def test_all_brokers_are_told_to_stop_before_one_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Patient(broker_child.BrokerChild):
        """Ends by SIGTERM, once the other was told as well."""

        def _start(self) -> None:
            self.ready_pipe = -1
            words = [sys.executable, "-c", END_TOGETHER, str(tmp_path), str(self.broker_id), "2"]
            self._process = subprocess.Popen(words)

    monkeypatch.setattr(broker_child, "STOP_SECONDS", 20.0)
    children = [Patient(number, [], 0) for number in range(2)]
    try:
        wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == 2, "both to be ready")
        broker_child.end_all(children)
        assert [child.code for child in children] == [0, 0], "none was killed"
    finally:
        for child in children:
            child._process.kill()
            child._process.wait()
