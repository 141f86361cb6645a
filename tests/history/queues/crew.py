"""The workers of a run: processes that come, hang, are told to leave and are killed; and what they wrote down."""

from __future__ import annotations

import json
import math
import random
import signal
import sys
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from tests.history.queues.events import NO_EPOCH, Acknowledgement, Delivery, Fate, Kind, Place
from tests.history.queues.observer import with_leaders
from tests.support.processes import WITHOUT_HYPOTHESIS, Process

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.history.queues.observer import Reign

PROGRAM: Final = f"{WITHOUT_HYPOTHESIS}from tests.history.queues.worker import main\nmain()\n"
EAGER: Final = "eager"


class Crew:
    """As many workers as there are clients named; as a context manager all are killed at the end."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, group: str, clients: Sequence[str], seed: int) -> None:
        self._folder = folder
        self._where = bootstrap, topic, group
        self._chance = random.Random(f"crew {seed}")
        self._numbers = count(1)
        self._all: list[Process] = []
        self.workers: list[Process] = []
        """Those that are to work now."""
        self._clients = list(clients)

    def __enter__(self) -> Crew:
        for client in self._clients:
            self.workers.append(self._start(client))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._all:
            worker.kill()

    def _start(self, client: str) -> Process:
        bootstrap, topic, group = self._where
        name = f"{topic}-{client}-{next(self._numbers)}"
        words = [client, bootstrap, topic, group, name, str(self._chance.getrandbits(32))]
        worker = Process(name, [sys.executable, "-c", PROGRAM, *words], self._folder / f"{name}.log")
        self._all.append(worker)
        return worker

    def pick(self, luck: float) -> int:
        """One of the places."""
        return int(luck * len(self.workers))

    def kill(self, index: int) -> None:
        """kill -9."""
        self.workers[index].kill()

    def replace(self, index: int) -> None:
        """Another worker takes the place of one that was killed, or that has left."""
        worker = self.workers[index]
        if worker.alive:
            worker.kill()
        self.workers[index] = self._start(self._clients[index])

    def finish(self, *, by_killing: bool) -> None:
        """End all workers, or let them hang for good, whatever they hold; a new one does what is left."""
        for worker in self.workers:
            if by_killing:
                worker.kill()
            elif worker.alive:
                worker.send(signal.SIGSTOP)
        self.workers = [self._start(EAGER)]

    # What they wrote

    def failed(self) -> list[str]:
        """Workers that ended by themselves."""
        return [worker.tail() for worker in self.workers if not worker.alive]

    def deliveries(self, current_since: float, reigns: Sequence[Reign]) -> list[Delivery]:
        """What came; what was asked for later than this came from a leader, and what came within its reign."""
        lines = list(self._lines("came"))
        found = [
            Delivery(
                member,
                Place(partition, offset),
                value,
                count,
                asked_at,
                at,
                session,
                NO_EPOCH,
                asked_at > current_since,
            )
            for _, member, partition, offset, value, count, asked_at, at, _, session in lines
        ]
        return with_leaders(found, [line[8] for line in lines], reigns)

    def sessions(self) -> dict[str, float]:
        """When each share session was last seen to go on: a later fetch of it was answered."""
        found: dict[str, float] = {}
        for *_, asked_at, _, _, session in self._lines("came"):
            if session:
                found[session] = max(found.get(session, asked_at), asked_at)
        return found

    def acknowledgements(self) -> list[Acknowledgement]:
        """What was said, and what became of it."""
        told = {(member, number): (Fate(fate), at) for _, member, number, fate, at in self._lines("told")}
        return [
            Acknowledgement(
                member,
                Place(partition, offset),
                Kind(kind),
                deliveries,
                told.get((member, number), (Fate.UNKNOWN, 0.0))[0],
                at,
                told.get((member, number), (Fate.UNKNOWN, math.inf))[1],
                member,
            )
            for _, member, number, partition, offset, kind, deliveries, at in self._lines("says")
        ]

    def _lines(self, kind: str) -> Iterator[list[Any]]:
        for worker in self._all:
            for line in worker.output().splitlines():
                if line.startswith(f'["{kind}"') and line.endswith("]"):
                    yield json.loads(line)
