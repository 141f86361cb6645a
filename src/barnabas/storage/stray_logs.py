"""The logs that a running broker has set aside, and what becomes of them: taken back, removed, or kept.

Nothing here decides whether a log may go. A log that is set aside keeps its files, under another name where its disk
allows that, and what is known of its offsets; one whose name is wanted by another log makes way for it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.model.errors import BarnabasError
from barnabas.model.ids import NO_ID, TopicPartition
from barnabas.storage import strays
from barnabas.storage.names import moved_name
from barnabas.storage.strays import Offsets, Stray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.log.log import Log

logger = logging.getLogger(__name__)


class StrayLogs:
    """The logs that are set aside, by topic id and partition.

    Whoever changes them has the manager's lock for names; `all` needs none.
    """

    def __init__(self, delete_delay_ms: int) -> None:
        self._strays: dict[tuple[UUID, int], list[Stray]] = {}
        self._delete_delay_ms = delete_delay_ms
        """file.delete.delay.ms, for logs whose topic's settings are not known."""

    def all(self) -> list[Stray]:
        """Every log that is set aside; without the lock, which whoever makes logs may hold for long."""
        return [stray for found in list(self._strays.values()) for stray in list(found)]

    def add(self, stray: Stray) -> Stray:
        """Count a log as set aside."""
        self._strays.setdefault(stray.key, []).append(stray)
        return stray

    def _forget(self, stray: Stray) -> None:
        """Count a log as set aside no more, and leave nothing of it: topics come and go as long as the broker runs."""
        found = self._strays[stray.key]
        found.remove(stray)
        if not found:
            del self._strays[stray.key]

    def find_in(self, store: LogDirectory, names: Iterable[str]) -> None:
        """Add those of a log directory's entries that were set aside before the broker started."""
        found = [stray for name in names if (stray := strays.find_stray(store, name, self._delete_delay_ms))]
        for stray in found:
            self.add(stray)
        if found:
            logger.warning(
                "%d logs in %s are set aside (the first is %s): no partition of this broker uses them. "
                "`barnabas log strays` lists them and can remove them.",
                len(found),
                store.path,
                found[0].path,
            )

    def find(self, tp: TopicPartition, topic_id: UUID) -> list[Stray]:
        """The logs of this partition that were set aside and are still there: an operator may have removed them."""
        found = self._strays.get((topic_id, tp.partition), []) if topic_id != NO_ID else []
        return [stray for stray in found if stray.store.files.exists(stray.path)]

    def claim(
        self, tp: TopicPartition, topic_id: UUID, free_name: Callable[[TopicPartition, LogDirectory], None]
    ) -> Stray | None:
        """The log of this partition that was set aside, if there is one, in its old place again."""
        found = self.find(tp, topic_id)
        if not found:
            self._strays.pop((topic_id, tp.partition), None)
            return None
        stray = strays.furthest(found)
        known = stray.offsets or strays.read_offsets(stray.store.files, stray.path) or Offsets()
        strays.write_offsets(stray.store, stray.path, known)  # before it has a name that checkpoints speak of
        free_name(tp, stray.store)
        path = f"{stray.store.path}/{tp}"
        if stray.path != path:
            self.clear_away(tp, stray.store, path)
            stray.store.files.rename(stray.path, path)
        self._forget(stray)
        return stray._replace(offsets=known)

    def give_back(self, stray: Stray, path: str) -> None:
        """A log that was claimed, and is in `path`, could not be loaded: set it aside again."""
        try:
            stray.store.files.rename(path, stray.path)
        except OSError as error:
            logger.error("%s could not be renamed to %s: %s. It counts as set aside.", path, stray.path, error)
            stray.store.unrecovered = True
            stray = stray._replace(path=path)
        self.add(stray)

    def set_aside(self, log: Log) -> Stray:
        """Close a log and give its directory another name; if its disk does not allow that, it has its old one.

        It counts as set aside nevertheless: nothing more is written to it, and what is known of it is not lost.
        """
        tp, store = log.tp, log.store
        topic_id, path, known = log.topic_id, f"{store.path}/{moved_name(tp, 'stray')}", strays.offsets_of(log)
        try:
            log.mark_deleted(path)
        except (BarnabasError, OSError) as error:
            logger.error("%s could not be renamed to %s: %s. It counts as set aside.", log.path, path, error)
            path = log.path
            store.unrecovered = True
        delay = log.config.file_delete_delay_ms
        return self.add(Stray(path, store, tp.topic, tp.partition, topic_id, delay, known))

    def clear_away(self, tp: TopicPartition, store: LogDirectory, path: str, topic_id: UUID | None = None) -> None:
        """Set aside what a log of this name has left here that could not be renamed when it was to go.

        What a log of `topic_id` has here was made in part, and is gone on with: had it been set aside, it would have
        been taken back. So is a directory that has nothing yet but a file that was not written to its end.
        """
        entries = store.files.entries(path) if store.files.exists(path) else []
        if not any(topic_id is None or (entry.size and not entry.name.endswith(".tmp")) for entry in entries):
            return
        found = strays.topic_id_of(store.files, path)
        if found == topic_id:
            return
        new_path = f"{store.path}/{moved_name(tp, 'stray')}"
        with store.writing(f"renaming {path}"):
            store.files.rename(path, new_path)
        logger.warning("%s belongs to an earlier log of %s: set it aside as %s.", path, tp, new_path)
        left = Stray(new_path, store, tp.topic, tp.partition, found, self._delete_delay_ms)
        known = [each for each in self._strays.get(left.key, ()) if each.path == path]
        for each in known:
            self._forget(each)
        self.add(known[0]._replace(path=new_path) if known else left)

    def delete(self, stray: Stray, now_ms: int) -> bool:
        """Have a log removed for good, after file.delete.delay.ms; False if it was taken back, or cannot be renamed."""
        if stray not in self._strays.get(stray.key, ()):
            return False
        path = f"{stray.store.path}/{moved_name(TopicPartition(stray.topic, stray.partition), 'delete')}"
        try:
            stray.store.check_removable()
            stray.store.files.rename(stray.path, path)
        except FileNotFoundError:  # an operator was faster
            self._forget(stray)
            return False
        except (BarnabasError, OSError) as error:
            logger.error("%s could not be renamed to %s: %s. It stays set aside.", stray.path, path, error)
            return False
        self._forget(stray)
        stray.store.discard((path,), now_ms + stray.delete_delay_ms, is_dir=True)
        return True

    def write_offsets(self, stray: Stray) -> bool:
        """Note beside a log what is known of its offsets, if it is still set aside. Waits for the file system.

        False if that failed, as on a full disk.
        """
        if stray.offsets is None or stray not in self._strays.get(stray.key, []):
            return True
        try:
            strays.write_offsets(stray.store, stray.path, stray.offsets)
        except (BarnabasError, OSError) as error:
            logger.info("Could not write the offsets of %s into it: %s", stray.path, error)
            return False
        return True
