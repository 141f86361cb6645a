"""A Spark standalone cluster from the pip package: a master and workers, each a process of this machine."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyspark

from tests.support.processes import Process
from tests.support.spark import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Sequence

HOST = "127.0.0.1"


class SparkCluster:
    """Ready when it is made; ended with the block."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._opened = ExitStack()
        self._folder = folder
        self.workers: list[Process] = []
        try:
            master = self._run("master", "Master", ["--port", "0"])
            self.url = master.wait_for_output(r"Starting Spark master at (spark://\S+)", 90)[1]
            for number in range(workers):
                place = folder / f"worker-{number}"
                words = ["--cores", "1", "--memory", "1g", "--port", "0", "--work-dir", str(place), self.url]
                self.workers.append(self._run(f"worker-{number}", "Worker", words))
            for worker in self.workers:
                worker.wait_for_output(r"Successfully registered with master", 90)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; executors end with their workers."""
        self._opened.close()

    def _run(self, name: str, part: str, words: Sequence[str]) -> Process:
        home = Path(pyspark.__file__).parent
        command = [
            str(home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{part.lower()}.{part}",
            *("--host", HOST, "--webui-port", "0"),
            *words,
        ]
        settings = {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        }
        return self._opened.enter_context(Process(name, command, self._folder / f"{name}.log", settings))
