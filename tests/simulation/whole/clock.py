"""The clock of one machine: wall time that can jump and stop, and monotonic time that is the event loop's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.whole.loop import VirtualLoop

BEGAN_MS: Final = 1_700_000_000_000


class MachineClock:
    """See the module's docstring."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.ahead_ms = 0
        self._stopped_ms: int | None = None

    def now_ms(self) -> int:
        """See Clock."""
        if self._stopped_ms is not None:
            return self._stopped_ms
        return BEGAN_MS + int(self._loop.time() * 1000) + self.ahead_ms

    def stop(self) -> None:
        """Wall time stands still."""
        if self._stopped_ms is None:
            self._stopped_ms = self.now_ms()

    def go_on(self) -> None:
        """It goes on from where it stood: this clock is slow from now on."""
        if self._stopped_ms is not None:
            stopped_ms, self._stopped_ms = self._stopped_ms, None
            self.ahead_ms += stopped_ms - self.now_ms()

    def monotonic(self) -> float:
        """See Clock."""
        return self._loop.time()
