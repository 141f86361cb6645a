"""Apache Kafka 4.3.0 with three brokers, the first of which is the controller too; each has two data directories."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from tests.support import java
from tests.support.brokers import CLUSTER_ID
from tests.support.processes import Process, free_port

if TYPE_CHECKING:
    from pathlib import Path

VERSION: Final = "4.3.0"
BROKERS: Final = (1, 2, 3)
_HEAP: Final = ("-Xms192m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class KafkaCluster:
    """A context manager; `bootstrap` is the address of the first broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._controller = free_port()
        self._ports = {broker: free_port() for broker in BROKERS}
        self.bootstrap = f"127.0.0.1:{self._ports[1]}"
        self._processes: dict[int, Process] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for broker in BROKERS:
                self.start(broker)
                stack.callback(self.kill, broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def directories(self, broker: int) -> list[str]:
        """The data directories of a broker."""
        return [str(self._folder / f"{broker}-{name}") for name in ("a", "b")]

    def start(self, broker: int) -> None:
        """Start a broker, for the first time or again."""
        file = self._folder / f"{broker}.properties"
        if not file.exists():
            file.write_text("".join(f"{key}={value}\n" for key, value in self._settings(broker).items()))
            java.tool(VERSION, "storage", "format", "-t", CLUSTER_ID, "-c", str(file))
        words = [*java.command(VERSION, "kafka.Kafka", *_HEAP), str(file)]
        process = self._processes[broker] = Process(f"kafka {broker}", words, self._folder / f"{broker}.log")
        try:
            process.wait_for_output(r"Kafka Server started", 90)
        except BaseException:
            process.kill()
            raise

    def stop(self, broker: int) -> None:
        """Stop a broker cleanly."""
        self._processes[broker].stop()

    def kill(self, broker: int) -> None:
        """End a broker at once."""
        self._processes[broker].kill()

    def _settings(self, broker: int) -> dict[str, str]:
        address = f"PLAINTEXT://127.0.0.1:{self._ports[broker]}"
        settings = {
            "process.roles": "broker",
            "node.id": str(broker),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": address,
            "log.dirs": ",".join(self.directories(broker)),
            "offsets.topic.replication.factor": "1",
            "auto.leader.rebalance.enable": "false",
            "auto.create.topics.enable": "false",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
        }
        if broker == 1:
            settings["process.roles"] = "broker,controller"
            settings["listeners"] = f"{address},CONTROLLER://127.0.0.1:{self._controller}"
        return settings
