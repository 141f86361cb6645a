"""Spark processes that wait for their turns: ours, and Spark's own connector in the same version of Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from tests.support import jars

from bench import measure

if TYPE_CHECKING:
    from types import TracebackType

_SCRIPT: Final = Path(__file__).with_name("spark_job.py")


class Ran(NamedTuple):
    """One run of a job."""

    seconds: float
    records: int
    peak_mb: float


class SparkSide:
    """A Spark process with one job; it is idle between its runs."""

    def __init__(self, who: str, port: int, topic: str, what: str, decode: str, folder: Path) -> None:
        with_jars = sorted(map(str, jars.newest_spark_connector().glob("*.jar"))) if who == "connector" else []
        words = [
            sys.executable,
            str(_SCRIPT),
            who,
            f"127.0.0.1:{port}",
            topic,
            what,
            decode,
            str(folder),
            ",".join(with_jars),
        ]
        self._log = (folder.parent / f"{folder.name}.log").open("w")
        self._child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True
        )
        self._answer("ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(60)
        except subprocess.TimeoutExpired:
            self._child.kill()
        self._log.close()

    def run(self) -> Ran:
        """Do the job once."""
        assert self._child.stdin is not None
        with measure.Meter(self._child.pid) as meter:
            self._child.stdin.write("run\n")
            self._child.stdin.flush()
            told = json.loads(self._answer("{"))
        return Ran(told["seconds"], told["records"], meter.peak_mb)

    def _answer(self, beginning: str) -> str:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith(beginning):
                return line
        raise RuntimeError(f"Spark ended with {self._child.wait(60)}; see {self._log.name}")
