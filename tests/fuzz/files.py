"""A stopped data directory with bytes flipped, overwritten or cut in one file: what a start and `log check` make of it.

Neither may fail in a way that nobody planned. What a start then serves is never silently wrong, and nothing more is
lost than was damaged (`losses` is the judge).

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
from typing import TYPE_CHECKING, Final

from barnabas.broker.clock import SystemClock
from barnabas.metadata.images.loading import load as load_image
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.model.errors import BarnabasError
from barnabas.model.log_config import UNLIMITED, LogConfig
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.storage.check import check
from barnabas.storage.log.retention import expired_segments
from barnabas.storage.manager import LogManager
from tests.fuzz.broker import running_broker
from tests.fuzz.losses import Case, Damage, Served, Stored, aborted, judge, segments, stored
from tests.fuzz.rules import BrokenRule, LogWatch
from tests.fuzz.stopped_data import COMPACTED, SETTINGS, TREE, build
from tests.support.logs import UnsyncedFiles, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from barnabas.storage.log.log import Log

MODES: Final = ("clean", "crashed", "unread")
STARTED: Final = 10
"""On one of so many directories a whole broker is started, and stopped, before its logs are read."""
CLEAN_STOP: Final = ".kafka_cleanshutdown"
RETENTION_MS: Final = 86_400_000
"""What is damaged here was written a few seconds ago, so nothing is to be removed."""
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
CONFIGS: Final = {
    COMPACTED: LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=UNLIMITED),
    "__consumer_offsets": LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=UNLIMITED),
    "__transaction_state": LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=UNLIMITED),
}

Batches = list[bytes]


@dataclass
class Figures:
    """What a run saw."""

    seed: int
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return f"seed {self.seed}: {self.cases} damaged files: {outcomes}"


@dataclass(frozen=True)
class Original:
    """What the directory has before it is damaged."""

    stored: Mapping[str, Sequence[Stored]]
    aborted: Mapping[str, Sequence[tuple[int, ...]]]

    @classmethod
    def of(cls, data: Path) -> Original:
        """Read a directory that is whole."""
        found = stored(data)
        return cls(found, {name: aborted(data, name) for name in found})


def run(directory: Path, count: int, seed: int) -> Figures:
    """Damage `count` files, one at a time; raises BrokenRule."""
    figures, random = Figures(seed), Random(seed)
    data = build(directory)
    original = Original.of(data)
    _check_whole(_copy(data, directory / "whole"), original)
    for number in range(count):
        copy = _copy(data, directory / "copy")
        mode = random.choice(MODES)
        damage = do_damage(copy, random)
        starts = number % STARTED == 0
        case = (
            f"case {number} of seed {seed}: {damage.what} in {damage.path.relative_to(copy)} at {damage.first}, {mode}"
            f"{', started' if starts else ''}"
        )
        figures.cases += 1
        try:
            figures.outcomes[try_damaged(copy, mode, damage, original, starts=starts)] += 1
        except BrokenRule as error:
            raise BrokenRule(f"{case}: {error}") from error
        except Exception as error:
            raise BrokenRule(f"{case}: {error!r}") from error
    return figures


def _check_whole(data: Path, original: Original) -> None:
    """What nobody has damaged is served whole."""
    assert check(data).ok
    served = read_logs(data, original.stored, {})
    for name, batches in original.stored.items():
        assert [each.batch for each in batches] == served[name].batches == list(served[name].sought.values()), name
        assert original.aborted[name] == served[name].aborted, name
    assert any(original.aborted.values())


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
    while new == old:
        what, new = random.choice(_DAMAGES)(bytearray(old), random)
    path.write_bytes(new)
    return Damage(path, what, _differences(old, new))


def _differences(old: bytes, new: bytes) -> tuple[range, ...]:
    """The bytes that are not what they were; never none of them."""
    parts = [range(at, at + 1) for at, (before, after) in enumerate(zip(old, new, strict=False)) if before != after]
    return (*parts, range(len(new), len(old))) if len(new) < len(old) else tuple(parts)


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


def try_damaged(copy: Path, mode: str, damage: Damage, original: Original, *, starts: bool) -> str:
    """Check and load a damaged directory; what came of it. `starts`: a broker is started on it before."""
    if mode != "clean":
        (copy / CLEAN_STOP).unlink(missing_ok=True)
    if mode == "unread":
        (copy / RECOVERY_POINTS).unlink(missing_ok=True)
    case = Case(copy, mode, damage, check(copy), is_started=starts, before=segments(copy, copy))
    if damage.path.name == TREE and not starts:
        return asyncio.run(_open_tree(damage.path))
    failures: dict[str, str] = {}
    with LogWatch() as watch:
        watch.errors_are_allowed = True
        refusal = asyncio.run(_start(copy)) if starts else None
        served = {} if refusal is not None else read_logs(copy, original.stored, failures)
        watch.check("a start")
    if refusal is not None or "*" in failures:
        if segments(copy, copy) != case.before:
            raise BrokenRule(f"a start was refused, and has changed segments: {refusal or failures['*']}")
        return "start refused"
    case.said = watch.said
    outcomes = set()
    for name, batches in original.stored.items():
        if name not in served:
            raise BrokenRule(f"{name} is not there")
        outcomes.add(judge(case, name, served[name], batches, original.aborted[name]))
    return "; ".join(sorted(outcomes - {"served whole"})) or "served whole"


async def _start(data: Path) -> str | None:
    """Start a broker, as `barnabas start` does, and stop it; why it refuses to start, if it does."""
    tree = data.with_name(f"{data.name}.metadata")
    for each in data.parent.glob(f"{tree.name}*"):  # with its write-ahead log, and a folder of locks
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    shutil.copy(data / TREE, tree)
    try:
        async with running_broker(data.parent, {**SETTINGS, "log.dirs": str(data), "log.cleaner.enable": "false"}):
            return None
    except BarnabasError as error:
        return str(error)


def read_logs(data: Path, stored: Mapping[str, Sequence[Stored]], failures: dict[str, str]) -> dict[str, Served]:
    """What readers get of every log, by its directory's name; `failures` has "*" where nothing is loaded."""
    manager = LogManager(
        [data],
        clock=SystemClock(),
        default_config=LogConfig(retention_ms=RETENTION_MS),
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
        return {str(log.tp): _read_log(log, stored.get(str(log.tp), ())) for log in manager.logs()}
    finally:
        for log in manager.logs():
            log.abandon()
        manager.close()


def _read_log(log: Log, stored: Sequence[Stored]) -> Served:
    served = Served()
    try:
        log.open()
        served.expired = expired_segments(log, log.store.clock.now_ms()).count
        served.aborted = [tuple(entry) for segment in log.segments for entry in segment.txn_index.entries()]
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = _whole_batches(read_bytes(log, offset))
            if not found:
                served.refusal = f"nothing can be read at {offset}"
                break
            served.batches += found
            after = read_header(found[-1]).last_offset + 1
            if after <= offset:
                served.refusal = f"the batch at {offset} ends before it begins"
                break
            offset = after
    except BarnabasError as error:
        served.refusal = str(error)
    for each in stored:
        try:
            served.sought[each.offset] = _whole_batches(read_bytes(log, each.offset))[0]
        except IndexError:
            served.refused[each.offset] = "no batch in the answer"
        except BarnabasError as error:
            served.refused[each.offset] = str(error)
    return served


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
