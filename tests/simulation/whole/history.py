"""What clients of a world did and saw, in the words of the history checker, and the story of the world in lines."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final

from tests.history.checker import Fate, Poll, Record, Send

if TYPE_CHECKING:
    from tests.history.checker import Placed, Reset
    from tests.simulation.whole.compacted import Update
    from tests.simulation.whole.loop import VirtualLoop

TRACE: Final = bool(os.environ.get("BARNABAS_SIMULATION_TRACE"))
"""Whether every event is told: to find what two runs of a seed do differently."""
NOW_AND_THEN: Final = 0.08
OFTEN: Final = 0.5
ALWAYS: Final = 1.0
"""How often records are deleted after one that is written."""


class Log:
    """Everything that a world is judged by."""

    def __init__(self, loop: VirtualLoop, *, tell: bool) -> None:
        self._loop = loop
        self._tell = tell
        self._hash = hashlib.blake2b(digest_size=16)
        self.events = 0
        self.story: list[str] = []
        self.sends: dict[str, Send] = {}
        self.sent_at: dict[str, float] = {}
        self.reads: list[Poll | Placed | Reset] = []
        self.final: list[Record] = []
        self.keyed: dict[str, Update] = {}
        """What was acknowledged last for each key of the compacted topic."""
        self.keyed_sent: set[str] = set()
        """Everything that was sent to it."""
        self.loose: list[tuple[float, str]] = []
        """What was acknowledged in the topic that may lose records, and when it was sent."""
        self.loosened = 0.0
        """When that topic may have lost records last."""
        self.replaced: set[int] = set()
        """Brokers that an unclean election passed over, and that have not been elected since."""
        self.deletions = NOW_AND_THEN
        """How often its records are deleted, after each that is written."""
        self.clocks_jump = False
        """Whether sessions may end before their time."""
        self.owners: dict[tuple[str, int, int], str] = {}
        """Who owned a partition, by group and generation."""
        self.violations: list[str] = []
        """Rules that were seen to be broken when it happened."""

    def trace(self, *event: object) -> None:
        """Something happened that a world must repeat exactly."""
        self.events += 1
        line = repr((round(self._loop.time(), 9), *event))
        self._hash.update(line.encode())
        if TRACE:
            self.story.append(line)

    def say(self, line: str) -> None:
        """A line of the story, and of the trace."""
        self.trace(line)
        if self._tell:
            self.story.append(f"{self._loop.time():9.3f}  {line}")

    def violate(self, line: str) -> None:
        """A rule is broken."""
        self.violations.append(line)
        self.say(f"VIOLATION {line}")

    @property
    def digest(self) -> str:
        """The trace in short."""
        return self._hash.hexdigest()

    # Records

    def sending(self, producer: str, partition: int, value: str, transaction: str = "") -> None:
        """A record is about to be sent."""
        self.sends[value] = Send(producer, partition, value, Fate.UNKNOWN, transaction=transaction)
        self.sent_at[value] = self._loop.time()

    def sent(self, value: str, fate: Fate, offset: int = -1) -> None:
        """What became of it."""
        self.sends[value] = self.sends[value]._replace(fate=fate, offset=offset)

    @property
    def acknowledged(self) -> int:
        """Records that were acknowledged."""
        return sum(send.fate is Fate.ACKNOWLEDGED for send in self.sends.values())
