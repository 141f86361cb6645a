"""The folder of a secured cluster: made whole or not at all, never over anything that is there.

Files are written into a folder of another name beside it, which then takes its name: whoever finds the folder finds all
of it. A folder that a killed process left is known by its age and by its lock, which ended with the process; the next
one removes it. Only the owner can read any of it, whatever the umask says.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.common.failures import Failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DRAFT: Final = ".draft"
_LEFT_SECONDS: Final = 60.0
"""The age of a draft that may be a killed process's: a younger one may not have its lock yet."""


def write_folder(folder: Path, texts: Mapping[str, str]) -> bool:
    """Make a folder with these files; False if there is something of that name. Raises OSError, and leaves nothing."""
    if os.path.lexists(folder):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_left_drafts(folder)
    with _draft(folder) as draft:
        for name, text in texts.items():
            _write(draft / name, text)
        _sync(draft)
        try:
            draft.rename(folder)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                return False
            raise
    _sync(folder.parent)
    return True


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A new folder, locked; removed at the end if it still has this name."""
    draft = Path(tempfile.mkdtemp(_DRAFT, f".{folder.name}.", folder.parent))
    lock = None
    try:
        draft.chmod(0o700)
        lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _remove_left_drafts(folder: Path) -> None:
    """Remove what processes left that were killed: nobody holds their locks."""
    for draft in folder.parent.iterdir():
        if draft.name.startswith(f".{folder.name}.") and draft.name.endswith(_DRAFT):
            with suppress(OSError):
                if time.time() - draft.lstat().st_mtime < _LEFT_SECONDS:
                    continue
                lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(draft)
                finally:
                    os.close(lock)


def write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read; raises Failed if there is one."""
    try:
        _write(path, text)
    except FileExistsError:
        raise Failed(f"{path} is there already, and nothing is overwritten.") from None


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
