"""Brokers as real processes: Barnabas, and Apache Kafka in both of its ways of keeping metadata."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from tests.support import java
from tests.support.processes import Process, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CLUSTER_ID: Final = "bXktdGVzdC1jbHVzdGVyMQ"
_HEAP: Final = ("-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Barnabas(Process):
    """`barnabas start`, ready to serve; stopping and starting again on the same folder is a restart."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        port: int = 0,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "barnabas.cli.main"),
    ) -> None:
        self.data = folder / "data"
        words = [sys.executable, *program, "start"]
        words += ["--listen", f"127.0.0.1:{port}", "--data", str(self.data)]
        for key, value in (settings or {}).items():
            words += ["--set", f"{key}={value}"]
        super().__init__("barnabas", words, folder / "barnabas.log", env)
        try:
            self.ready = self.wait_for_output(r"^.*\bready\b.*127\.0\.0\.1:(\d+).*$")
        except BaseException:
            self.kill()
            raise
        self.port = int(self.ready[1])
        self.bootstrap = f"127.0.0.1:{self.port}"


class KafkaKRaft(Process):
    """Apache Kafka 4.3.0, broker and controller in one process."""

    VERSION: Final = "4.3.0"

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        port, controller = free_port(), free_port()
        self.data = folder / "data"
        self.bootstrap = f"127.0.0.1:{port}"
        properties = _properties(
            folder,
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller}",
                "log.dirs": str(self.data),
                "offsets.topic.replication.factor": "1",
                **(settings or {}),
            },
        )
        java.tool(self.VERSION, "storage", "format", "-t", CLUSTER_ID, "-c", str(properties), "--ignore-formatted")
        words = [*java.command(self.VERSION, "kafka.Kafka", *_HEAP), str(properties)]
        super().__init__(f"kafka {self.VERSION}", words, folder / "kafka.log")
        try:
            self.wait_for_output(r"Kafka Server started", 90)
        except BaseException:
            self.kill()
            raise


class KafkaZooKeeper(Process):
    """Apache Kafka 3.9.1 over a ZooKeeper that is already there (`zookeeper` is its connect string)."""

    VERSION: Final = "3.9.1"

    def __init__(
        self, folder: Path, zookeeper: str, data: Path, settings: Mapping[str, str] | None = None, port: int = 0
    ) -> None:
        self.data = data
        self.bootstrap = f"127.0.0.1:{port or free_port()}"
        properties = _properties(
            folder,
            {
                "listeners": f"PLAINTEXT://{self.bootstrap}",
                "zookeeper.connect": zookeeper,
                "log.dirs": str(data),
                "offsets.topic.replication.factor": "1",
                **(settings or {}),
            },
        )
        words = [*java.command(self.VERSION, "kafka.Kafka", *_HEAP), str(properties)]
        super().__init__(f"kafka {self.VERSION}", words, folder / "kafka.log")
        try:
            self.wait_for_output(r"\[KafkaServer id=\d+\] started", 90)
        except BaseException:
            self.kill()
            raise


def _properties(folder: Path, settings: Mapping[str, str]) -> Path:
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file
