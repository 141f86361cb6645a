from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.model.ids import NO_ID, TopicPartition, uuid_to_text
from barnabas.storage import check, checkpoints
from barnabas.storage.checkpoints import DamagedCheckpoint, MetaProperties
from barnabas.storage.files import FileSystem
from barnabas.storage.log.epochs import EpochStart

if TYPE_CHECKING:
    from pathlib import Path

FILES = FileSystem()


def test_offsets_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b.c-d", 12): 2**40}
    checkpoints.write_offsets(FILES, str(path), offsets)
    assert path.read_text() == "0\n2\na 0 5\nb.c-d 12 1099511627776\n"
    assert checkpoints.read_offsets(FILES, str(path)) == offsets


def test_a_missing_or_empty_file_has_no_offsets(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert checkpoints.read_offsets(FILES, str(path)) == {}
    path.write_bytes(b"")
    assert checkpoints.read_offsets(FILES, str(path)) == {}
    path.write_bytes(b"0\n0\n")
    assert checkpoints.read_offsets(FILES, str(path)) == {}


@pytest.mark.parametrize(
    "text",
    [b"1\n0\n", b"0\n2\na 0 5\n", b"0\n1\na 0\n", b"0\n1\na b c\n", b"x\n1\na 0 5\n", b"\xff\xfe\n\n", b"0\n\n\x00"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_bytes(text)
    with pytest.raises(DamagedCheckpoint):
        checkpoints.read_offsets(FILES, str(tmp_path / "leader-epoch-checkpoint"))
    with pytest.raises(DamagedCheckpoint):
        checkpoints.read_epochs(FILES, str(tmp_path))


def test_epochs_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    epochs = [EpochStart(0, 0), EpochStart(7, 123)]
    checkpoints.write_epochs(FILES, str(tmp_path), epochs, sync=True)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n7 123\n"
    assert checkpoints.read_epochs(FILES, str(tmp_path)) == epochs


def test_topic_ids_are_written_as_kafka_writes_them(tmp_path: Path) -> None:
    topic_id = UUID("12345678-1234-5678-1234-567812345678")
    assert checkpoints.read_topic_id(FILES, str(tmp_path)) == NO_ID
    checkpoints.write_topic_id(FILES, str(tmp_path), topic_id, sync=True)
    assert (tmp_path / "partition.metadata").read_text() == f"version: 0\ntopic_id: {uuid_to_text(topic_id)}"
    assert checkpoints.read_topic_id(FILES, str(tmp_path)) == topic_id
    for text in ("", "nonsense", "version: 0", "version: 0\ntopic_id: x"):
        (tmp_path / "partition.metadata").write_text(text)
        with pytest.raises(DamagedCheckpoint):
            checkpoints.read_topic_id(FILES, str(tmp_path))


def test_a_clean_stop_counts_once(tmp_path: Path) -> None:
    assert not checkpoints.take_clean_shutdown(FILES, str(tmp_path))
    checkpoints.write_clean_shutdown(FILES, str(tmp_path))
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": -1}
    assert checkpoints.take_clean_shutdown(FILES, str(tmp_path))
    assert not checkpoints.take_clean_shutdown(FILES, str(tmp_path))
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert checkpoints.take_clean_shutdown(FILES, str(tmp_path))


def test_a_mark_that_a_start_has_taken_does_not_count_when_it_comes_back(tmp_path: Path) -> None:
    class NoDirectorySync(FileSystem):
        def sync_dir(self, path: str) -> None:
            raise OSError(errno.EIO, "the directory cannot be synced")

        def remove(self, path: str) -> None:
            """Not for good: the power is lost before it is on the disk."""

    checkpoints.write_clean_shutdown(FILES, str(tmp_path))
    with pytest.raises(OSError, match="cannot be synced"):
        checkpoints.take_clean_shutdown(NoDirectorySync(), str(tmp_path))
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not check._was_clean(tmp_path)
    assert not checkpoints.take_clean_shutdown(FILES, str(tmp_path))
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_mark_without_room_for_a_word_counts_once_too(tmp_path: Path) -> None:
    """Kafka's older versions leave an empty file, and the disk may be full."""

    class NoRoom(FileSystem):
        def append_all(self, fd: int, data: object) -> None:
            raise OSError(errno.ENOSPC, "no room")

    (tmp_path / ".kafka_cleanshutdown").touch()
    assert checkpoints.take_clean_shutdown(NoRoom(), str(tmp_path))
    assert not checkpoints.take_clean_shutdown(NoRoom(), str(tmp_path))


def test_meta_properties_are_those_of_zookeeper_mode(tmp_path: Path) -> None:
    assert checkpoints.read_meta_properties(FILES, str(tmp_path)) is None
    properties = MetaProperties(broker_id=3, cluster_id="dcSxK1BBT0Wvt5m2HrPZ-Q")
    checkpoints.write_meta_properties(FILES, str(tmp_path), properties)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert {"version=0", "broker.id=3", "cluster.id=dcSxK1BBT0Wvt5m2HrPZ-Q"} <= set(lines)
    assert checkpoints.read_meta_properties(FILES, str(tmp_path)) == properties


def test_meta_properties_of_kafka_are_read(tmp_path: Path) -> None:
    text = "#Sun Nov 15 21:27:57 2026\nnode.id=1\ndirectory.id=Z0mWEYpXbhqzb9w8bSv4WA\nversion=1\ncluster.id=a\\=b\n"
    (tmp_path / "meta.properties").write_text(text)
    assert checkpoints.read_meta_properties(FILES, str(tmp_path)) == MetaProperties(
        version=1, broker_id=1, cluster_id="a=b", directory_id="Z0mWEYpXbhqzb9w8bSv4WA"
    )
    (tmp_path / "meta.properties").write_text("version=x\n")
    with pytest.raises(DamagedCheckpoint):
        checkpoints.read_meta_properties(FILES, str(tmp_path))


@pytest.mark.parametrize("content", [b"\x00\xff\xfe garbage", b"what is this?\nand=that", b"version=1\nnode.id=\xff"])
def test_garbage_in_the_place_of_meta_properties_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(checkpoints.DamagedCheckpoint, match=r"is damaged: .*Correct it, or remove it"):
        checkpoints.read_meta_properties(FILES, str(tmp_path))


def test_garbage_in_the_place_of_a_topic_id_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_bytes(b"\xff\xfe")
    with pytest.raises(checkpoints.DamagedCheckpoint, match="does not name a topic id"):
        checkpoints.read_topic_id(FILES, str(tmp_path))
