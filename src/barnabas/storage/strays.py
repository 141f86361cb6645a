"""Logs that were set aside: `TOPIC-PARTITION.ID-stray`, as Apache Kafka names them.

A log that the cluster's image does not give this broker is renamed so, and nothing else happens to its files: an image
may be wrong. The directory stays until somebody decides about it. The metadata tree may record that its topic was
deleted, or an operator may remove it (`barnabas log strays`); and if the image gives the broker this partition of the
same topic id again, the log is taken back. What the checkpoints of the log directory say of a log, which go by names
and so may soon speak of another topic, is noted in a file of its own if the log stays.

A stray is known by the id of its topic. The name in the directory's name may be cut, and one without an id is never
taken for anything.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.ids import NO_ID, TopicPartition, uuid_to_text
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.files import FileSystem
from barnabas.storage.names import moved_from, moved_name
from barnabas.storage.recovery.loading import NO_GAP_IS_DAMAGE

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.log.log import Log

_OFFSETS: Final = "stray-offsets.json"


class Offsets(NamedTuple):
    """What the checkpoints said of a log."""

    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0
    cleaned_to: int | None = None

    @property
    def gaps_end(self) -> int:
        """Gaps between segments that begin up to here are no damage: compaction left them, or a power loss could not.

        Of a log that Kafka set aside, or that was never synced, nothing is known.
        """
        return max(self.cleaned_to or 0, self.recovery_point) or NO_GAP_IS_DAMAGE


class Stray(NamedTuple):
    """A log that was set aside."""

    path: str
    store: LogDirectory
    topic: str
    """As the directory's name has it: of a long name, the beginning."""
    partition: int
    topic_id: UUID
    delete_delay_ms: int
    offsets: Offsets | None = None
    """What was known of it; None of one that was there when the broker started, which has a note."""

    @property
    def key(self) -> tuple[UUID, int]:
        """Which partition it is."""
        return self.topic_id, self.partition


def find_stray(store: LogDirectory, name: str, delete_delay_ms: int) -> Stray | None:
    """What a directory of this name is, if it was set aside."""
    moved = moved_from(name)
    if moved is None or moved.suffix != "stray":
        return None
    path = f"{store.path}/{name}"
    return Stray(path, store, moved.topic, moved.partition, topic_id_of(store.files, path), delete_delay_ms)


def topic_id_of(files: FileSystem, path: str) -> UUID:
    """The topic id of a partition's directory; NO_ID where it cannot be told."""
    try:
        return checkpoints.read_topic_id(files, path)
    except (DamagedCheckpoint, OSError):
        return NO_ID


def offsets_of(log: Log) -> Offsets:
    """What is known of a log."""
    return Offsets(log.log_start_offset, log.recovery_point, log.high_watermark, log.cleaned_to)


def write_offsets(store: LogDirectory, path: str, known: Offsets) -> None:
    """Note what is known of a log in its directory."""
    store.check_writable()
    store.files.write_file(f"{path}/{_OFFSETS}", json.dumps(known._asdict()).encode(), sync=False)


def read_offsets(files: FileSystem, path: str) -> Offsets | None:
    """What was known of a log when it was set aside; None of one that never was, or that Kafka set aside."""
    try:
        found: dict[str, Any] = json.loads(files.read_file(f"{path}/{_OFFSETS}"))
        return Offsets(**{name: found[name] for name in Offsets._fields})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Offsets()


def forget_offsets(files: FileSystem, path: str) -> None:
    """The log is in the checkpoints again."""
    files.remove(f"{path}/{_OFFSETS}")


class FoundStray(NamedTuple):
    """A log that was set aside, as an operator sees it."""

    path: Path
    topic: str
    partition: int
    topic_id: UUID
    size: int

    @property
    def topic_id_text(self) -> str:
        """The id as Kafka's tools print it; - where there is none."""
        return "-" if self.topic_id == NO_ID else uuid_to_text(self.topic_id)


def list_strays(directory: Path) -> list[FoundStray]:
    """The logs that were set aside in a log directory, whether a broker runs on it or not."""
    found = []
    for path in sorted(directory.iterdir()):
        moved = moved_from(path.name)
        if moved is not None and moved.suffix == "stray" and path.is_dir():
            files = FileSystem()
            size = sum(entry.size for entry in files.entries(str(path)))
            found.append(FoundStray(path, moved.topic, moved.partition, topic_id_of(files, str(path)), size))
    return found


def remove_stray(path: Path) -> bool:
    """Remove such a log for good; False if it is gone.

    It gets the name of a deleted one first: a broker that wants it back at the same moment has either the whole log or
    nothing, and what a crash leaves is removed by the next start.
    """
    files = FileSystem()
    moved = moved_from(path.name)
    assert moved is not None
    going = path.with_name(moved_name(TopicPartition(moved.topic, moved.partition), "delete"))
    try:
        files.rename(str(path), str(going))
    except FileNotFoundError:
        return False
    files.remove_tree(str(going))
    return True


def furthest(strays: list[Stray]) -> Stray:
    """Of several logs of one partition, the one that goes furthest."""

    def end(stray: Stray) -> tuple[str, int]:
        """The name of the last segment, and its length."""
        segments = [entry for entry in stray.store.files.entries(stray.path) if entry.name.endswith(".log")]
        return max(((entry.name, entry.size) for entry in segments), default=("", 0))

    return strays[0] if len(strays) == 1 else max(strays, key=end)
