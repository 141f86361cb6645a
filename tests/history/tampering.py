"""Brokers whose disk can become slow or full and whose clock can jump, while they run.

A real slow disk needs a device driver that a test machine may not have, and its clock is everybody's. So these brokers
are told by files, which `tampered/sitecustomize.py` reads in their processes: a write and a sync last longer, a write
finds no room, the time is another one, a coordinator is not through with its log.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tests.history.networks import Hosts
from tests.support.clusters import Cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

CODE: Final = Path(__file__).with_name("tampered")
TOO_LONG: Final = 0.1
"""Seconds of processor time that no step of a broker's event loop may take."""

What = Literal["delay", "full", "bad", "clock", "unloaded"]
"""Seconds that a write or a sync of a log takes; 1 if there is no room for it; 1 if the disk fails to write; seconds by
which the clock is wrong; 1 if coordinators that begin to load do not come to an end."""


class Step(NamedTuple):
    """One step of an event loop."""

    seconds: float
    """Of processor time."""
    what: str


class Tampering:
    """What is wrong with one broker."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Lets a broker look for the files."""
        path = f"{CODE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        return {"PYTHONPATH": path, "BARNABAS_TAMPERED": str(self._folder)}

    def tamper(self, what: What, value: float) -> None:
        """Let something be wrong from now on; 0 puts it right."""
        file = self._folder / what
        if value:
            new = file.with_suffix(".new")
            new.write_text(str(value))
            new.rename(file)  # so that nobody reads half of it
        else:
            file.unlink(missing_ok=True)

    def longest_step(self) -> Step:
        """Of the broker's event loop since it was ready, whenever it was started."""
        found = [Step(0.0, "none")]
        for path in self._folder.glob("step-*"):
            seconds, _, what = path.read_text().partition(" ")
            if what:  # else it was being written when the broker was killed
                found.append(Step(float(seconds), what))
        return max(found)


class Tampered(Cluster):
    """Brokers on this host."""

    def inside(self, broker_id: int) -> Sequence[str]:
        """Start a broker that looks for its files."""
        environment = [f"{name}={value}" for name, value in self._tampering(broker_id).environment.items()]
        return [*super().inside(broker_id), "env", *environment]

    def tamper(self, broker_id: int, what: What, value: float) -> None:
        """Let something be wrong from now on; 0 puts it right."""
        self._tampering(broker_id).tamper(what, value)

    def longest_step(self) -> Step:
        """Of the event loops of all brokers, since each was ready."""
        return max(self._tampering(broker_id).longest_step() for broker_id in self.nodes)

    def _tampering(self, broker_id: int) -> Tampering:
        return Tampering(self.folder / f"tampered-{broker_id}")


class TamperedHosts(Tampered, Hosts):
    """Brokers on hosts of their own."""
