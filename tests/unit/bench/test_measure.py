"""The kernel's accounts, read from text and from a /proc made up for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from bench import measure

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
STAT = f"42 (a (strange) name) S 1 42 42 0 -1 4194560 9 8 7 6 {3 * TICKS} {2 * TICKS} {TICKS} {TICKS // 2} 20 0 1 0"


def test_cpu_adds_user_system_and_children() -> None:
    assert measure.parse_cpu(STAT) == pytest.approx(6.5, abs=1 / TICKS)


def test_memory_is_the_private_part() -> None:
    assert measure.parse_memory("Rss:\t  9000 kB\nPss_Anon:\t  1000 kB\nPss_File:\t 8000 kB\n") == 1.024
    assert measure.parse_memory("") == 0


class FakeProc:
    """A /proc with a parent, a child and the child's child."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for pid, children in ((1, "2"), (2, "3"), (3, "")):
            task = folder / str(pid) / "task" / str(pid)
            task.mkdir(parents=True)
            (task / "children").write_text(children)
            self.account(pid, cpu_ticks=TICKS, memory_kb=1000)

    def account(self, pid: int, cpu_ticks: int, memory_kb: int) -> None:
        process = self.folder / str(pid)
        (process / "stat").write_text(f"{pid} (name) S 1 1 1 0 -1 0 0 0 0 0 {cpu_ticks} 0 0 0 20 0")
        (process / "smaps_rollup").write_text(f"Rss:\t 9000 kB\nPss_Anon:\t {memory_kb} kB\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeProc:
    monkeypatch.setattr(measure, "PROC", tmp_path)
    return FakeProc(tmp_path)


@pytest.mark.usefixtures("proc")
def test_a_process_counts_with_its_descendants() -> None:
    assert measure.family(1) == [1, 2, 3]
    assert measure.cpu_seconds(1) == 3
    assert measure.memory_mb(2) == 2.048


@pytest.mark.usefixtures("proc")
def test_a_process_that_is_gone_costs_nothing() -> None:
    assert measure.cpu_seconds(9) == measure.memory_mb(9) == 0


def test_a_meter_takes_the_difference_and_the_peak(proc: FakeProc) -> None:
    with measure.Meter(3) as meter:
        proc.account(3, cpu_ticks=5 * TICKS, memory_kb=9000)
        wait_until(lambda: meter.peak_mb > 9, "the sampler to see the peak")
        proc.account(3, cpu_ticks=6 * TICKS, memory_kb=2000)
    assert meter.cpu == 5
    assert meter.peak_mb == 9.216
    assert meter.seconds > 0


def test_a_meter_of_several_processes_adds_them_up(proc: FakeProc) -> None:
    task = proc.folder / "4" / "task" / "4"
    task.mkdir(parents=True)
    (task / "children").write_text("")
    proc.account(4, cpu_ticks=TICKS, memory_kb=2000)
    with measure.Meter(3, 4) as meter:
        proc.account(3, cpu_ticks=5 * TICKS, memory_kb=9000)
        proc.account(4, cpu_ticks=3 * TICKS, memory_kb=2000)
        wait_until(lambda: meter.peak_mb > 11, "the sampler to see the peak")
    assert meter.cpu == 6
    assert meter.peak_mb == 11.264
