"""Stories of logs: written, followed, truncated, cleaned, recovered and deleted.

Each keeps beside its log what was acknowledged. What survives a power loss for certain is what lies before the log's
recovery point; everything else survives unless the power is lost.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import StartupError, StorageFailed
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.protocol.records.records import Record
from tests.failing_calls.files import FailingFiles
from tests.support.committed import committed, values_of
from tests.support.logs import NOW, TOPIC_ID, TP, batch, oldest, stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from barnabas.storage.log.log import Log
    from tests.failing_calls.story import Story

from tests.failing_calls.cleaner_stories import Cleaned
from tests.failing_calls.log_story import (
    ANOTHER_ID,
    FIRST,
    IDEMPOTENT,
    OTHER,
    PLAIN,
    SECOND,
    TRIES,
    LogStory,
)


class Sent(NamedTuple):
    """A batch that was acknowledged."""

    base_offset: int
    last_offset: int
    producer: int
    value: bytes
    marker: ControlType | None = None


class Written(LogStory):
    """Records of plain, idempotent and transactional producers, markers, segments, flushes, checkpoints, retention.

    Readers of committed data see all that was committed, and nothing of what was aborted.
    """

    def __init__(self, root: Path, files: FailingFiles) -> None:
        super().__init__(root, files)
        self.history: list[Sent] = []
        self.certain = 0
        self._epoch = 0
        self._values: set[bytes] = set()
        self._count = 0

    def prepare(self) -> None:
        """See Story."""
        self.manager.create(TP, TOPIC_ID, self.config)
        self.stop()
        self.start()

    def steps(self) -> Sequence[Callable[[], object]]:
        """See LogStory."""
        return [
            *(lambda each=each: self.send(each) for each in (PLAIN, IDEMPOTENT, FIRST, SECOND)),
            lambda: self.end(FIRST, ControlType.ABORT),
            lambda: self.send(PLAIN),
            self.flush,
            lambda: self.send(FIRST),
            self.manager.checkpoint,
            self._next_epoch,
            *(lambda each=each: self.send(each) for each in (IDEMPOTENT, PLAIN, FIRST)),
            self.manager.drain,
            lambda: self.end(SECOND, ControlType.ABORT),
            lambda: self.end(FIRST, ControlType.COMMIT),
            lambda: self.send(IDEMPOTENT),
            self._expire,
            lambda: self.send(SECOND),
            self.manager.drain,
            lambda: self.end(SECOND, ControlType.ABORT),
            self.manager.checkpoint,
            *(lambda each=each: self.send(each) for each in (PLAIN, FIRST)),
            self.flush,
            lambda: self.end(FIRST, ControlType.ABORT),
            *[self._send_large, *[lambda: self.send(PLAIN), self.flush] * 2] * 2,
        ]

    def _send_large(self) -> None:
        """A batch that needs a new segment, of a client that does not try again."""
        with suppress(StorageFailed):
            self.send(PLAIN, b"." * 250)

    def send(self, producer: int, padding: bytes = b"") -> None:
        """A batch of a producer, with what comes next of it."""
        sequence = sum(2 for each in self.history if each.producer == producer and each.marker is None)
        self._count += 1
        value = b"%d of %d%b" % (self._count, producer, padding)
        self._values.add(value)
        records = [Record(0, 0, None, value), Record(1, 0, None, value)]
        if producer == PLAIN:
            data = build_batch(records, base_timestamp=NOW)
        else:
            data = build_batch(
                records,
                base_timestamp=NOW,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=producer in (FIRST, SECOND),
            )
        info = self.log.append(data, self._epoch, NOW)
        assert not info.duplicate
        self._acknowledged(Sent(info.base_offset, info.last_offset, producer, value))

    def end(self, producer: int, kind: ControlType) -> None:
        """The marker of a transaction."""
        marker = build_marker(EndOfTransaction(kind, 0), timestamp=NOW, producer_id=producer, producer_epoch=0)
        info = self.log.append(marker, self._epoch, NOW)
        self._acknowledged(Sent(info.base_offset, info.last_offset, producer, b"", kind))

    def _acknowledged(self, sent: Sent) -> None:
        assert not self.history or sent.base_offset > self.history[-1].last_offset, "an offset is used twice"
        self.history.append(sent)
        self.log.high_watermark = self.log.log_end_offset
        self._note_certain()

    def _note_certain(self) -> None:
        self.certain = max(self.certain, self.log.recovery_point)

    def _next_epoch(self) -> None:
        self._epoch += 1

    def flush(self) -> None:
        """Everything to the disk."""
        self.log.flush()
        assert self.log.recovery_point == self.log.log_end_offset
        self._note_certain()

    def _expire(self) -> None:
        if len(self.log.segments) > 2:
            self.log.remove_segments(oldest(self.log, 1), NOW)

    def start(self, *, lost_power: bool = False) -> None:
        """See Story."""
        super().start()
        log = self.log
        assert log.log_end_offset >= self.certain, "what was synced is lost"
        if lost_power:
            self.history = [each for each in self.history if each.last_offset < log.log_end_offset]
        log.high_watermark = log.log_end_offset
        self._note_certain()

    def check(self) -> None:
        """See Story."""
        log = self.log
        self._note_certain()
        found: dict[int, bytes] = {}
        for each in stored(log):
            found.update(values_of(each))
        start = log.log_start_offset
        fates = self._fates()
        wanted = {offset: each.value for each, offset in self._records() if offset >= start and each.marker is None}
        assert wanted.items() <= found.items(), "an acknowledged record is lost"
        assert set(found.values()) <= self._values
        stable = log.last_stable_offset(log.log_end_offset)
        seen = committed(log, stable)
        aborted = {offset for offset, fate in fates.items() if fate is ControlType.ABORT}
        assert not seen & aborted, "an aborted record is read as committed"
        assert {offset for offset in wanted.keys() - aborted if offset < stable} <= seen
        assert all(stable <= offset for offset, fate in fates.items() if fate is None and offset >= start)

    def _records(self) -> list[tuple[Sent, int]]:
        return [(each, offset) for each in self.history for offset in range(each.base_offset, each.last_offset + 1)]

    def _fates(self) -> dict[int, ControlType | None]:
        """What became of the records of transactions; None while they are open."""
        fates: dict[int, ControlType | None] = {}
        for each, offset in self._records():
            if each.marker is not None:
                begun = [at for at, fate in fates.items() if fate is None and self._producer_of(at) == each.producer]
                fates.update(dict.fromkeys(begun, each.marker))
            elif each.producer in (FIRST, SECOND):
                fates[offset] = None
        return fates

    def _producer_of(self, offset: int) -> int:
        return next(each.producer for each in self.history if each.base_offset <= offset <= each.last_offset)

    def go_on(self) -> None:
        """Producers go on where they were, and open transactions end."""
        for producer in (IDEMPOTENT, FIRST, PLAIN):
            self.send(producer)
            self.send(producer)
        fates = self._fates()
        for producer in sorted({self._producer_of(offset) for offset, fate in fates.items() if fate is None}):
            self.end(producer, ControlType.ABORT)
        self.flush()
        self.manager.checkpoint()


class WrittenAtOnce(Written):
    """As `Written`; what is to be done in the background is done after each step, and not only now and then."""

    def attempt(self, step: Callable[[], object]) -> None:
        """See LogStory."""
        super().attempt(step)
        self.manager.drain()


class Followed(LogStory):
    """A follower copies what its leader has, three batches at a time."""

    def __init__(self, root: Path, files: FailingFiles) -> None:
        self.taken = 0
        self.certain = 0
        super().__init__(root, files)

    def prepare(self) -> None:
        """See Story; the leader's log is that of `Written`, beside this one and on a disk that does not fail."""
        where = self.root.with_name(f"{self.root.name}-leader")
        where.mkdir()
        leader = Written(where, FailingFiles(where))
        leader.prepare()
        leader.tell()
        leader.go_on()
        self.sent = stored(leader.log)
        self.committed = committed(leader.log, leader.log.log_end_offset)
        self.ends = leader.log.producers.ends()
        leader.stop()
        self.manager.create(TP, TOPIC_ID, self.config)

    def steps(self) -> Sequence[Callable[[], object]]:
        """See LogStory."""
        return [self._copy_next] * (-(-len(self.sent) // 3) + 1)

    def _copy_next(self) -> None:
        rest = [each for each in self.sent if read_header(each).base_offset >= self.log.log_end_offset]
        if rest:
            self.log.append_replica(b"".join(rest[:3]), now_ms=NOW)
            self.taken = max(self.taken, len(self.sent) - len(rest[3:]))
        self.manager.drain()
        self.certain = max(self.certain, self.log.recovery_point)

    def check(self) -> None:
        """See Story."""
        there = stored(self.log)
        assert there == self.sent[len(self.sent) - len(there) :][: len(there)] or there == self.sent[: len(there)]
        assert len(there) >= self.taken

    def start(self, *, lost_power: bool = False) -> None:
        """See Story; the broker makes its log if there is none, as it may be after a power loss."""
        super().start()
        self.manager.create(TP, TOPIC_ID, self.config)
        assert self.log.log_end_offset >= self.certain, "what was synced is lost"
        if lost_power:
            self.taken = min(self.taken, len(stored(self.log)))

    def go_on(self) -> None:
        """The rest is copied, and says the same as the leader's."""
        for step in self.steps():
            step()
        assert stored(self.log) == self.sent
        assert committed(self.log, self.log.log_end_offset) == self.committed
        assert self.log.producers.ends() == self.ends
        self.log.high_watermark = self.log.log_end_offset


class Truncated(LogStory):
    """A follower's log of epoch 1 is cut, and goes on in epoch 2: what was cut never comes behind what came then."""

    def __init__(self, cut: Callable[[Log], None], begin: int, root: Path, files: FailingFiles) -> None:
        self._cut = cut
        self._begin = begin
        self._first: list[bytes] = []
        """What the log has of epoch 2 as soon as it is cut."""
        self._is_cut = False
        self._new: list[bytes] = []
        self._certain = 0
        super().__init__(root, files)

    def prepare(self) -> None:
        """A log from 12 to 40, on disk."""
        log = self.manager.create(TP, TOPIC_ID, self.config)
        for number in range(20):
            log.append(batch(2, size=60, producer_id=1, sequence=2 * number), leader_epoch=1, now_ms=NOW)
        log.high_watermark = 40
        log.delete_records_before(12)
        self.manager.retention_pass(NOW)
        log.flush()
        self.manager.checkpoint()
        self.manager.pool.close_idle()
        self._old = stored(log)
        self._kept = [data for data in self._old if read_header(data).last_offset < self._begin < 40]

    def steps(self) -> Sequence[Callable[[], object]]:
        """See LogStory."""
        return [self._truncate, *[self._write] * 5, self._flush, self.manager.checkpoint]

    def _truncate(self) -> None:
        self._cut(self.log)
        self._is_cut = True
        assert self.log.log_end_offset == self._begin

    def _write(self) -> None:
        data = batch(2, size=60, producer_id=2, sequence=2 * len(self._new))
        info = self.log.append(data, leader_epoch=2, now_ms=NOW)
        self._new.append(info.base_offset.to_bytes(8, "big") + data[8:12] + (2).to_bytes(4, "big") + data[16:])
        self.manager.drain()

    def _flush(self) -> None:
        self.log.flush()
        self._certain = self.log.recovery_point

    def check(self) -> None:
        """See Story."""
        found = stored(self.log)
        epochs = [read_header(data).leader_epoch for data in found]
        assert epochs == sorted(epochs), "the old comes after the new"
        cut = epochs.count(1)
        if self._is_cut:
            assert found[:cut] == self._kept
            assert found[cut:] == self._first + self._new
        else:
            assert found[cut:] == self._first[: len(found) - cut]
            assert found[: len(self._kept)] == self._kept or not found
            assert found[:cut] == self._kept or not found[cut:]
        for data in found:
            header = read_header(data)
            assert self.log.epoch_at(max(header.base_offset, self.log.log_start_offset)) == header.leader_epoch

    def start(self, *, lost_power: bool = False) -> None:
        """See Story."""
        super().start()
        log = self.log
        assert log.log_end_offset >= self._certain, "what was synced is lost"
        if lost_power and self._is_cut:
            count = sum(read_header(data).leader_epoch == 2 for data in stored(log))
            self._new = self._new[: max(count - len(self._first), 0)]
            self._is_cut = count > 0 or log.log_end_offset == self._begin
            self._is_cut &= count >= len(self._first)

    def go_on(self) -> None:
        """The cut is made, if it was not, and the log goes on."""
        if not self._is_cut:
            self._truncate()
        self._write()
        self._write()
        self._flush()


class BegunWithin(Truncated):
    """As `Truncated`; the log begins anew with a batch that its leader's log starts within, and with the next one."""

    def __init__(self, base_offset: int, root: Path, files: FailingFiles) -> None:
        self._start = base_offset + 2
        super().__init__(self._start_within, base_offset + 9, root, files)
        for offset, data in ((base_offset, batch(5, size=60)), (base_offset + 5, batch(4, size=60))):
            self._first.append(offset.to_bytes(8, "big") + data[8:12] + (2).to_bytes(4, "big") + data[16:])

    def _start_within(self, log: Log) -> None:
        if log.log_end_offset != self._start:
            log.truncate_fully(self._start)
        log.start_within(b"".join(self._first), now_ms=NOW)
        assert log.log_start_offset == log.high_watermark == self._start

    def check(self) -> None:
        """See Story; where an empty log begins anew and that breaks off, there is nothing to read until a restart."""
        if self._is_cut or not self.needs_restart:
            super().check()


class Loaded(Written):
    """The broker is started: after kill -9, or after a clean stop, when logs are read as they are first used."""

    def __init__(self, clean: bool, root: Path, files: FailingFiles) -> None:
        super().__init__(root, files)
        self._clean = clean

    def prepare(self) -> None:
        """See Story."""
        super().prepare()
        for step in super().steps():
            step()
        self.send(PLAIN)
        if self._clean:
            self.stop()
        else:
            self.files.kill()

    def tell(self) -> None:
        """A service starts a broker again that could not start."""
        for _ in range(TRIES):
            try:
                self.start()
                break
            except (StartupError, StorageFailed):
                continue
        else:
            raise AssertionError("it does not start any more")
        super().tell()

    def steps(self) -> Sequence[Callable[[], object]]:
        """See LogStory."""
        return [self.check, lambda: self.send(IDEMPOTENT), self.flush, self.manager.checkpoint]


class Deleted(LogStory):
    """A topic is deleted and made again under its name; another one stays as it is."""

    def __init__(self, root: Path, files: FailingFiles) -> None:
        self._kept: list[bytes] = []
        self._new: list[bytes] = []
        self._is_restarted = False
        super().__init__(root, files)

    def prepare(self) -> None:
        """See Story."""
        log, other = (self.manager.create(tp, TOPIC_ID, self.config) for tp in (TP, OTHER))
        for number in range(12):
            log.append(batch(2, size=60, producer_id=1, sequence=2 * number), leader_epoch=0, now_ms=NOW)
            other.append(batch(2, size=50, producer_id=1, sequence=2 * number), leader_epoch=0, now_ms=NOW)
        for each in (log, other):
            each.high_watermark = each.log_end_offset
            each.flush()
        self.manager.drain()
        self.manager.checkpoint()
        self.manager.pool.close_idle()
        self._kept, self._old = stored(other), set(stored(log))

    def steps(self) -> Sequence[Callable[[], object]]:
        """See LogStory."""
        return [self._delete, self._empty_trash, self._make, *[self._write] * 3, self.manager.checkpoint]

    def _delete(self) -> None:
        log = self.manager.get(TP)
        if log is not None and log.topic_id == TOPIC_ID:
            self.manager.set_aside(log)
        self._delete_strays()

    def _delete_strays(self) -> None:
        for stray in self.manager.strays():
            assert stray.topic_id == TOPIC_ID
            self.manager.delete_stray(stray)

    def _empty_trash(self) -> None:
        self.manager.delete_due(self.clock.now_ms() + 10**9)

    def _make(self) -> None:
        self.manager.create(TP, ANOTHER_ID, self.config)

    def _write(self) -> None:
        data = batch(2, size=60, producer_id=2, sequence=2 * len(self._new))
        info = self.log.append(data, leader_epoch=0, now_ms=NOW)
        self._new.append(info.base_offset.to_bytes(8, "big") + data[8:12] + bytes(4) + data[16:])
        self.log.high_watermark = self.log.log_end_offset

    def check(self) -> None:
        """See Story."""
        other, log = self.manager.get(OTHER), self.manager.get(TP)
        assert other is not None
        assert stored(other) == self._kept
        if log is not None and log.topic_id != TOPIC_ID:
            assert stored(log) == self._new
        else:
            assert not self._new, "the new topic's records are lost"

    def start(self, *, lost_power: bool = False) -> None:
        """See Story. A power loss may take the new topic's id and leave records, which are still that topic's."""
        super().start()
        self._is_restarted = True
        if lost_power:
            log = self.manager.get(TP)
            is_new = log is not None and log.topic_id != TOPIC_ID
            self._new = self._new[: len(stored(self.log))] if is_new else []

    def go_on(self) -> None:
        """The topic is made, if it was not; after a restart nothing is left of the old one."""
        self._make()
        self._write()
        self.log.flush()
        self.manager.checkpoint()
        self._delete_strays()
        self._empty_trash()
        left = {path.name for path in self.root.iterdir() if path.is_dir()}
        assert not self._is_restarted or left == {str(TP), str(OTHER)}, left


STORIES: Final[Mapping[str, Callable[[Path, FailingFiles], Story]]] = {
    "written": Written,
    "written, background work at once": WrittenAtOnce,
    "followed": Followed,
    "truncated inside a segment": partial(Truncated, lambda log: log.truncate_to(21), 20),
    "truncated to its start": partial(Truncated, lambda log: log.truncate_to(12), 12),
    "truncated before its start": partial(Truncated, lambda log: log.truncate_to(4), 4),
    "begun anew after its end": partial(Truncated, lambda log: log.truncate_fully(90), 90),
    "begun anew within a batch": partial(BegunWithin, 90),
    "begun anew around its end": partial(BegunWithin, 38),
    "cleaned": partial(Cleaned, 0),
    "cleaned, with other sizes": partial(Cleaned, 2),
    "loaded after a clean stop": partial(Loaded, True),
    "recovered after kill -9": partial(Loaded, False),
    "deleted": Deleted,
}
