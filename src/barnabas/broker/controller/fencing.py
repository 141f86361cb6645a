"""Whether a broker is fenced: a fenced broker leads, follows and coordinates nothing.

A broker is unfenced while it is registered and a controller that knows of this registration has sent it the whole
image. Otherwise it would lead by an image of the time before it was away. Messages for a registration that ended are
refused: only a later registration unfences the broker again, and none does while it is held (`image_reload`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.controller.metadata_updates import MetadataUpdates


class FencedPart(Protocol):
    """A part of a broker that acts on the image only while the broker is unfenced."""

    def resume(self) -> None:
        """Do everything that the image says."""
        ...

    def resign(self) -> None:
        """Lead and follow nothing, whatever the image says. Calling it again finishes what an error cut short."""
        ...


class BrokerFence:
    """The fence of one broker; `broker_epoch` is the registration that it is for."""

    def __init__(self, updates: MetadataUpdates) -> None:
        self.broker_epoch = -1
        """Creation id of the last registration; -1 before there was one."""
        self.is_fenced = True
        self._is_held = False
        self._updates = updates
        self._parts: list[FencedPart] = []
        self._on_failure: list[Callable[[str, Exception], None]] = []
        self._unfenced = asyncio.Event()

    def subscribe(self, part: FencedPart) -> None:
        """Have a part resume when the broker is unfenced, and resign when it is fenced."""
        self._parts.append(part)

    def on_failure(self, callback: Callable[[str, Exception], None]) -> None:
        """Call `callback` with the name of what failed, and the error, when a part cannot do what the image says."""
        self._on_failure.append(callback)

    def part_failed(self, name: str, error: Exception) -> None:
        """A part could not do what the image says: call those who asked for failures."""
        for callback in self._on_failure:
            callback(name, error)

    async def unfenced(self) -> None:
        """Wait until the broker is unfenced."""
        await self._unfenced.wait()

    def registered(self, broker_epoch: int) -> None:
        """There is a new registration; messages for earlier ones are refused from now on."""
        self.broker_epoch = self._updates.lowest_broker_epoch = broker_epoch

    def ended(self, broker_epoch: int) -> None:
        """A registration was given up: messages for it are refused from now on."""
        self._updates.lowest_broker_epoch = max(self._updates.lowest_broker_epoch, broker_epoch + 1)

    def unfence(self, broker_epoch: int) -> None:
        """The controller has sent this registration the whole image: act on it, unless the registration has ended."""
        if self.is_fenced and not self._is_held and broker_epoch >= self._updates.lowest_broker_epoch:
            self.is_fenced = False
            self._unfenced.set()
            self._call([part.resume for part in self._parts])

    def fence(self) -> None:
        """The registration has ended: refuse messages for it, and lead and follow nothing."""
        self._updates.lowest_broker_epoch = self.broker_epoch + 1
        if not self.is_fenced:
            self.is_fenced = True
            self._unfenced.clear()
            self.resign()

    def hold(self) -> None:
        """Fence the broker, and let nothing unfence it until `release`."""
        self._is_held = True
        self.fence()

    def release(self) -> None:
        """Let the next registration unfence the broker."""
        self._is_held = False

    def resign(self) -> None:
        """Have every part lead and follow nothing."""
        self._call([part.resign for part in self._parts])

    def _call(self, methods: list[Callable[[], None]]) -> None:
        for method in methods:
            try:
                method()
            except Exception as error:  # whatever it was: the broker must not go on half fenced
                self.part_failed(method.__qualname__, error)
