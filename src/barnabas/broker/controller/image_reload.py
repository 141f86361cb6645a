"""What happens when a part of the broker fails to apply a metadata image.

A subscriber of the metadata cache that raises leaves a broker whose image and replicas differ: it might lead what it
should not, or not lead what it should. So the broker is fenced, and has the whole image applied again, to every
subscriber and not only to the one that failed. While that fails, it is tried again with growing pauses, and the broker
stays fenced. Nothing on disk changes because of this: logs are only closed to clients.

Some parts act on the image only when the broker is unfenced, so they may fail after every reload. The pause grows
across reloads too: otherwise the cluster would elect leaders every second, for a broker that cannot lead.

When the image is applied the broker registers anew (`membership`). A new registration makes the controller elect
leaders with new epochs, so the broker never leads on in an epoch whose in-flight ISR changes it has forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.controller.fencing import BrokerFence
    from barnabas.metadata.images.cache import MetadataCache

logger = logging.getLogger(__name__)

FIRST_PAUSE: Final = 1.0
"""Seconds until the image is applied again for the first time."""
LONGEST_PAUSE: Final = 30.0
"""Also how long a broker must have worked after a reload before the pauses begin anew."""


class ImageReload:
    """Fences a broker whose subscribers failed; `wake` has somebody call `try_again` soon."""

    def __init__(self, cache: MetadataCache, fence: BrokerFence, wake: Callable[[], None]) -> None:
        self.is_needed = False
        """Whether the image has to be applied again before the broker may register."""
        self._cache = cache
        self._fence = fence
        self._wake = wake
        self._has_failed = False
        self._pause = 0.0
        """Seconds between the last failure and the try after it; 0 before there was one."""
        self._finished_at = -inf
        """When the last reload was done, on the event loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        cache.on_failure(self._subscriber_failed)
        fence.on_failure(self._subscriber_failed)

    def try_again(self) -> bool:
        """Apply the whole image, if the pause since the last failure is over; True if every subscriber has applied it.

        Then the old registration has to be given up before `finish`.
        """
        if self._timer is not None:
            return False
        self._has_failed = False
        self._fence.resign()
        self._cache.apply_again()
        if self._has_failed:
            self._retry_later()
            return False
        logger.info("Every subscriber has applied the metadata image: this broker registers again.")
        return True

    def finish(self) -> bool:
        """Let the next registration unfence the broker, unless a subscriber has failed since `try_again`."""
        if self._has_failed:
            self._retry_later()
            return False
        self._finished_at = asyncio.get_running_loop().time()
        self.is_needed = False
        self._fence.release()
        return True

    def stop(self) -> None:
        """Try no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _subscriber_failed(self, name: str, error: Exception) -> None:
        self._has_failed = True
        logger.error(
            "%s could not apply the metadata image: %r. This broker is fenced: it leads and follows nothing until "
            "every subscriber has applied the whole image. Its data is kept.",
            name,
            error,
            exc_info=error,
        )
        if not self.is_needed:
            self.is_needed = True
            self._fence.hold()
            if asyncio.get_running_loop().time() - self._finished_at > LONGEST_PAUSE:
                self._pause = 0.0  # what was wrong the last time was over
            self._retry_later()
            self._wake()

    def _retry_later(self) -> None:
        self._pause = min(2 * self._pause, LONGEST_PAUSE) if self._pause else FIRST_PAUSE
        logger.info("The metadata image is applied again in %g s.", self._pause)
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._due)

    def _due(self) -> None:
        self._timer = None
        self._wake()
