"""Open files: a pool of descriptors that opens them when they are needed and keeps only so many.

Ten thousand partitions fit into a limit of a few thousand descriptors. Who may use one:

- A *lease* (acquire, release) holds the file open; any thread may take one. A slice that waits to be sent has a lease.
- A *pin* keeps the file open that a log appends to, so that an append need not ask the pool. The pool may take a pin
  away when descriptors run short, but not while the file's `writing` is set. Whoever writes sets it before looking at
  `pinned`; the pool clears `pinned` before looking at `writing`. So one of the two always sees the other.

Invariant: a descriptor is closed only when nobody has a lease or a pin on it, and `fd`, the one place that has its
number, is -1 before it is closed. So no one ever writes to a number that now belongs to another file. A lease that is
given back twice breaks this for whoever still holds one: the process ends at once (`halt`), since what it would write
next may land in another partition's file. A kill at any moment loses nothing that was acknowledged.

The pool also knows whose each number is (`owner`), and nobody who appends believes the number alone: a descriptor that
was closed behind the pool's back, and whose number another file has, ends the process before anything is written.

A handle opens its file by name, maybe long after it was given out. So a name means one file for as long as a handle may
have it: a file that is to go gets a name that no other file had or will have (`new_number`), before its old name is
used again.

The event loop takes the pool's lock all the time, so no call to the file system is made under it: on a disk that hangs,
whoever opens, closes or renames a file waits, and nobody else.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from barnabas.storage.files import OUT_OF_DESCRIPTORS, FileSystem

if TYPE_CHECKING:
    from typing import NoReturn

logger = logging.getLogger(__name__)

_PINS_SHARE: Final = 0.75
_MOST_HELD: Final = 2
"""How many times the limit may be open before a slice that is to be sent gets no further file."""
HALTED: Final = 70
"""The exit code of a process that could not trust its own descriptors (EX_SOFTWARE)."""


def halt(reason: str) -> NoReturn:
    """End the process at once, with the stack in its log: going on might write into a wrong file."""
    logger.critical(
        "%s. The broker ends at once, so that nothing is written to a wrong file. This is a defect of Barnabas: please "
        "report the stack below.",
        reason,
        stack_info=True,
    )
    os._exit(HALTED)


class FileHandle:
    """A file that is opened when needed, through its pool."""

    __slots__ = ("_is_closed", "_leases", "_next_path", "_pool", "fd", "path", "pinned", "revoked", "writing")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self._leases = 0
        self._is_closed = False
        self._next_path: str | None = None
        """The name that the file gets in this moment."""
        self.path = path
        self.fd = -1
        """The descriptor, -1 when the file is not open; to be used while a lease or pin is held."""
        self.pinned = False
        """Whether the file stays open without a lease, until the pool needs the descriptor."""
        self.writing = False
        """Set by whoever uses the pinned descriptor, for that time: the pool does not take the pin away then."""
        self.revoked = False
        """The file was cut after this handle was given out: slices of it must not be sent any more."""

    def acquire(self) -> int:
        """Hold the file open and return its descriptor; every acquire() needs a release()."""
        return self._pool.acquire(self)

    def lease(self) -> bool:
        """As acquire(), for as long as a client takes to read: False, and nothing is held, if too many files are."""
        return self._pool.lease(self)

    def release(self) -> None:
        """Give a lease back. The process ends if there is none."""
        self._pool.release(self)

    def pin(self) -> int:
        """Keep the file open for appending, until the pool takes the pin away; returns the descriptor."""
        return self._pool.pin(self)

    def unpin(self) -> None:
        """Give the pin back, if there is one."""
        self._pool.unpin(self)

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; may wait for the disk."""
        fd = self.acquire()
        try:
            return self._pool.files.read(fd, size, position)
        finally:
            self.release()

    def read_cached(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; raises ColdRead instead of waiting for the disk."""
        fd = self.acquire()
        try:
            return self._pool.files.read_cached(fd, size, position)
        finally:
            self.release()

    def other_name(self, path: str) -> str | None:
        """The name that the file has got since it was called `path`, or gets in this moment; None if that is its name.

        Whoever renames it says the new name first.
        """
        next_path = self._next_path  # looked at before the name, which is set before this is forgotten
        return next_path if self.path == path else self.path

    def close(self) -> None:
        """Close the file as soon as the last lease is given back.

        Whoever comes late opens it anew, for as long as it has a lease: a removed file takes room on the disk until its
        last descriptor is closed.
        """
        self._pool.close(self)


class FilePool:
    """Open descriptors, at most about `limit`; the one that was not used for longest goes first."""

    def __init__(self, files: FileSystem, limit: int) -> None:
        self.files = files
        self._limit = max(limit, 8)
        self._max_pins = int(self._limit * _PINS_SHARE)
        self._lock = threading.RLock()
        self._idle: OrderedDict[FileHandle, None] = OrderedDict()
        self._open = 0
        self._pins: OrderedDict[FileHandle, None] = OrderedDict()
        self._owners: dict[int, FileHandle] = {}
        self.owner = self._owners.get
        """The handle that a descriptor is open for; None for one that the pool has not opened."""
        self.new_number = itertools.count(1).__next__
        """A number that nobody else gets, for a name that is used once."""
        files.close_unused = self.close_unused

    @property
    def open_count(self) -> int:
        """How many descriptors are open."""
        return self._open

    def handle(self, path: str) -> FileHandle:
        """A handle for an existing file; it is not opened yet."""
        return FileHandle(self, path)

    def acquire(self, handle: FileHandle) -> int:
        """See FileHandle.acquire."""
        while True:
            with self._lock:
                if handle.fd >= 0:
                    if not handle._leases and not handle.pinned:
                        del self._idle[handle]
                    handle._leases += 1
                    return handle.fd
                spare = self._take_spare()
                path = handle.path
            self._close_all(spare)
            fd, path = self._open_file(handle, path)
            with self._lock:
                if handle.fd < 0 and path in (handle.path, handle._next_path):
                    handle.fd = fd
                    self._owners[fd] = handle
                    handle._leases += 1
                    self._open += 1
                    return fd
            self.files.close(fd)  # somebody else was faster, or the file has another name by now

    def lease(self, handle: FileHandle) -> bool:
        """See FileHandle.lease."""
        with self._lock:
            if handle.fd < 0 and self._open - len(self._idle) >= _MOST_HELD * self._limit:
                return False
        try:
            self.acquire(handle)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS:
                raise
            return False
        return True

    def release(self, handle: FileHandle) -> None:
        """See FileHandle.release."""
        with self._lock:
            if handle._leases <= 0:
                halt(f"A lease on {handle.path} was given back that nobody holds")
            handle._leases -= 1
            if handle._leases or handle.pinned:
                return
            unused = self._rest(handle)
        self._close_all(unused)

    def pin(self, handle: FileHandle) -> int:
        """See FileHandle.pin."""
        fd = self.acquire(handle)
        unused: list[int] = []
        with self._lock:
            if not handle.pinned:
                if len(self._pins) >= self._max_pins:
                    unused = self._take_pins(1)
                handle.pinned = True
                self._pins[handle] = None
            handle._leases -= 1
        self._close_all(unused)
        return fd

    def unpin(self, handle: FileHandle) -> None:
        """See FileHandle.unpin."""
        with self._lock:
            unused = self._unpin(handle)
        self._close_all(unused)

    def rename(self, handle: FileHandle, path: str) -> None:
        """Rename the file; whoever opens the handle finds it, before and after. One thread renames a file at a time."""
        handle._next_path = path
        try:
            self.files.rename(handle.path, path)
            handle.path = path
        finally:
            handle._next_path = None

    def modified_ms(self, handle: FileHandle) -> int:
        """When the file was last written, in milliseconds since 1970; also of one that is being renamed."""
        path = handle.path
        while True:
            try:
                found = self.files.modified_ms(path)
            except FileNotFoundError:
                if (new_path := handle.other_name(path)) is None:
                    raise
                path = new_path
                continue
            if path in (handle.path, handle._next_path):  # else it may be that of a file which has the name now
                return found
            path = handle.path

    def close(self, handle: FileHandle) -> None:
        """See FileHandle.close."""
        with self._lock:
            unused = self._unpin(handle)
            handle._is_closed = True
            if handle.fd >= 0 and not handle._leases:
                del self._idle[handle]
                unused.append(self._retire(handle))
        self._close_all(unused)

    def close_idle(self) -> None:
        """Close every file that nobody holds."""
        with self._lock:
            unused = self._take_pins(len(self._pins)) + self._take_idle()
        self._close_all(unused)

    def close_unused(self) -> bool:
        """Descriptors have run out: close what nobody uses, or else take pins away; False when that brought none."""
        with self._lock:
            unused = [] if self._idle else self._take_pins(max(len(self._pins) // 2, 1))
            unused += self._take_idle()
        self._close_all(unused)
        return bool(unused)

    def check_owner(self, handle: FileHandle, fd: int) -> None:
        """End the process if the descriptor is not this file's any more."""
        if self.owner(fd) is not handle:
            halt(f"Descriptor {fd} is not that of {handle.path} any more")

    def _open_file(self, handle: FileHandle, path: str) -> tuple[int, str]:
        """Open the file by its name of a moment ago, or by the one that it has got since; with that name."""
        while True:
            try:
                return self.files.open(path), path
            except FileNotFoundError:
                if (new_path := handle.other_name(path)) is None:
                    raise
                path = new_path

    # With the lock; what they return is to be closed without it

    def _unpin(self, handle: FileHandle) -> list[int]:
        if not handle.pinned:
            return []
        handle.pinned = False
        del self._pins[handle]
        return self._rest(handle)

    def _rest(self, handle: FileHandle) -> list[int]:
        """A lease or pin is gone: if it was the last, the descriptor may be closed."""
        if handle._leases or handle.pinned:
            return []
        if handle._is_closed:
            return [self._retire(handle)]
        self._idle[handle] = None
        return []

    def _take_pins(self, count: int) -> list[int]:
        """Take the oldest pins away, but from nobody who is writing."""
        unused: list[int] = []
        for handle in list(self._pins):
            if count <= 0:
                break
            handle.pinned = False
            if handle.writing:  # it may have seen its pin just before
                handle.pinned = True
                continue
            del self._pins[handle]
            unused += self._rest(handle)
            count -= 1
        return unused

    def _take_spare(self) -> list[int]:
        """As many descriptors as there are too many, if one more is to be opened."""
        unused = []
        while self._open >= self._limit and self._idle:
            unused.append(self._retire(self._idle.popitem(last=False)[0]))
        return unused

    def _take_idle(self) -> list[int]:
        unused = []
        while self._idle:
            unused.append(self._retire(self._idle.popitem(last=False)[0]))
        return unused

    def _retire(self, handle: FileHandle) -> int:
        """Take a handle's descriptor, which nobody uses: nobody finds it any more."""
        if handle._leases or handle.pinned:
            halt(f"{handle.path} was to be closed while it is in use")
        fd, handle.fd = handle.fd, -1
        self.check_owner(handle, fd)
        del self._owners[fd]
        self._open -= 1
        return fd

    def _close_all(self, descriptors: list[int]) -> None:
        """Close descriptors that nobody finds any more. Their numbers are not used again before."""
        failure: OSError | None = None
        for fd in descriptors:
            try:
                self.files.close(fd)
            except OSError as error:  # raised last: nobody else knows of the others any more
                failure = error
        if failure is not None:
            raise failure
