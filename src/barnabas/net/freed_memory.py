"""Memory of connections that have ended goes back to the system.

A connection with TLS takes some fifty kilobytes in many small pieces. The C library keeps them when they are free:
after a thousand strangers had come and gone, a broker stayed four times as large as before, for ever. So when many such
connections have ended, and much is free, it is asked to give that back, in a thread; this takes some milliseconds. What
was given back still counts as free there, so it may be asked again in vain, once for so many connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

MANY: Final = 500
"""Connections that have ended, after which it is looked how much is free."""
PAUSE_SECONDS: Final = 10.0
"""From then until it is looked: others may end, too. So it is done no more often than this."""
MUCH: Final = 64 * 1024 * 1024
"""Free bytes that are worth it."""


class FreedMemory:
    """Counts connections that have ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor
        self._ended = 0

    def note(self) -> None:
        """A connection has ended."""
        self._ended += 1
        if self._ended == MANY:
            self._loop.call_later(PAUSE_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._ended = 0
        self._executor.submit(give_back)


def give_back() -> bool:
    """Give free memory back to the system, if it is much; whether that was done."""
    import ctypes  # here: a broker that was never attacked starts without it

    library: Any = ctypes.CDLL(None)
    try:
        library.mallinfo2.restype = _sizes(ctypes)
        is_much = library.mallinfo2().fordblks >= MUCH
    except AttributeError:  # another C library, or an old one
        return False
    if is_much:
        library.malloc_trim(0)
    return bool(is_much)


def _sizes(ctypes: Any) -> Any:
    """What mallinfo2 gives, as its manual page has it."""
    names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    return type("mallinfo2", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names]})
