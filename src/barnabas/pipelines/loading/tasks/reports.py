"""How far tasks are while they run.

Spark hands over what a task has counted when the task ends, which may take a minute. So each task also sends datagrams
to the driver. Nothing depends on them: where they do not arrive, as in a network that lets only Spark through, progress
is reported when tasks end.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import socket
import time
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext

    from barnabas.pipelines.spark.read.offsets import Piece

REPORT_SECONDS: Final = 0.5
DATAGRAM_BYTES: Final = 2_048
"""More than a report ever takes: a topic's name has at most 249 characters."""

log = logging.getLogger("barnabas.pipelines")


class TaskCounts(NamedTuple):
    """What a task has done so far, or all tasks together."""

    records: int = 0
    size: int = 0
    passed: int = 0
    """Offsets, with a record or without."""


class ReportAddress(NamedTuple):
    """Where tasks report to, and the secret that tells their reports from what others send."""

    address: tuple[str, int]
    secret: str


class TaskReports:
    """The driver's side, for the tasks of a round. A piece that is read again counts once."""

    def __init__(self, context: SparkContext) -> None:
        self.finished = _finished_accumulator(context)
        """What tasks add their pieces to when they are over: {(round, where a piece begins): what was counted}."""
        self.round = secrets.token_hex(8)
        self.line: ReportAddress | None = None
        self._running: dict[str, TaskCounts] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        config = context.getConf()
        host = str(config.get("spark.driver.host", "127.0.0.1"))
        try:
            self._socket.bind((str(config.get("spark.driver.bindAddress", host)), 0))
            self.line = ReportAddress((host, self._socket.getsockname()[1]), secrets.token_hex())
        except OSError as error:
            log.info(
                "Progress is reported only when tasks end: the driver cannot receive reports at %s: %s", host, error
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self.finished.value = {key: counted for key, counted in self.finished.value.items() if key[0] != self.round}

    def total(self) -> TaskCounts:
        """What is done by now, as far as it is known."""
        for report in self._received_reports():
            self._running[report[0]] = TaskCounts(*report[1:])
        finished = {piece: counted for (round, piece), counted in self.finished.value.items() if round == self.round}
        pieces = {**self._running, **finished}.values()
        return TaskCounts(*map(sum, zip(*pieces, strict=True))) if pieces else TaskCounts()

    def _received_reports(self) -> Iterable[list[Any]]:
        while self.line is not None:
            try:
                secret, *report = json.loads(self._socket.recv(DATAGRAM_BYTES))
            except BlockingIOError:
                return
            except (ValueError, TypeError):  # from somebody else
                continue
            if hmac.compare_digest(str(secret).encode(), self.line.secret.encode()):
                yield report


class TaskReporter:
    """A task's side."""

    def __init__(self, piece: Piece, line: ReportAddress | None) -> None:
        self._key = key(piece)
        self._line = line
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def report(self, counted: TaskCounts) -> None:
        """Report to the driver, at most every `REPORT_SECONDS`."""
        if self._line is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REPORT_SECONDS
        try:
            self._socket.sendto(json.dumps([self._line.secret, self._key, *counted]).encode(), self._line.address)
        except OSError as error:
            log.info("A task cannot report its progress to the driver at %s: %s", self._line.address, error)
            self._line = None


def key(piece: Piece) -> str:
    """What tells a piece from the others of a round."""
    return str(piece[0])


_FINISHED: Final[weakref.WeakKeyDictionary[SparkContext, Any]] = weakref.WeakKeyDictionary()


def _finished_accumulator(context: SparkContext) -> Any:
    """The accumulator of a context: PySpark keeps each that was ever made, so there is one for all rounds."""
    if context not in _FINISHED:
        _FINISHED[context] = context.accumulator({}, _merging())
    return _FINISHED[context]


def _merging() -> Any:
    from pyspark.accumulators import AccumulatorParam

    class Merging(AccumulatorParam[dict[tuple[str, str], TaskCounts]]):
        def zero(self, value: dict[tuple[str, str], TaskCounts]) -> dict[tuple[str, str], TaskCounts]:
            return {}

        def addInPlace(  # noqa: N802  (Spark's own name)
            self, value1: dict[tuple[str, str], TaskCounts], value2: dict[tuple[str, str], TaskCounts]
        ) -> dict[tuple[str, str], TaskCounts]:
            return {**value1, **value2}

    return Merging()
