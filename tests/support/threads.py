"""Threads for tests: each does one thing over and over, beside what the test itself does."""

from __future__ import annotations

import random
import sys
import threading
from typing import TYPE_CHECKING

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


class Threads:
    """Threads that do something over and over until they are told to stop; Python switches between them often."""

    def __init__(self, *work: Callable[[random.Random], None]) -> None:
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(each, seed)) for seed, each in enumerate(work)]
        self.rounds = [0] * len(work)
        self._interval = sys.getswitchinterval()

    def _run(self, work: Callable[[random.Random], None], seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not self._stop.is_set():
                work(chance)
                self.rounds[seed] += 1
        except BaseException as error:
            self._errors.append(error)

    def __enter__(self) -> Threads:
        """Start them, and see each at work before anything else is done."""
        sys.setswitchinterval(self._interval / 20)
        try:
            for thread in self._threads:
                thread.start()
            wait_until(lambda: self._errors or all(self.rounds), "a turn of each thread")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        for error in self._errors:
            raise error

    def _end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        sys.setswitchinterval(self._interval)
