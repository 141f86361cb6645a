"""The small text files beside the logs, in Kafka's formats.

    recovery-point-offset-checkpoint   up to where each log is known to be on disk
    replication-offset-checkpoint      the high watermarks
    log-start-offset-checkpoint        where logs begin, after records were deleted
    cleaner-offset-checkpoint          up to where compaction has cleaned each log
    leader-epoch-checkpoint            in each partition: the leader epochs
    partition.metadata                 in each partition: the topic's id
    barnabas-unlisted                  in a partition that was just made: the files above do not list it yet
    meta.properties                    whose directory this is
    .kafka_cleanshutdown               there after a clean stop

Each is replaced as a whole (see FileSystem.write_file), so a reader sees the old or the new content.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import BarnabasError
from barnabas.model.ids import NO_ID, TopicPartition, uuid_from_text, uuid_to_text
from barnabas.storage.files import NO_ROOM
from barnabas.storage.log.epochs import EpochStart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from barnabas.storage.files import FileSystem

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
TAKEN: Final = b"taken by a start\n"
"""In that file: a start has used it up, but could not remove it for good."""
_UNLISTED: Final = "barnabas-unlisted"
META_PROPERTIES: Final = "meta.properties"
_META_KEYS: Final = frozenset({"version", "broker.id", "node.id", "cluster.id", "directory.id"})
LOCK: Final = ".lock"

_VERSION: Final = "0"


class DamagedCheckpoint(BarnabasError):
    """A checkpoint file that cannot be read."""


def read_offsets(files: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Read a file of partitions and offsets; empty when there is no file."""
    offsets = {}
    for line in _read_lines(files, path):
        fields = line.split()
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise DamagedCheckpoint(f"{path}: {line!r} is not a topic, a partition and an offset") from None
    return offsets


def write_offsets(files: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Write a file of partitions and offsets."""
    _write_lines(files, path, [f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()], sync=True)


def read_epochs(files: FileSystem, directory: str) -> list[EpochStart]:
    """Read a partition's leader epochs; empty when there is no file."""
    path = f"{directory}/{LEADER_EPOCHS}"
    epochs = []
    for line in _read_lines(files, path):
        try:
            epoch, start_offset = map(int, line.split())
        except ValueError:
            raise DamagedCheckpoint(f"{path}: {line!r} is not an epoch and an offset") from None
        epochs.append(EpochStart(epoch, start_offset))
    return epochs


def write_epochs(files: FileSystem, directory: str, epochs: Iterable[EpochStart], *, sync: bool) -> None:
    """Write a partition's leader epochs."""
    lines = [f"{entry.epoch} {entry.start_offset}" for entry in epochs]
    _write_lines(files, f"{directory}/{LEADER_EPOCHS}", lines, sync=sync)


def _read_lines(files: FileSystem, path: str) -> list[str]:
    """The entries of a file: a version, a count, and one line for each."""
    try:
        lines = files.read_file(path).decode().splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise DamagedCheckpoint(f"{path} is not text") from None
    if len(lines) < 2:
        return []
    if lines[0] != _VERSION:
        raise DamagedCheckpoint(f"{path} is of version {lines[0]!r}; this program reads version {_VERSION}")
    if lines[1] != str(len(lines) - 2):
        raise DamagedCheckpoint(f"{path} has {len(lines) - 2} entries, but says it has {lines[1]!r}")
    return lines[2:]


def _write_lines(files: FileSystem, path: str, lines: list[str], *, sync: bool) -> None:
    text = "\n".join([_VERSION, str(len(lines)), *lines, ""])
    files.write_file(path, text.encode(), sync=sync)


def read_topic_id(files: FileSystem, directory: str) -> UUID:
    """The topic id of a partition's directory; NO_ID when there is none."""
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        text = files.read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return NO_ID
    try:
        fields = dict(line.split(": ", 1) for line in text.splitlines())
        return uuid_from_text(fields["topic_id"])
    except (KeyError, ValueError):
        raise DamagedCheckpoint(f"{path} does not name a topic id") from None


def write_topic_id(files: FileSystem, directory: str, topic_id: UUID, *, sync: bool) -> None:
    """Write a partition's topic id."""
    text = f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}"
    files.write_file(f"{directory}/{PARTITION_METADATA}", text.encode(), sync=sync)


def mark_unlisted(files: FileSystem, directory: str) -> None:
    """Mark a partition that is being made, before it gets its first segment, as one that no checkpoint lists yet.

    The name alone counts, and is not synced: file systems bring the names of a directory to the disk in the order in
    which they were made, so one that has lost this name has no segments either.
    """
    files.close(files.open(f"{directory}/{_UNLISTED}", create=True))


def is_marked_unlisted(files: FileSystem, directory: str) -> bool:
    """Whether a partition is marked so. If a checkpoint lists it nevertheless, the mark was just to be removed."""
    return files.exists(f"{directory}/{_UNLISTED}")


def unmark_unlisted(files: FileSystem, directory: str) -> None:
    """The checkpoints list the partition now."""
    files.remove(f"{directory}/{_UNLISTED}")


def write_clean_shutdown(files: FileSystem, directory: str, broker_epoch: int = -1) -> None:
    """Mark the stop as clean."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.write_file(f"{directory}/{CLEAN_SHUTDOWN}", content.encode())


def take_clean_shutdown(files: FileSystem, directory: str) -> bool:
    """Whether the last stop was clean. The mark does not count from then on: it holds for one start.

    It is marked as taken before it is removed, and that is synced in the file itself. A directory whose sync has failed
    once may have the name again after a power loss, whatever was synced later. On a full disk there may be no room for
    that, as in an empty mark of Kafka's: the mark is only removed then.
    """
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return False
    try:
        _mark_taken(files, path)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
    files.remove(path)
    files.sync_dir(directory)
    return TAKEN not in content


def _mark_taken(files: FileSystem, path: str) -> None:
    fd = files.open(path)
    try:
        files.append_all(fd, TAKEN)
        files.sync(fd)
    finally:
        files.close(fd)


class MetaProperties(NamedTuple):
    """Whose log directory this is. Version 0 is that of ZooKeeper mode, 1 that of KRaft (node.id for broker.id)."""

    version: int = 0
    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None

    def encode(self) -> str:
        """The file's text."""
        lines = ["#", f"version={self.version}"]
        if self.broker_id is not None:
            lines.append(f"{'broker.id' if self.version == 0 else 'node.id'}={self.broker_id}")
        if self.cluster_id is not None:
            lines.append(f"cluster.id={self.cluster_id}")
        if self.directory_id is not None:
            lines.append(f"directory.id={self.directory_id}")
        return "\n".join([*lines, ""])


def read_meta_properties(files: FileSystem, directory: str) -> MetaProperties | None:
    """Read meta.properties; None when there is none. Raises DamagedCheckpoint."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        text = files.read_file(path).decode(errors="replace")
    except FileNotFoundError:
        return None
    fields = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            fields[key.strip()] = value.strip().replace("\\=", "=").replace("\\:", ":")
    if fields and fields.keys().isdisjoint(_META_KEYS):
        raise _damaged(path, "it has none of the keys that say whose directory this is")
    try:
        version = int(fields.get("version", "0"))
        broker_id = fields.get("broker.id" if version == 0 else "node.id")
        return MetaProperties(
            version=version,
            broker_id=None if broker_id is None else int(broker_id),
            cluster_id=fields.get("cluster.id"),
            directory_id=fields.get("directory.id"),
        )
    except ValueError:
        raise _damaged(path, "version and broker id are not numbers") from None


def _damaged(path: str, why: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"{path} is damaged: {why}. Correct it, or remove it if log.dirs is right: it is then written anew"
    )


def write_meta_properties(files: FileSystem, directory: str, properties: MetaProperties) -> None:
    """Write meta.properties."""
    files.write_file(f"{directory}/{META_PROPERTIES}", properties.encode().encode())
