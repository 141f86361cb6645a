"""The snapshot files of a log's producers: which there are, which are still to be written, and which can be read.

`state` says what is in one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.model.errors import CorruptMessage
from barnabas.storage.producers.state import ProducerStates
from barnabas.storage.segments.file_names import SNAPSHOT_SUFFIX, file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.storage.files import FileSystem
    from barnabas.storage.producers.state import FrozenProducers

logger = logging.getLogger(__name__)


class Snapshots:
    """The snapshot files of one log, and those that are still to be written.

    A snapshot is a hint, made where a segment begins. It is written in a thread, before the recovery point passes its
    offset; until then, and if the process ends before, producers are read from the batches since the one before it.
    """

    __slots__ = ("_directory", "_files", "_noted", "_offsets", "_unwritten")

    def __init__(self, files: FileSystem, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._offsets = set(offsets)
        self._noted: dict[int, FrozenProducers] = {}
        self._unwritten: dict[int, bytes] = {}

    @property
    def offsets(self) -> list[int]:
        """The offsets of which there are snapshots, ascending."""
        return sorted(self._offsets)

    def path(self, offset: int) -> str:
        """The file of the snapshot at `offset`."""
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def take(self, states: ProducerStates, *, sync: bool) -> None:
        """Write the snapshot of `states`, unless there is one at its offset."""
        if states.end_offset not in self._offsets:
            self._files.write_file(self.path(states.end_offset), states.encode(), sync=sync)
            self._offsets.add(states.end_offset)

    def note(self, states: ProducerStates) -> None:
        """Have the snapshot of `states` written later, unless there is one at its offset. Waits for nothing."""
        if states.end_offset not in self._offsets:
            self._noted[states.end_offset] = states.freeze()

    def to_encode(self) -> dict[int, FrozenProducers]:
        """What is to be encoded, by offset."""
        return dict(self._noted)

    def keep_encoded(self, encoded: Mapping[int, bytes]) -> None:
        """Have these written, as far as they are still wanted."""
        for offset, content in encoded.items():
            if self._noted.pop(offset, None) is not None:
                self._unwritten[offset] = content

    def unwritten(self) -> dict[int, bytes]:
        """What is to be written, by offset."""
        return dict(self._unwritten)

    def write(self, offset: int, content: bytes) -> None:
        """Write a snapshot that was noted; `confirm_written` says so to everybody else."""
        self._files.write_file(self.path(offset), content, sync=False)

    def confirm_written(self, offset: int) -> bool:
        """Count the snapshot at `offset` as being on file; False if it was removed meanwhile, and is to go again."""
        if self._unwritten.pop(offset, None) is None:
            return False
        self._offsets.add(offset)
        return True

    def load(self, up_to: int) -> ProducerStates | None:
        """The newest readable state at or before `up_to`; damaged snapshots are removed on the way."""
        for offset in reversed(self.offsets):
            if offset > up_to:
                continue
            try:
                return ProducerStates.decode(self._files.read_file(self.path(offset)), offset)
            except (CorruptMessage, FileNotFoundError) as error:
                logger.warning(
                    "Removed the snapshot of producers %s: %s. Producers are read from the batches.",
                    self.path(offset),
                    error,
                )
                self.remove(offset)
        return None

    def sync(self, offset: int) -> None:
        """Bring the snapshot at `offset` to the disk, if there is one."""
        if offset in self._offsets:
            self._files.sync_file(self.path(offset))

    def remove(self, offset: int) -> None:
        """Remove the snapshot at `offset`, if there is one."""
        for path in self.forget([offset]):
            self._files.remove(path)

    def forget(self, offsets: Iterable[int]) -> list[str]:
        """Know nothing more of the snapshots at these offsets; returns the files that are to be removed."""
        paths = []
        for offset in offsets:
            self._noted.pop(offset, None)
            self._unwritten.pop(offset, None)
            if offset in self._offsets:
                self._offsets.discard(offset)
                paths.append(self.path(offset))
        return paths

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots that speak of more than `offset`."""
        for found in [found for found in (*self._offsets, *self._noted, *self._unwritten) if found > offset]:
            self.remove(found)

    def remove_strays(self, bases: Iterable[int]) -> None:
        """Keep the snapshots where segments begin, and the newest of all."""
        kept = set(bases) | {max(self._offsets, default=-1)}
        for found in [found for found in self._offsets if found not in kept]:
            self.remove(found)
