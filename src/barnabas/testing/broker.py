"""A broker of one's own: a real process on a free port, with its data in a temporary directory.

    with Broker() as broker:
        producer = Producer(broker.bootstrap_servers)

It is ready when the block begins, about a quarter of a second after it was asked for, and gone when it ends. It cannot
outlive this process, however that ends: the broker holds on to a connection that goes with it.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.model.environment import FAULTS_SOCKET, READY_FD
from barnabas.testing.faults import BrokerFailed, BrokerFaults, PrivateSocket

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Broker", "BrokerFailed"]

PORTS: Final = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections: while a broker that will come back is down, no client can
be given its port."""
ATTEMPTS: Final = 5
LAST_LINES: Final = 20

QUICK: Final[Mapping[str, object]] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
    "share.coordinator.state.topic.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
}
"""Where a broker for tests differs from Kafka's defaults: groups react in fractions of a second."""


class Broker:
    """A broker that is this program's alone; use it in a `with` or an `async with`."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        data: Path | str | None = None,
        client_config: Mapping[str, object] | None = None,
        start_timeout: float = 30.0,
    ) -> None:
        """Describe a broker; `start()` or a `with` starts it.

        - `config`: Kafka's settings, as `{"num.partitions": 3}`. Groups are quick unless it says otherwise (`QUICK`).
        - `port`: a free one if it is 0. A broker that is stopped and started again keeps its port.
        - `data`: a directory to keep data in; without it a temporary one, which is removed at the end.
        - `client_config`: properties that its clients need, as `{"security.protocol": "SSL"}`; the fixtures use them.
        """
        self.client_config: dict[str, object] = dict(client_config or {})
        self.config: dict[str, object] = {**QUICK, **(config or {})}
        self.port = port
        """Where it listens on 127.0.0.1; 0 until it was started."""
        self._fixed_port = port != 0
        self._start_timeout = start_timeout
        self._folder: Path | None = None
        self._data = None if data is None else Path(data).absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._holding: socket.socket | None = None
        self._faults: BrokerFaults | None = None

    def __repr__(self) -> str:
        state = f"on {self.bootstrap_servers}" if self.running else "not running"
        return f"<Broker {state}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's id. Raises BrokerFailed if it is not running."""
        if self._process is None or self._process.poll() is not None:
            raise BrokerFailed("the broker is not running: start it")
        return self._process.pid

    @property
    def faults(self) -> BrokerFaults:
        """What can go wrong on it."""
        if self._faults is None:
            raise BrokerFailed("the broker was not started yet, so nothing can go wrong on it")
        return self._faults

    @property
    def log_file(self) -> Path:
        """Where it writes its log; gone when it is closed."""
        return self._temporary() / "broker.log"

    @property
    def data(self) -> Path:
        """Where its data is."""
        return self._data or self._temporary() / "data"

    def log(self) -> str:
        """What it has logged so far."""
        return self.log_file.read_text(errors="replace")

    def start(self) -> None:
        """Start it, and return when it is ready. A broker that runs goes on. Raises BrokerFailed."""
        if self.running:
            return
        is_new = self._folder is None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="barnabas-"))  # a short path, since a socket's has to be
        try:
            self._start()
        except BaseException:
            if is_new:
                self.close()
            raise

    def stop(self, timeout: float = 30.0) -> None:
        """Stop it cleanly; its data stays, and `start` brings it back on the same port. Raises BrokerFailed."""
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise BrokerFailed(
                    f"the broker did not stop within {timeout:g} s and was killed{self._end()}"
                ) from None
        self._let_go()

    def kill(self) -> None:
        """Kill it as by `kill -9`; its data stays, and `start` brings it back on the same port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._let_go()

    def restart(self) -> None:
        """Stop it cleanly and start it again; faults do not survive that."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and remove what is temporary. Closing twice does nothing."""
        try:
            self.stop()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _start(self) -> None:
        attempts = 1 if self._fixed_port else ATTEMPTS
        while True:
            attempts -= 1
            port = self.port or find_free_port()
            try:
                self._launch(port)
            except BrokerFailed:
                if attempts and not _is_free(port):  # another process was faster
                    continue
                raise
            self.port, self._fixed_port = port, True
            return

    def _temporary(self) -> Path:
        if self._folder is None:
            raise BrokerFailed("the broker was not started yet, or is closed: it has no files")
        return self._folder

    def arguments(self, port: int) -> list[str]:
        """What `barnabas start` is given besides the data directory and the settings."""
        return ["--listen", f"127.0.0.1:{port}"]

    def _launch(self, port: int) -> None:
        private = PrivateSocket(self._temporary() / "faults")
        words = [sys.executable, "-P", "-m", "barnabas.cli.main", "start"]
        words += [*self.arguments(port), "--data", str(self.data)]
        for key, value in self.config.items():
            words += ["--set", f"{key}={_as_text(value)}"]
        reader, writer = os.pipe()
        try:
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(writer,),
                    env={**os.environ, READY_FD: str(writer), FAULTS_SOCKET: str(private.path)},
                    start_new_session=True,
                )
            os.close(writer)
            writer = -1
            self._await_ready(reader)
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        self._faults = BrokerFaults(private)
        self._holding = private.connect()
        private.exchange(self._holding, "hold", {})

    def _await_ready(self, reader: int) -> None:
        """Wait until the broker says that it is ready; raises BrokerFailed if it ends before, or says nothing."""
        assert self._process is not None
        waiting = select.poll()
        waiting.register(reader, select.POLLIN)
        ready = waiting.poll(self._start_timeout * 1000)
        if ready and os.read(reader, 1):
            return
        if ready:
            code = self._process.wait()
            raise BrokerFailed(f"the broker ended with code {code} before it was ready{self._end()}")
        self.kill()
        raise BrokerFailed(f"the broker was not ready within {self._start_timeout:g} s{self._end()}")

    def _end(self) -> str:
        """The last lines of its log, for messages."""
        lines = self.log().splitlines()
        errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
        if errors:
            return f": {errors[-1]}"
        return "".join(f"\n  {line}" for line in lines[-LAST_LINES:])

    def _let_go(self) -> None:
        if self._holding is not None:
            self._holding.close()
            self._holding = None


def _as_text(value: Any) -> str:
    """A setting as `server.properties` has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def find_free_port() -> int:
    """A port of PORTS that nobody listens on; another process may be faster, so a start that fails is tried again."""
    for port in random.SystemRandom().sample(PORTS, 100):  # test runs may seed the other one alike
        if _is_free(port):
            return port
    raise BrokerFailed(f"a hundred ports between {PORTS.start} and {PORTS.stop} are all taken")
