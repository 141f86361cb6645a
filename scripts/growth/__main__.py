"""Prints how a broker grows, a table for each part: the figures of docs/scale.md.

partitions   three brokers with 3,000 to 100,000 partitions of three replicas: creation, memory, start, deaths,
             Metadata, and what a change of one partition costs beside them
connections  10,000 quiet connections to one broker
groups       1,000 groups of 100 members that only send heartbeats, in both protocols
at-rest      100,000 groups with an offset, and 100,000 transactional ids, that nobody uses
listing      10,000 topics in `barnabas topics --list`, and in Metadata
cores        one broker and two, each a process, under the same clients

Brokers run on ports of the system, with their data in a folder that is removed, and are ended with this program. Each
size has bounds of time and memory; one that the machine does not hold is left out, and the program says why.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from scripts.growth import at_rest, connections, cores, groups, listing, partitions
from scripts.growth.tables import Column, table

if TYPE_CHECKING:
    from collections.abc import Iterator

Measure = Callable[[Path, int, Column], None]
"""Measures one size in a folder, with so many bytes of memory at most."""
_INODES_OF_A_REPLICA: Final = 8
_BYTES_OF_A_REPLICA: Final = 32_768


class OutOfTime(Exception):
    """A size took longer than it may."""


@contextmanager
def bounded(minutes: float) -> Iterator[None]:
    """Raise OutOfTime where the block takes longer."""

    def give_up(*_: object) -> NoReturn:
        raise OutOfTime(f"it was not finished within {minutes:g} minutes")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, minutes * 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Run:
    """What the command line allows."""

    def __init__(self, minutes: float, memory: int) -> None:
        self._minutes = minutes
        self._memory = memory

    def part(self, title: str, sizes: dict[str, Measure]) -> None:
        """Measure all sizes of a part, and print its table."""
        columns = []
        for head, measure in sizes.items():
            column = Column(head)
            columns.append(column)
            try:
                with tempfile.TemporaryDirectory(prefix="growth-") as folder, bounded(self._minutes):
                    measure(Path(folder), self._memory, column)
            except OutOfTime as error:
                print(f"  {head}: {error}", flush=True)
        print(f"\n{table(title, columns)}\n", flush=True)

    def partitions(self, wanted: list[int]) -> None:
        """Those sizes that the machine holds."""
        held = [size for size in wanted if self._holds(size)]
        self.part("partitions × 3 replicas", {f"{size:,}": _of_size(partitions.measure, size) for size in held})

    def _holds(self, size: int) -> bool:
        available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        disk = os.statvfs(tempfile.gettempdir())
        replicas = size * partitions.SIZE
        missing = {
            "memory": partitions.bytes_needed(size) > min(available, self._memory),
            "space": replicas * _BYTES_OF_A_REPLICA > shutil.disk_usage(tempfile.gettempdir()).free,
            "files": replicas * _INODES_OF_A_REPLICA > disk.f_favail,
        }
        short = [what for what, is_short in missing.items() if is_short]
        if short:
            print(f"  {size:,} partitions are left out: there may not be enough {' and '.join(short)}", flush=True)
        return not short


def _of_size(measure: Callable[[Path, int, int, Column], None], size: int) -> Measure:
    return lambda folder, memory, column: measure(folder, size, memory, column)


def _of_kind(measure: Callable[[Path, str, int, int, Column], None], kind: str, size: int) -> Measure:
    return lambda folder, memory, column: measure(folder, kind, size, memory, column)


PARTS: Final = ("partitions", "connections", "groups", "at-rest", "listing", "cores")


def main() -> None:
    """Measure the parts that are named, or all."""
    parser = argparse.ArgumentParser(
        "python -m scripts.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="one or several of those above; all without it")
    parser.add_argument("--partitions", type=int, nargs="+", default=[3_000, 10_000, 30_000, 100_000], metavar="N")
    parser.add_argument("--connections", type=int, nargs="+", default=[1_000, 10_000], metavar="N")
    parser.add_argument("--groups", type=int, default=1_000, metavar="N", help=f"of {groups.MEMBERS} members each")
    parser.add_argument("--at-rest", type=int, nargs="+", default=[10_000, 100_000], metavar="N")
    parser.add_argument("--topics", type=int, nargs="+", default=[100, 1_000, 10_000], metavar="N")
    parser.add_argument("--brokers", type=int, nargs="+", default=[1, 2], metavar="N")
    parser.add_argument("--minutes", type=float, default=15.0, help="for each size [15]")
    parser.add_argument("--memory", type=float, default=12.0, metavar="GB", help="for all brokers of a size [12]")
    asked = parser.parse_args()
    unknown = set(asked.parts) - set(PARTS)
    if unknown:
        parser.error(f"there is no part {' or '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that brokers are ended and folders removed
    run = Run(asked.minutes, int(asked.memory * 1e9))
    for part in asked.parts or PARTS:
        if part == "partitions":
            run.partitions(asked.partitions)
        elif part == "connections":
            sizes = dict.fromkeys(connections.possible(size) for size in asked.connections)
            run.part("connections", {f"{size:,}": _of_size(connections.measure, size) for size in sizes})
        elif part == "groups":
            title = f"{asked.groups:,} groups of {groups.MEMBERS} members"
            run.part(title, {kind: _of_kind(groups.measure, kind, asked.groups) for kind in groups.PROTOCOLS})
        elif part == "at-rest":
            kinds = {
                f"{size:,} {kind}": _of_kind(at_rest.measure, kind, size)
                for kind in at_rest.KINDS
                for size in asked.at_rest
            }
            run.part("at rest", kinds)
        elif part == "cores":
            run.part("brokers", {str(count): _of_size(cores.measure, count) for count in asked.brokers})
        else:
            run.part("topics", {f"{size:,}": _of_size(listing.measure, size) for size in asked.topics})


if __name__ == "__main__":
    main()
