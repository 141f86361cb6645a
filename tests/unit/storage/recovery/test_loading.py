from __future__ import annotations

import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import CorruptMessage, StartupError, StorageFailed
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.files import FileSystem
from barnabas.storage.log.log import Log
from tests.support.logs import (
    NOW,
    SMALL,
    TP,
    UnsyncedFiles,
    append,
    batch,
    new_log,
    read_bytes,
    recovered,
    reopened,
    split,
    store,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

SIZE = len(batch(2, size=100))


class CountingFiles(UnsyncedFiles):
    """Counts what is read of log files."""

    def __init__(self) -> None:
        self.read_from: dict[str, int] = {}
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, create: bool = False) -> int:
        fd = super().open(path, create=create)
        self._paths[fd] = path
        return fd

    def read(self, fd: int, size: int, position: int) -> bytes:
        data = super().read(fd, size, position)
        name = self._paths[fd].rpartition("/")[2]
        self.read_from[name] = self.read_from.get(name, 0) + len(data)
        return data


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Ten segments of three batches of two records."""
    log = new_log(tmp_path, SMALL)
    for number in range(30):
        append(log, batch(2, size=100, producer_id=1, sequence=2 * number, timestamp=NOW + number))
    assert len(log.segments) == 10
    return log


def file(log: Log, base: int, suffix: str = "log") -> Path:
    return log.directory / f"{base:020d}.{suffix}"


def damage(path: Path, position: int, data: bytes = b"\xff") -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_only_segments_from_the_recovery_point_on_are_read(log: Log) -> None:
    log.flush(up_to=31)
    files = CountingFiles()
    again = recovered(log, files)
    assert again.log_end_offset == 60
    bases = {int(name[:20]) for name, count in files.read_from.items() if name.endswith(".log") and count}
    assert bases == {30, 36, 42, 48, 54}


def test_after_a_clean_stop_only_ends_are_read(log: Log) -> None:
    before = stored(log)
    files = CountingFiles()
    again = reopened(log, files)
    again.open()
    assert {name for name in files.read_from if name.endswith(".log")} == {f"{54:020d}.log"}
    assert stored(again) == before


@pytest.mark.parametrize("position", [0, 8, 11, 16, 17, 25, 61, SIZE - 1])
def test_the_first_bad_byte_ends_the_log(log: Log, position: int, caplog: pytest.LogCaptureFixture) -> None:
    before = stored(log)
    log.abandon()
    damage(file(log, 18), SIZE + position)

    again = recovered(log)

    assert stored(again) == before[:10]
    assert again.log_end_offset == 20
    assert [segment.base_offset for segment in again.segments] == [0, 6, 12, 18]
    assert "to offset 20" in caplog.text
    assert "Removed 6 later segments" in caplog.text
    assert not file(log, 24).exists()
    assert not file(log, 24, "index").exists()
    assert append(again, batch(2, producer_id=1, sequence=20)) == [20]


@pytest.mark.parametrize("left", [1, 30, 61, SIZE - 1])
def test_a_torn_tail_is_cut(log: Log, left: int) -> None:
    before = stored(log)
    log.abandon()
    file(log, 54).write_bytes(file(log, 54).read_bytes()[: 2 * SIZE + left])
    again = recovered(log)
    assert stored(again) == before[:29]
    assert again.segments[-1].size == 2 * SIZE


def test_a_segment_that_lost_its_tail_ends_the_log(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    before = stored(log)
    log.abandon()
    file(log, 12).write_bytes(file(log, 12).read_bytes()[: 2 * SIZE])
    again = recovered(log)
    assert stored(again) == before[:8]
    assert "begins at offset 18, but the log before it ends at 16" in caplog.text


@pytest.mark.parametrize(("cleaned_to", "end"), [(18, 60), (17, 16), (None, 16)])
def test_kafkas_cleaner_may_have_left_gaps(log: Log, cleaned_to: int | None, end: int) -> None:
    log.cleaned_to = cleaned_to
    log.abandon()
    file(log, 12).write_bytes(file(log, 12).read_bytes()[: 2 * SIZE])
    assert recovered(log).log_end_offset == end


def test_offsets_that_go_back_end_the_log(log: Log) -> None:
    log.abandon()
    damage(file(log, 54), SIZE, (3).to_bytes(8, "big"))
    again = recovered(log)
    assert again.log_end_offset == 56


@pytest.mark.parametrize("position", [0, SIZE])
def test_a_batch_whose_offset_was_raised_hides_nothing_that_was_on_disk(log: Log, position: int) -> None:
    """The base offset is not covered by the CRC. What comes behind was cut, since its offsets go back."""
    log.flush()
    log.abandon()
    damage(file(log, 54), position + 5, b"\x01")
    before = file(log, 54).read_bytes()
    again = recovered(log)
    assert again.torn is not None
    assert f"its records end at {54 + 2 * position // SIZE}" in str(again.torn)
    assert file(log, 54).read_bytes() == before


@pytest.mark.parametrize("position", [0, SIZE])
def test_a_batch_whose_offset_was_raised_ends_a_log_that_was_not_on_disk(log: Log, position: int) -> None:
    """It is not kept, so that the log does not go on at that offset."""
    log.abandon()
    damage(file(log, 54), position + 5, b"\x01")
    assert recovered(log).log_end_offset == 54 + 2 * position // SIZE


def test_a_gap_that_nothing_contradicts_stays(log: Log) -> None:
    log.abandon()
    damage(file(log, 54), 2 * SIZE, (80).to_bytes(8, "big"))
    assert recovered(log).log_end_offset == 82


def test_indexes_are_rebuilt(log: Log) -> None:
    log.flush()
    expected = {path.name: path.read_bytes() for path in log.directory.iterdir() if path.name.endswith("index")}
    log.recovery_point = 0
    log.abandon()
    for path in log.directory.iterdir():
        if path.name.endswith("index"):
            path.write_bytes(b"nonsense" * 100)
    again = recovered(log)
    for offset in range(60):
        assert split(read_bytes(again, offset, 1))
    again.close()
    for name, content in expected.items():
        assert (log.directory / name).read_bytes() == content, name


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("base", [6, 54])
def test_a_missing_or_damaged_index_is_made_anew_after_a_clean_stop(log: Log, base: int, suffix: str) -> None:
    before = stored(log)
    log.close()
    content = file(log, base, suffix).read_bytes()
    file(log, base, suffix).unlink()
    again = reopened(log)
    assert stored(again) == before
    again.close()
    assert file(log, base, suffix).read_bytes() == content
    file(log, base, suffix).write_bytes(b"12345")
    again = reopened(again)
    assert stored(again) == before
    again.close()
    assert file(log, base, suffix).read_bytes() == content


@pytest.mark.parametrize(
    "tear",
    [
        lambda data: data[:-1],
        lambda data: data[:-SIZE],
        lambda data: data[: SIZE // 2],
        lambda data: b"",
        lambda data: data[: 2 * SIZE] + bytes(len(data) - 2 * SIZE),
    ],
)
def test_a_log_whose_end_is_missing_after_a_clean_stop_is_not_served(log: Log, tear: Callable[[bytes], bytes]) -> None:
    log.close()
    path = file(log, 54)
    whole = path.read_bytes()
    path.write_bytes(tear(whole))
    again = reopened(log)
    for _ in range(2):
        with pytest.raises(StorageFailed, match=r"closed at offset 60, but its records end at 5") as caught:
            append(again, batch())
        assert caught.value.remedy == Remedy(RemedyKind.ACCEPT_LOSS, str(path.parents[1]))
    assert again.is_failed
    again.close()
    assert path.read_bytes() == tear(whole)
    path.write_bytes(whole)
    assert append(reopened(again), batch()) == [60]


def test_a_log_without_its_segments_is_not_served(log: Log) -> None:
    log.close()
    for path in log.directory.glob("*.log"):
        path.unlink()
    with pytest.raises(StorageFailed, match="closed at offset 60, but its records end at 0: it has no segment"):
        append(reopened(log), batch())


@pytest.mark.parametrize("garbage", [bytes(SIZE), b"\xff" * 10, b"\x00" * 70])
def test_what_follows_the_end_after_a_clean_stop_is_cut(
    log: Log, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    before = stored(log)
    log.close()
    path = file(log, 54)
    whole = path.read_bytes()
    path.write_bytes(whole + garbage)
    again = reopened(log)
    assert stored(again) == before
    assert path.read_bytes() == whole
    assert "was closed cleanly, but is damaged" in caplog.text
    assert append(again, batch()) == [60]


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("lost", [None, lambda data: b"", lambda data: data[:-12], lambda data: bytes(len(data))])
def test_indexes_that_were_sealed_just_before_the_crash_are_made_good(
    log: Log, suffix: str, lost: Callable[[bytes], bytes] | None
) -> None:
    log.flush()
    append(log, batch(2, size=100, timestamp=NOW + 100))
    assert (log.recovery_point, log.segments[-1].base_offset) == (60, 60)
    if lost is not None:  # they were written, and not synced
        log.segments[-2].finish_indexes()
        path = file(log, 54, suffix)
        path.write_bytes(lost(path.read_bytes()))
    log.abandon()

    again = recovered(log)

    assert again.offset_for_time(NOW + 29, up_to=62) == (NOW + 29, 57, 0)
    assert again.segments[-2].largest_timestamp.timestamp == NOW + 30
    assert not again.segments[-2].synced
    again.flush()
    assert again.segments[-2].synced


class RollingFiles(UnsyncedFiles):
    """Does something in the middle of a sync, once."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], object] | None = None

    def sync(self, fd: int) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


def test_a_segment_that_is_sealed_while_it_is_flushed_is_flushed_again(tmp_path: Path) -> None:
    files = RollingFiles()
    log = new_log(tmp_path, SMALL, files)
    append(log, *(batch(2, size=100) for _ in range(3)))
    files.meanwhile = lambda: append(log, batch(2, size=100))
    assert log.flush(up_to=6) == 6
    assert [(segment.base_offset, segment.synced) for segment in log.segments] == [(0, True), (6, False)]


def test_a_flush_does_not_run_after_a_log_that_goes_on_rolling(tmp_path: Path) -> None:
    class Rolling(UnsyncedFiles):
        def sync(self, fd: int) -> None:
            if fd == rolled.segments[-1].file.fd:
                append(rolled, *(batch(2, size=100) for _ in range(4)))

    rolled = new_log(tmp_path, SMALL, Rolling())
    append(rolled, batch(2, size=100))
    assert rolled.flush() >= 2


def test_a_log_is_cut_when_the_flush_that_is_under_way_is_over(tmp_path: Path) -> None:
    """Otherwise that flush would say of what was cut, and of what comes in its place, that it is on disk."""
    files = RollingFiles()
    log = new_log(tmp_path, SMALL, files)
    append(log, *(batch(2, size=100) for _ in range(4)))
    with ThreadPoolExecutor(1) as other:
        cuts: list[Future[None]] = []
        files.meanwhile = lambda: cuts.append(other.submit(log.truncate_to, 2))
        assert log.flush() == 8
        cuts[0].result(timeout=30)
    assert (log.recovery_point, log.log_end_offset) == (2, 2)
    assert [(segment.base_offset, segment.synced) for segment in log.segments] == [(0, False)]


def test_leader_epochs_are_rebuilt_when_their_file_is_damaged(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    append(log, batch(1), epoch=4)
    log.close()
    (log.directory / "leader-epoch-checkpoint").write_text("nonsense\n1\n")
    again = reopened(log)
    assert (again.epoch_at(59), again.epoch_at(60), again.latest_epoch) == (0, 4, 4)
    assert "are read from its batches" in caplog.text
    again.close()
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n4 60\n"


def test_leftovers_are_removed(log: Log) -> None:
    before = stored(log)
    log.close()
    names = {path.name for path in log.directory.iterdir()}
    for name in (
        "00000000000000000000.log.deleted",
        "00000000000000000000.log.17.deleted",
        "00000000000000000006.index.deleted",
        "00000000000000000006.log.cleaned",
        "00000000000000000012.log.swap",
        "00000000000000000099.index",
        "00000000000000000099.txnindex",
        "leader-epoch-checkpoint.tmp",
        "00000000000000000054.snapshot.tmp",
    ):
        (log.directory / name).write_bytes(b"left over")
    again = reopened(log)
    assert stored(again) == before
    assert {path.name for path in log.directory.iterdir()} == names


def test_a_finished_replacement_is_put_in_place(log: Log, tmp_path: Path) -> None:
    before = stored(log)
    log.close()
    joined = before[3:6] + before[6:9]
    for suffix in ("log", "index", "timeindex"):
        (log.directory / f"{6:020d}.{suffix}.swap").write_bytes(b"".join(joined) if suffix == "log" else b"")
    again = reopened(log)
    assert [segment.base_offset for segment in again.segments][:3] == [0, 6, 18]
    assert stored(again) == before
    assert not list(log.directory.glob("*.swap"))


def test_a_log_that_ends_before_its_start_begins_anew(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    log.abandon()
    again = Log.recover(
        TP,
        store(log.log_dir),
        str(log.directory),
        SMALL,
        log_start_offset=100,
        recovery_point=0,
        high_watermark=0,
    )
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (100, 100, 100)
    assert "Removed all segments" in caplog.text
    assert append(again, batch()) == [100]


def test_messages_of_the_old_format_are_not_taken_for_damage(log: Log) -> None:
    log.abandon()
    content = struct.pack(">bbqi", 1, 0, NOW, -1) + struct.pack(">i", 40) + b"v" * 40
    message = struct.pack(">I", zlib.crc32(content)) + content
    file(log, 54).write_bytes(struct.pack(">qi", 54, len(message)) + message)
    with pytest.raises(StartupError, match="format v0 or v1"):
        recovered(log)


def test_zeroes_after_the_last_batch_are_cut(log: Log) -> None:
    before = stored(log)
    log.abandon()
    with file(log, 54).open("ab") as end:
        end.write(bytes(5000))
    assert stored(recovered(log)) == before


def test_a_large_batch_is_checked_in_pieces(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, batch(1), batch(1, size=3 << 20), batch(1))
    before = stored(log)
    assert stored(recovered(log)) == before
    log = recovered(log)
    log.abandon()
    damage(file(log, 0), 2 << 20)
    assert stored(recovered(log)) == before[:1]


def test_producers_are_known_without_their_snapshots(log: Log) -> None:
    producers = log.producers.describe()
    log.flush()
    log.abandon()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    assert recovered(log).producers.describe() == producers


def test_the_real_file_system_syncs(tmp_path: Path) -> None:
    log = new_log(tmp_path, SMALL, FileSystem())
    append(log, *(batch(2, size=100) for _ in range(7)))
    assert log.flush() == 14
    log.close()


@pytest.mark.parametrize(
    "damaged",
    [lambda data: data[:-1], lambda data: data[:17], lambda data: bytes(len(data)), lambda data: data[34:] + data[:34]],
)
def test_a_damaged_transaction_index_is_made_anew_after_a_clean_stop(
    tmp_path: Path, damaged: Callable[[bytes], bytes]
) -> None:
    log = new_log(tmp_path)
    for producer_id in range(5, 9):
        append(log, batch(1, producer_id=producer_id, transactional=True))
        if producer_id == 7:
            log.roll(NOW)  # its transaction ends in another segment
    for producer_id in range(5, 9):
        end = EndOfTransaction(ControlType.ABORT, 0)
        append(log, build_marker(end, timestamp=NOW, producer_id=producer_id, producer_epoch=0))
        if producer_id == 6:
            log.roll(NOW)
    log.close()
    for path in log.directory.glob("*.txnindex"):
        content = path.read_bytes()
        path.write_bytes(damaged(content))
        again = reopened(log)
        again.open()
        assert path.read_bytes() == content
        again.close()


def test_leader_epochs_that_are_missing_are_read_from_the_batches(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for epoch in (0, 2, 5):
        append(log, batch(3), epoch=epoch)
    log.close()
    path = log.directory / "leader-epoch-checkpoint"
    content = path.read_text()
    for lost in (path.unlink, lambda: path.write_text("")):
        lost()
        again = reopened(log)
        assert [again.offset_for_epoch(epoch) for epoch in (0, 2, 5)] == [(0, 3), (2, 6), (5, 9)]
        again.close()
        assert path.read_text() == content


@pytest.mark.parametrize("load", [recovered, reopened], ids=["crashed", "stopped after it had crashed"])
@pytest.mark.parametrize("later", [(), (4,)])
def test_records_whose_deletion_a_crash_took_back_have_their_epochs(
    tmp_path: Path, later: tuple[int, ...], load: Callable[[Log], Log]
) -> None:
    log = new_log(tmp_path)
    for epoch in (0, 2):
        append(log, batch(3), epoch=epoch)
    log.high_watermark = 6
    log.delete_records_before(6)
    for epoch in later:
        append(log, batch(3), epoch=epoch)
    log.flush()
    log.log_start_offset = 0  # as the checkpoint still has it
    again = load(log)
    ends = {0: 3, 2: 6, **dict.fromkeys(later, 9)}
    assert {epoch: again.offset_for_epoch(epoch) for epoch in ends} == {each: (each, end) for each, end in ends.items()}
    assert again.latest_epoch == max(ends)


@pytest.mark.parametrize("size", [1, SIZE // 2, SIZE + 1])
def test_a_torn_segment_in_the_middle_is_not_passed_over(log: Log, size: int) -> None:
    log.close()
    path = file(log, 6)
    path.write_bytes(path.read_bytes()[:-size])
    again = reopened(log)
    with pytest.raises(CorruptMessage, match="inside of a batch"):
        read_bytes(again, 11, 1)
    assert split(read_bytes(again, 6, 1))
    assert split(read_bytes(again, 54, 1))
