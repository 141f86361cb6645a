"""Defects that brokers had over the wire, to be put back: the fuzzer is worth something only if it finds them.

Each is a small patch of today's code that does again what the code did before it was mended. It is planted in a process
of its own (`python -m tests.fuzz --trial NAME`), which it may take down; its memory is limited. Where the broker is a
process beside the fuzzer, it is planted there (`python -m tests.fuzz.bugs NAME start ...`).
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.controller.metadata_updates import MetadataUpdates
from barnabas.broker.serving.caller import Caller
from barnabas.broker.serving.routes import Route
from barnabas.cli.main import main
from barnabas.machines.shares.coordinator import ShareCoordinator
from barnabas.net.connection import Connection
from barnabas.protocol.wire import bounds, varint
from barnabas.storage.log import validation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.broker.serving.registry import Api

MEMORY: Final = 6 << 30
"""Address space of a process with a bug."""
AT_ONCE: Final = {"frames": 20_000, "sockets": 3_000, "batches": 1_000, "queues": 200}
"""Cases of one seed; the next seed is tried if they show nothing."""
SECONDS: Final = 20 * 60.0


class Bug(NamedTuple):
    """A defect, the kind of fuzzing that is meant to find it, and how it is put in."""

    finding: str
    kind: str
    plant: Callable[[], None]


def _overlong() -> None:
    """A number of more than 32 bits is cut to size by the walk that goes before kio, which takes it whole."""
    right = varint.read_uvarint

    def read_uvarint(data: Sequence[int], position: int) -> tuple[int, int]:
        part = bytes(data[position : position + 5])
        if len(part) == 5 and min(part[:4]) >= 0x80 and part[4] > 0x0F:
            value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(part))
            return value & 0xFFFFFFFF, position + 5
        return right(data, position)

    bounds.read_uvarint = read_uvarint  # type: ignore[attr-defined]


class _Anybody(int):
    """The id of whichever broker a request says it is from."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def _everybody_is_a_broker() -> None:
    """Requests between brokers are served to anybody, and their epochs are not held against the metadata tree."""

    async def verify(self: MetadataUpdates, message: Any) -> None:
        self.check(message)

    Caller.broker_id = property(lambda self: _Anybody(1))  # type: ignore[assignment, method-assign]
    MetadataUpdates._verify = verify  # type: ignore[method-assign]


def _unbounded_records() -> None:
    """A batch is opened however many records it claims, and its offsets are put right however many there are."""
    validation.MIN_RECORD_SIZE = 0  # type: ignore[attr-defined]
    validation._RENUMBERED = 1 << 40  # type: ignore[misc]


def _unread_records() -> None:
    """Records are believed to be what their header says."""
    validation._agrees = lambda *_: True


def _anybody_changes_states() -> None:
    """Whoever asks changes the states of queues, as long as there is no authorizer."""
    make, read = Route.__init__, ShareCoordinator.read

    def make_plain(self: Route, api: Api, version: int, *, has_authorizer: bool) -> None:
        make(self, api, version, has_authorizer=has_authorizer)
        self.is_judged = self.check is not None
        self.is_plain = not (self.is_judged or api.forwarded)

    def read_and_fence(self: ShareCoordinator, *args: Any, may_fence: bool = True) -> Any:
        return read(self, *args)

    Route.__init__ = make_plain  # type: ignore[method-assign]
    ShareCoordinator.read = read_and_fence  # type: ignore[method-assign, assignment]


def _ghosts() -> None:
    """That a client has left is not noticed while its request waits, if it had sent another one."""
    Connection.expect_end = lambda self: None  # type: ignore[method-assign]


BUGS: Final = {
    "overlong": Bug("1", "frames", _overlong),
    "everybody-is-a-broker": Bug("2", "frames", _everybody_is_a_broker),
    "unbounded-records": Bug("4", "batches", _unbounded_records),
    "unread-records": Bug("5", "batches", _unread_records),
    "anybody-changes-states": Bug("after 16", "queues", _anybody_changes_states),
    "ghosts": Bug("after 5", "sockets", _ghosts),
}
_planted: Final[list[str]] = []


def plant(name: str) -> None:
    """Put a defect back into this process, and into the brokers that it starts."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    BUGS[name].plant()
    _planted.append(name)


def program() -> Sequence[str]:
    """What Python runs as `barnabas`, with the defect of this process."""
    return ("-m", "tests.fuzz.bugs", *_planted) if _planted else ("-m", "barnabas.cli.main")


class Found(NamedTuple):
    """How a defect was found."""

    seed: int
    seconds: float
    """Of the wall clock, with the start of each process."""
    words: str


def find(name: str, seconds: float = SECONDS) -> Found | None:
    """Run seed after seed with a defect until a rule is broken; None if none is in time."""
    began, bug = time.monotonic(), BUGS[name]
    seed = 0
    while time.monotonic() - began < seconds:
        seed += 1
        words = [sys.executable, "-m", "tests.fuzz", bug.kind, "--bug", name, "--seed", str(seed)]
        words += ["--count", str(AT_ONCE[bug.kind])]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            _, rule, said = done.stderr.rpartition("BrokenRule: ")
            memory = [line for line in done.stderr.splitlines() if "alloc" in line]
            shown = said if rule else (memory or [f"the process ended with {done.returncode}"])[-1]
            return Found(seed, time.monotonic() - began, shown)
    return None


def try_tool(names: Sequence[str]) -> int:
    """Put each defect back; 1 if one is not found."""
    missed = 0
    for name in names:
        found = find(name)
        missed += found is None
        how = (
            "not found"
            if found is None
            else f"seed {found.seed}, {found.seconds:.0f} s: {' '.join(found.words[:300].split())}"
        )
        print(f"{BUGS[name].finding}: {name}, {BUGS[name].kind}, {how}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    main()
