"""What a story is, and how it is told with a call that fails.

A story is prepared without faults. Then it is told while one call fails: each of its steps is tried again like a client
does, until it is done or a restart is needed. What it was told to be done is *acknowledged*. After that it goes on, or
everything ends in one of the ways of `Ending` and is started again; nothing acknowledged is missing, and it goes on.
"""

from __future__ import annotations

import shutil
import traceback
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from barnabas.storage.check import check
from tests.failing_calls.files import FailingFiles, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Ending(Enum):
    """What comes after the call that failed."""

    GO_ON = "it goes on"
    STOPPED = "a clean restart"
    KILLED = "kill -9"
    POWER_LOSS = "a power loss"
    EVERYTHING_UNSYNCED = "a power loss that takes everything that was not synced"

    @property
    def loses_power(self) -> bool:
        """Whether the machine is off for a moment."""
        return self in (Ending.POWER_LOSS, Ending.EVERYTHING_UNSYNCED)


class BrokenRule(Exception):
    """A story with a failing call broke a rule; `call` is empty if it did so before it came to that call."""

    def __init__(self, words: str, call: str = "") -> None:
        super().__init__(words)
        self.call = call


class Story(Protocol):
    """See the module's docstring."""

    @property
    def needs_restart(self) -> bool:
        """Whether the log directory takes no more writes until its logs were read again."""
        ...

    def prepare(self) -> None:
        """Without faults: come to where the story begins."""
        ...

    def tell(self) -> None:
        """With a failing call: do everything, unless a restart is needed for that."""
        ...

    def check(self) -> None:
        """Raise AssertionError if something acknowledged is missing, or something is there that should not be."""
        ...

    def stop(self) -> None:
        """Stop cleanly, as far as that is possible."""
        ...

    def start(self, *, lost_power: bool = False) -> None:
        """Start anew; after a power loss what was not on disk may be missing."""
        ...

    def go_on(self) -> None:
        """Without faults: finish what was not done, and do more."""
        ...


class Case(NamedTuple):
    """One telling of a story."""

    fault: Fault
    number: int
    """Of the call that fails."""
    ending: Ending
    luck: int = 0
    """Another number, another order of what a whole broker does at the same time."""

    @property
    def seed(self) -> int:
        """Of the world of a whole broker."""
        return self.number + self.luck * 1_000_000


class Told(NamedTuple):
    """How a story was told."""

    case: Case
    call: str
    """What failed; empty if there were not so many calls."""


def tell(make: Callable[[Path, FailingFiles], Story], folder: Path, case: Case) -> Told:
    """Tell a story of logs; raises BrokenRule."""
    root = folder / "data"
    root.mkdir()
    files = FailingFiles(root)
    try:
        _tell(make(root, files), root, files, case)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__} {error} ({Path(where.filename).name}:{where.lineno}: {where.line})"
        call = f"{case.fault.name} in call {case.number} ({files.what})"
        raise BrokenRule(f"{call}, {case.ending.value}: {reason}", files.what) from error
    finally:
        for path in folder.iterdir():
            shutil.rmtree(path)
    return Told(case, files.what)


Teller: TypeAlias = "Callable[[Case], Told]"
"""Tells a story; raises BrokenRule."""


def _tell(story: Story, root: Path, files: FailingFiles, case: Case) -> None:
    story.prepare()
    files.arm(case.fault, case.number)
    story.tell()
    assert not story.needs_restart or files.may_need_restart, "only a restart helps"
    files.disarm()
    story.check()
    if case.ending is Ending.GO_ON and not story.needs_restart:
        story.go_on()
        story.check()
    if case.ending is Ending.KILLED:
        files.kill()
    elif case.ending is Ending.POWER_LOSS:
        files.power_loss(case.number)
    elif case.ending is Ending.EVERYTHING_UNSYNCED:
        files.lose_unsynced()
    else:
        story.stop()
    story.start(lost_power=case.ending.loses_power)
    story.check()
    story.go_on()
    story.check()
    story.stop()
    assert check(root).errors == []


def reraise(error: BrokenRule) -> None:
    """Let nothing else be told."""
    raise error


def cases(
    fault: Fault, *, step: int = 1, first: int = 0, ending: Ending | None = None, luck: int = 0
) -> Iterator[Case]:
    """Calls of ever higher numbers: all endings of each with a step of 1, or one of them."""
    endings = tuple(Ending) if ending is None else (ending,)
    number = first
    while True:
        if step == 1:
            yield from (Case(fault, number, each, luck) for each in endings)
        else:
            yield Case(fault, number, endings[number // step % len(endings)], luck)
        number += step


def tell_all(
    teller: Teller,
    fault: Fault,
    *,
    step: int = 1,
    first: int = 0,
    most: int | None = None,
    ending: Ending | None = None,
    luck: int = 0,
    misses: int = 1,
    on_broken: Callable[[BrokenRule], object] = reraise,
) -> int:
    """Tell a story for every call that a fault concerns, or every so manyth; returns how many tellings it took.

    It ends when so many tellings in a row did not come to their call: where every number is another world, one of them
    may have fewer calls than the next.
    """
    count = missed = 0
    for case in cases(fault, step=step, first=first, ending=ending, luck=luck):
        if count == most:
            break
        try:
            call = teller(case).call
        except BrokenRule as error:
            call = error.call
            on_broken(error)
        missed = 0 if call else missed + 1
        if missed == misses:
            break
        count += not missed
    return count
