"""`barnabas restart` asks nobody who would not hear it, and starts all that have ended."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.restart import ignores_sighup
from barnabas.cli.start import command, rolling, service

if TYPE_CHECKING:
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
