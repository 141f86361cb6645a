"""The two brokers behind one face: prepare a folder, start and time it, pause, resume, stop.

A broker keeps its port and its folder over restarts. A paused broker (SIGSTOP) keeps its warm code and memory but takes
no processor time, so that two can live side by side and only one ever runs.
"""

from __future__ import annotations

import signal
import sys
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tests.support import java
from tests.support.processes import Process, free_port

from bench import measure
from bench.clients import wire
from bench.clients.java import KAFKA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kio.schema.metadata.v12.response import MetadataResponse

    Ready = Callable[[MetadataResponse], bool]

SETTINGS: Final = {
    "log.segment.delete.delay.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": "1000",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",
    "log.cleaner.backoff.ms": "100",
}
"""For both brokers: a deleted topic's files are to be gone before the next repetition; and where brokers wait on
purpose (for members that may still come, between assignments, between cleanings), that is not what is measured. Share
groups may have as many members as Kafka allows, and none is removed because a busy machine kept it silent."""
_START_DEADLINE: Final = 300.0
_STOP_DEADLINE: Final = 120.0
_GONE_DEADLINE: Final = 90.0
_POLL: Final = 0.002
_POLL_ANSWERED: Final = 0.02
"""Pauses between attempts; a broker that answers but is not ready yet is asked less often."""


class Broker(ABC):
    """A broker of this machine that can be measured."""

    name: ClassVar[str]
    settings: Mapping[str, str] = SETTINGS

    def __init__(self, folder: Path, open_files: int | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._open_files = open_files
        self._process: Process | None = None
        folder.mkdir(parents=True)
        self.prepare()

    def prepare(self) -> None:  # noqa: B027  # most have nothing to do
        """Do what must be done once before the first start."""

    @abstractmethod
    def command(self) -> list[str]:
        """The words that start the broker."""

    @abstractmethod
    def server_settings(self) -> dict[str, str]:
        """The settings that the broker runs with."""

    @property
    def pid(self) -> int:
        """The running broker's process id."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started (it may be paused)."""
        return self._process is not None

    def start(self, ready: Ready = lambda metadata: True) -> float:
        """Start the broker; seconds from exec to the first metadata answer that names a broker and is `ready`."""
        words = self.command()
        if self._open_files is not None:
            words = ["sh", "-c", f'ulimit -n {self._open_files}; exec "$@"', "sh", *words]
        started = time.perf_counter()
        process = self._process = Process(self.name, words, self.folder / "broker.log")
        while True:
            pause = _POLL
            try:
                with wire.connect(self.port) as connection:
                    answer = wire.metadata(connection)
                if answer.brokers and ready(answer):
                    return time.perf_counter() - started
                pause = _POLL_ANSWERED
            except (ConnectionError, TimeoutError):
                if not process.alive:
                    raise RuntimeError(f"{self.name} ended while it started:\n{process.tail()}") from None
            if time.perf_counter() - started > _START_DEADLINE:
                raise RuntimeError(f"{self.name} gave no answer for {_START_DEADLINE:.0f} seconds:\n{process.tail()}")
            time.sleep(pause)

    def stop(self) -> None:
        """Stop the broker cleanly."""
        if self._process is not None:
            process, self._process = self._process, None
            process.stop(_STOP_DEADLINE)

    def kill(self) -> None:
        """End the broker at once, whatever it is doing."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def pause(self) -> None:
        """Take the broker off the processor."""
        if self._process is not None:
            self._process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the broker run on, and wait until it serves."""
        if self._process is not None:
            self._process.send(signal.SIGCONT)
            with wire.connect(self.port) as connection:
                wire.metadata(connection)

    def meter(self) -> measure.Meter:
        """A meter for what the broker uses from now on."""
        return measure.Meter(self.pid)

    def wait_until_gone(self, topic: str) -> None:
        """Wait until nothing is left of a deleted topic."""
        deadline = time.monotonic() + _GONE_DEADLINE
        while time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                if not any(self.data.rglob(f"{topic}-*")):
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} still has files of {topic} {_GONE_DEADLINE:.0f} seconds after its deletion")

    def tail(self) -> str:
        """The end of its log."""
        return self._process.tail() if self._process is not None else ""


class Kafka(Broker):
    """Apache Kafka in KRaft mode, with the JVM flags of its own start script and a heap of 1 GB."""

    name = "Kafka"

    HEAP: ClassVar[tuple[str, ...]] = ("-Xmx1g", "-Xms1g")
    FLAGS: ClassVar[tuple[str, ...]] = (
        "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
    )  # fmt: skip

    def prepare(self) -> None:
        """Write the properties and format the folder."""
        settings = self.server_settings()
        self.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        java.tool(KAFKA, "storage", "format", "-t", "YmFybmFiYXMtYmVuY2gtMQ", "-c", str(self.properties))

    def server_settings(self) -> dict[str, str]:
        """What stands in its properties."""
        controller = free_port()
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # A paused broker sends no heartbeats; its own controller is not to fence it for that.
            "broker.session.timeout.ms": "3600000",
            # Deleted files are looked for from the first second on, not only after half a minute.
            "log.initial.task.delay.ms": "500",
            **self.settings,
        }

    def command(self) -> list[str]:
        """What kafka-server-start.sh runs."""
        return [*java.command(KAFKA, "kafka.Kafka", *self.HEAP, *self.FLAGS), str(self.properties)]

    @property
    def properties(self) -> Path:
        """The file that it reads its settings from."""
        return self.folder / "server.properties"


class Barnabas(Broker):
    """Barnabas as a user starts it."""

    name = "Barnabas"

    def command(self) -> list[str]:
        """`barnabas start` of this environment."""
        words = [str(Path(sys.executable).parent / "barnabas"), "start", "--data", str(self.data)]
        settings = self.server_settings()
        if "listeners" not in settings:
            words += ["--listen", f"127.0.0.1:{self.port}"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    def server_settings(self) -> dict[str, str]:
        """What it is started with."""
        return dict(self.settings)


BROKERS: Final[tuple[type[Broker], ...]] = (Kafka, Barnabas)
