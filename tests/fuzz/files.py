"""A stopped data directory with bytes flipped, overwritten or cut in one file: what a start and `log check` make of it.

Neither may fail in a way that nobody planned. What a start then serves is never silently wrong, and nothing more is
lost than was damaged:

- logs whose files were not touched are served whole;
- a log with a damaged index, snapshot or checkpoint of its own is served whole, or refused in words where it is hit;
- a log with a damaged segment is refused as a whole, or served at least up to the damage. After that it ends, or goes
  on with batches of which `log check`, and the CRC or the offset that a consumer looks at, say that they are wrong.

A directory is loaded as it was left by a clean stop, as by a crash, and as by a crash after which everything is read
again (`unread`): then no batch is served whose CRC is wrong. A batch's base offset is not covered by its CRC. Where it
was raised, a start cannot tell that from what compaction leaves; `log check` can, by the batch that follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.clock import SystemClock
from barnabas.metadata.images.loading import load as load_image
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.model.errors import BarnabasError
from barnabas.model.log_config import UNLIMITED, LogConfig
from barnabas.protocol.records.batch import CRC_START, HEADER_SIZE, read_header
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage.check import check
from barnabas.storage.manager import LogManager
from tests.fuzz.rules import BrokenRule, LogWatch
from tests.fuzz.stopped_data import COMPACTED, TREE, build
from tests.support.logs import UnsyncedFiles, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from barnabas.storage.log.log import Log

MODES: Final = ("clean", "crashed", "unread")
CLEAN_STOP: Final = ".kafka_cleanshutdown"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CONFIGS: Final = {
    COMPACTED: LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=UNLIMITED),
    "__consumer_offsets": LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=UNLIMITED),
    "__transaction_state": LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=UNLIMITED),
}

Batches = list[bytes]


class Damage(NamedTuple):
    """What was done to which file; `first` is the first byte that differs."""

    path: Path
    what: str
    first: int


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return f"seed {self.seed}: {self.cases} damaged files: {outcomes}"


def run(directory: Path, count: int, seed: int) -> Figures:
    """Damage `count` files, one at a time; raises BrokenRule."""
    figures, random = Figures(seed), Random(seed)
    original = build(directory)
    expected = _served(_copy(original, directory / "whole"), {})
    assert all(expected.values()), expected
    for number in range(count):
        copy = _copy(original, directory / "copy")
        mode = random.choice(MODES)
        damage = do_damage(copy, random)
        case = (
            f"case {number} of seed {seed}: {damage.what} in {damage.path.relative_to(copy)} at {damage.first}, {mode}"
        )
        figures.cases += 1
        try:
            figures.outcomes[_try(copy, mode, damage, expected)] += 1
        except BrokenRule as error:
            raise BrokenRule(f"{case}: {error}") from error
        except Exception as error:
            raise BrokenRule(f"{case}: {error!r}") from error
    return figures


def _copy(original: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(original, to)
    return to


def do_damage(data: Path, random: Random) -> Damage:
    """Damage one file that is not empty."""
    files = sorted(path for path in data.rglob("*") if path.is_file() and path.stat().st_size)
    by_kind: dict[str, list[Path]] = {}
    for path in files:
        by_kind.setdefault(path.suffix or path.name, []).append(path)
    path = random.choice(by_kind[".log" if random.random() < 0.3 else random.choice(sorted(by_kind))])
    old = path.read_bytes()
    what, new = random.choice(_DAMAGES)(bytearray(old), random)
    path.write_bytes(new)
    first = next((at for at, (before, after) in enumerate(zip(old, new, strict=False)) if before != after), len(new))
    return Damage(path, what, min(first, len(old)))


def _flip(data: bytearray, random: Random) -> tuple[str, bytes]:
    for _ in range(random.choice((1, 1, 3))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return "flipped bits", bytes(data)


def _flip_early(data: bytearray, random: Random) -> tuple[str, bytes]:
    data[random.randrange(min(len(data), 61))] ^= 1 << random.randrange(8)
    return "a flipped bit", bytes(data)


def _cut(data: bytearray, random: Random) -> tuple[str, bytes]:
    del data[random.randrange(len(data)) :]
    return "cut", bytes(data)


def _cut_little(data: bytearray, random: Random) -> tuple[str, bytes]:
    del data[-random.randrange(1, min(len(data), 70) + 1) :]
    return "cut at the end", bytes(data)


def _zero(data: bytearray, random: Random) -> tuple[str, bytes]:
    at = random.randrange(len(data))
    size = min(random.choice((1, 8, 512, 4096)), len(data) - at)
    data[at : at + size] = bytes(size)
    return "zeros", bytes(data)


def _overwrite(data: bytearray, random: Random) -> tuple[str, bytes]:
    at = random.randrange(len(data))
    size = min(random.choice((1, 8, 512)), len(data) - at)
    data[at : at + size] = random.randbytes(size)
    return "noise", bytes(data)


_DAMAGES: Final[tuple[Callable[[bytearray, Random], tuple[str, bytes]], ...]] = (
    _flip,
    _flip_early,
    _cut,
    _cut_little,
    _zero,
    _overwrite,
)


def _try(data: Path, mode: str, damage: Damage, expected: Mapping[str, Batches]) -> str:
    """Check and load a damaged directory; what came of it."""
    if mode != "clean":
        (data / CLEAN_STOP).unlink(missing_ok=True)
    if mode == "unread":
        (data / RECOVERY_POINTS).unlink(missing_ok=True)
    report = check(data)
    if damage.path.name == TREE:
        return asyncio.run(_open_tree(damage.path))
    positions = _positions(damage)
    failures: dict[str, str] = {}
    with LogWatch() as watch:
        watch.errors_are_allowed = True
        served = _served(data, failures)
        watch.check("a start")
    if "*" in failures:
        return "start refused"
    outcome = "served whole"
    for name, batches in expected.items():
        found = served.get(name)
        if found is None:
            raise BrokenRule(f"{name} is not there")
        if found == batches:
            continue
        outcome = _judge(name, found, batches, damage, positions, mode, report.ok, failures.get(name))
    return outcome


def _judge(
    name: str,
    found: Batches,
    expected: Batches,
    damage: Damage,
    before_damage: int,
    mode: str,
    check_ok: bool,
    refusal: str | None,
) -> str:
    """What is not as it was must be explained by the damage."""
    if damage.path.parent.name != name and damage.path.parent.parent.name == "copy":
        raise BrokenRule(f"{name} was not damaged, but has {len(found)} batches of {len(expected)}: {refusal}")
    if refusal is not None and found == expected[: len(found)] and (not found or damage.path.suffix != ".log"):
        return "log refused"
    if damage.path.parent.name != name:
        return _judge_checkpoint(found, expected)
    if damage.path.suffix != ".log":
        raise BrokenRule(f"{name} has {len(found)} of {len(expected)} batches, but no segment was damaged: {refusal}")
    if found[:before_damage] != expected[:before_damage]:
        raise BrokenRule(f"{name} lost batches before the damage: {len(found)} of {before_damage}; {refusal}")
    wrong = [batch for batch in found[before_damage:] if not _is_one_of(batch, expected)]
    if not wrong:
        return "log ends before the damage, or goes on after it"
    if mode == "unread" and any(crc32c(batch[CRC_START:]) != read_header(batch).crc for batch in wrong):
        raise BrokenRule(f"{name} serves a damaged batch although all were read again: {wrong[0][:61].hex()}")
    if check_ok:
        raise BrokenRule(f"{name} serves a damaged batch, and `log check` finds nothing: {wrong[0][:61].hex()}")
    return "damaged batch served, and found by log check"


def _judge_checkpoint(found: Batches, expected: Batches) -> str:
    """A number in a file about all logs was damaged: nothing says so, but no record may be a wrong one."""
    if not all(_is_one_of(batch, expected) for batch in found):
        raise BrokenRule("a checkpoint was damaged, and records are wrong")
    return "checkpoint damaged: fewer batches served"


def _is_one_of(batch: bytes, expected: Batches) -> bool:
    """Whether the batch is one of these, but for the leader epoch, which no CRC covers."""
    return any(batch[:12] == each[:12] and batch[16:] == each[16:] for each in expected)


def _positions(damage: Damage) -> int:
    """How many batches of a damaged segment's log come before the damage."""
    if damage.path.suffix != ".log":
        return 0
    original = damage.path.parents[2] / "data" / damage.path.parent.name
    count = 0
    for path in sorted(original.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            size = read_header(data, position).size
            if path.name == damage.path.name and position + size > damage.first:
                return count
            count, position = count + 1, position + size
        if path.name == damage.path.name:
            return count
    return count


def _served(data: Path, failures: dict[str, str]) -> dict[str, Batches]:
    """The batches of every log by its directory's name; `failures` says which were refused, "*" for all of them."""
    manager = LogManager(
        [data],
        clock=SystemClock(),
        default_config=LogConfig(retention_ms=UNLIMITED),
        files=UnsyncedFiles(),
        max_open_files=200,
    )
    try:
        cluster_id = manager.stored_cluster_id()
        manager.load(broker_id=1, cluster_id=cluster_id or "none", configs=CONFIGS)
    except BarnabasError as error:
        failures["*"] = str(error)
        return {}
    try:
        return {str(log.tp): _batches(log, failures) for log in manager.logs()}
    finally:
        for log in manager.logs():
            log.abandon()
        manager.close()


def _batches(log: Log, failures: dict[str, str]) -> Batches:
    batches: Batches = []
    offset = log.log_start_offset
    try:
        log.open()
        while offset < log.log_end_offset:
            found = _whole_batches(read_bytes(log, offset))
            if not found:
                failures[str(log.tp)] = f"nothing can be read at {offset}"
                break
            batches += found
            after = read_header(found[-1]).last_offset + 1
            if after <= offset:
                failures[str(log.tp)] = f"the batch at {offset} ends before it begins"
                break
            offset = after
    except BarnabasError as error:
        failures[str(log.tp)] = str(error)
    return batches


def _whole_batches(data: bytes) -> Batches:
    """The batches in what was read, up to one whose length cannot be."""
    batches = []
    position = 0
    while len(data) - position >= HEADER_SIZE:
        size = read_header(data, position).size
        if not HEADER_SIZE <= size <= len(data) - position:
            break
        batches.append(data[position : position + size])
        position += size
    return batches


async def _open_tree(path: Path) -> str:
    store = SqliteStore(path)
    try:
        await store.start()
        await load_image(store)
    except BarnabasError as error:
        if "SqliteStore" in str(error) or not str(error):
            raise BrokenRule(f"the tree is refused without words: {error!r}") from error
        return "metadata tree refused"
    finally:
        with contextlib.suppress(BarnabasError):
            await store.close()
    return "metadata tree read"
