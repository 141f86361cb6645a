"""Which run of a broker this is: a random id in its data directory, and in its registration.

A broker that is started again after kill -9 may find its own registration still there, since a ZooKeeper session
outlives its process. Whoever holds the directory's lock and finds there the id that the registration carries knows
that the process which made it is gone, and need not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.ids import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from barnabas.storage.files import FileSystem

INCARNATION_FILE: Final = "barnabas.incarnation"


def read(files: FileSystem, directory: Path) -> UUID | None:
    """The id of the last run; None if there was none, or it cannot be read."""
    try:
        return uuid_from_text(files.read_file(str(directory / INCARNATION_FILE)).decode("ascii").strip())
    except (OSError, ValueError):
        return None


def write(files: FileSystem, directory: Path, incarnation: UUID) -> None:
    """Note this run's id, all of it or nothing; a registration outlives the process, but not by much the machine."""
    text = f"{uuid_to_text(incarnation)}\n"
    files.write_file(str(directory / INCARNATION_FILE), text.encode("ascii"), sync=False)
