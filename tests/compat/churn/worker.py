"""A process with members of one group that come and go, until it is told to be quiet, or killed.

`python -m tests.compat.churn.worker JSON`. Members join and leave at random. When it reads the line `quiet`, all of
them join and stay; at `stop`, or when nobody is there to tell it anything, all leave and the process ends. What a
member read it writes to the process's record file first (partition and offset, a line each) and commits only then: if
the process is killed in between, the record is read again by someone else. A status line is printed whenever something
changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.members.aiokafka import AioKafkaMember
from tests.support.members.confluent_kafka import ConfluentConsumerProtocolMember, ConfluentMember
from tests.support.members.kafka_python import KafkaPythonMember
from tests.support.members.member import Committed, Joining, Member, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.members.member import Read

KINDS: Final[dict[str, type[Member]]] = {
    "confluent": ConfluentMember,
    "confluent-consumer": ConfluentConsumerProtocolMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}
COMMIT_EVERY: Final = 0.3
STDIN: Final = 0


class Bell:
    """Lets members wake whoever waits for news of them and for orders."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def ring(self) -> None:
        """There is news."""
        with contextlib.suppress(BlockingIOError):  # then it rings already
            os.write(self._writer, b"!")

    def wait(self, seconds: float | None) -> set[str]:
        """Wait for news or orders, at most so long; the orders that came."""
        ready, _, _ = select.select([self._reader, STDIN], [], [], seconds)
        if self._reader in ready:
            os.read(self._reader, 1 << 16)
        if STDIN not in ready:
            return set()
        return set(os.read(STDIN, 1 << 10).decode().split()) or {"stop"}


def careful(kind: type[Member], bell: Bell) -> Callable[[Joining, int], Member]:
    """This kind of member, but it reports what it read before it commits it, and rings when it holds something else."""

    class Careful(kind):  # type: ignore[misc, valid-type]  # a class that is known when it runs
        def __init__(self, joining: Joining, record: int) -> None:
            self.record = record
            self.ends: dict[Place, Committed] = {}
            self.due = 0.0
            self._owned: frozenset[Place] = frozenset()
            super().__init__(joining)

        @property
        def owned(self) -> frozenset[Place]:
            return self._owned

        @owned.setter
        def owned(self, places: frozenset[Place]) -> None:
            if places != self._owned:
                self._owned = places
                bell.ring()

        def run(self) -> None:
            super().run()
            bell.ring()

        def received(self, reads: list[Read]) -> None:
            if reads:
                os.write(self.record, b"".join(b"%d %d\n" % (read.place.partition, read.offset) for read in reads))
                self.ends.update({read.place: Committed(read.offset + 1) for read in reads})
            if time.monotonic() >= self.due:
                self.due = time.monotonic() + COMMIT_EVERY
                held = set(self.assignment())
                self.ends = {place: end for place, end in self.ends.items() if place in held}
                if self.ends:
                    # In a rebalance a commit may be refused; whoever has the partition next reads from the last one.
                    with contextlib.suppress(Exception):
                        self.commit_these(self.ends)

    return Careful


class Slot:
    """A place for one member: taken and left again and again."""

    def __init__(self, make: Callable[[], Member], chance: random.Random) -> None:
        self._make = make
        self._chance = chance
        self.due = time.monotonic() + chance.uniform(0, 2)
        """When it is taken or left next."""
        self.member: Member | None = None
        self.leaving: Member | None = None
        self.joins = 0
        self.failures: list[str] = []

    def turn(self, *, quiet: bool, stop: bool) -> None:
        """Join or leave, if it is time."""
        now = time.monotonic()
        if self.leaving is not None and self.leaving.is_over:
            self.leaving = None
        if self.member is not None and self.member.is_over:
            self.failures.append(repr(self.member.failure))
            self.member = None
        if self.member is None:
            if not stop and self.leaving is None and (quiet or now >= self.due):
                self.member = self._make()
                self.joins += 1
                self.due = now + self._chance.uniform(1, 10)
        elif stop or (now >= self.due and not quiet):
            self.member.begin_to_leave()
            self.leaving, self.member = self.member, None
            self.due = now + self._chance.uniform(0, 2)


def main(settings: dict[str, Any]) -> None:
    """Run until stopped."""
    record = os.open(Path(settings["folder"]) / f"{settings['name']}.read", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    joining = Joining(
        settings["bootstrap"],
        settings["group"],
        (settings["topic"],),
        assignors=tuple(settings["assignors"]),
        session_ms=6_000,
        poll_interval_ms=15_000,
    )
    bell = Bell()
    kind = careful(KINDS[settings["kind"]], bell)
    chance = random.Random(settings["seed"])
    slots = [Slot(lambda: kind(joining, record), chance) for _ in range(settings["members"])]
    quiet, stop = settings["quiet"], False
    while True:
        for slot in slots:
            slot.turn(quiet=quiet, stop=stop)
        members = [slot.member for slot in slots if slot.member is not None]
        status = {
            "quiet": quiet,
            "owned": [sorted(place.partition for place in member.owned) for member in members],
            "joins": sum(slot.joins for slot in slots),
            "failures": [failure for slot in slots for failure in slot.failures],
        }
        print(json.dumps(status), flush=True)
        if stop and not members and all(slot.leaving is None for slot in slots):
            return
        due = [slot.due for slot in slots if slot.leaving is None and not quiet and not stop]
        orders = bell.wait(max(0.0, min(due) - time.monotonic()) if due else None)
        quiet, stop = quiet or "quiet" in orders, stop or "stop" in orders


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
