"""A process with members of one group that come and go, until it is told to be quiet, or killed.

`python -m tests.compat.churn.worker JSON`. Members join and leave at random. When the file `quiet` is in the folder,
all of them join and stay; when `stop` is there, all leave and the process ends. What a member read it writes to the
process's record file first (partition and offset, a line each) and commits only then: if the process is killed in
between, the record is read again by someone else. A status line is printed several times a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.support.members import (
    AioKafkaMember,
    Committed,
    ConfluentConsumerProtocolMember,
    ConfluentMember,
    Joining,
    KafkaPythonMember,
    Member,
    Place,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.members import Read

KINDS: Final[dict[str, type[Member]]] = {
    "confluent": ConfluentMember,
    "confluent-consumer": ConfluentConsumerProtocolMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}
COMMIT_EVERY: Final = 0.3


def careful(kind: type[Member]) -> Callable[[Joining, int], Member]:
    """This kind of member, but it reports what it read before it commits it."""

    class Careful(kind):  # type: ignore[misc, valid-type]  # a class that is known when it runs
        def __init__(self, joining: Joining, record: int) -> None:
            self.record = record
            self.ends: dict[Place, Committed] = {}
            self.due = 0.0
            super().__init__(joining)

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
        self._until = time.monotonic() + chance.uniform(0, 2)
        self.member: Member | None = None
        self.leaving: list[Member] = []
        self.failures: list[str] = []

    def turn(self, *, quiet: bool, stop: bool) -> None:
        """Join or leave, if it is time."""
        now = time.monotonic()
        if self.member is not None and not self.member.is_alive():
            self.failures.append(repr(self.member.failure))
            self.member = None
        self.leaving = [member for member in self.leaving if member.is_alive()]
        if self.member is None:
            if not stop and not self.leaving and (quiet or now > self._until):
                self.member = self._make()
                self._until = now + self._chance.uniform(1, 10)
        elif stop or (now > self._until and not quiet):
            self.member.begin_to_leave()
            self.leaving.append(self.member)
            self.member = None
            self._until = now + self._chance.uniform(0, 2)


def main(settings: dict[str, Any]) -> None:
    """Run until stopped."""
    folder = Path(settings["folder"])
    record = os.open(folder / f"{settings['name']}.read", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    joining = Joining(
        settings["bootstrap"],
        settings["group"],
        (settings["topic"],),
        assignors=tuple(settings["assignors"]),
        session_ms=6_000,
        poll_interval_ms=15_000,
    )
    kind = careful(KINDS[settings["kind"]])
    chance = random.Random(settings["seed"])
    slots = [Slot(lambda: kind(joining, record), chance) for _ in range(settings["members"])]
    while True:
        quiet, stop = (folder / "quiet").exists(), (folder / "stop").exists()
        for slot in slots:
            slot.turn(quiet=quiet, stop=stop)
        members = [slot.member for slot in slots if slot.member is not None]
        owned = [sorted(place.partition for place in member.owned) for member in members]
        failures = [failure for slot in slots for failure in slot.failures]
        print(json.dumps({"quiet": quiet, "owned": owned, "failures": failures}), flush=True)
        if stop and not members and not any(slot.leaving for slot in slots):
            return
        time.sleep(0.2)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
