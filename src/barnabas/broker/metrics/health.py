"""Whether a broker is ready, and whether it is well; each "no" comes with its reason.

    ready    it serves: logs are loaded, it is registered and not fenced, and its listeners are open
    healthy  its event loop answers, its log directories are online, and the metadata store can be reached

Who is told to restart what is not healthy should look at the reasons first: a restart mends a loop that hangs, and not
a disk that is full.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.lifecycle import BrokerState
from barnabas.metadata.znodes import ClusterIdNode
from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.metrics.event_loop import EventLoopWatch

HELD_SECONDS: Final = 1.0
"""An event loop that was held for longer within the last `LOOK_BACK` is not healthy."""
LOOK_BACK: Final = 10.0
STORE_SECONDS: Final = 3.0
"""How long the metadata store has to answer."""
STORE_KNOWN: Final = 1.0
"""For how long the answer counts: many may ask."""


class HealthCheck(NamedTuple):
    """One thing that has to be right."""

    name: str
    reason: str | None = None
    """Why it is not."""

    @property
    def ok(self) -> bool:
        """Whether it is."""
        return self.reason is None


class BrokerHealth:
    """Looks after one broker."""

    def __init__(self, broker: BrokerContext, state: Callable[[], BrokerState], loop: EventLoopWatch) -> None:
        self._broker = broker
        self._state = state
        self._loop = loop
        self._store: tuple[float, HealthCheck] | None = None
        self._asking: asyncio.Task[HealthCheck] | None = None

    def readiness(self) -> tuple[HealthCheck, ...]:
        """Whether the broker serves."""
        broker, state = self._broker, self._state()
        starting = "The broker is starting." if state is BrokerState.STARTING else None
        if state in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            starting = "The broker is stopping."
        loading = "Logs are being loaded." if state in (BrokerState.STARTING, BrokerState.RECOVERY) else None
        fence = broker.membership.fence
        registered = "The broker is not registered." if fence.broker_epoch < 0 else None
        fenced = (
            "The broker is fenced: it leads nothing until the controller has updated it." if fence.is_fenced else None
        )
        listeners = None if state is BrokerState.RUNNING else "The listeners take no requests."
        return (
            HealthCheck("running", starting),
            HealthCheck("logs", loading),
            HealthCheck("registration", registered),
            HealthCheck("fence", fenced),
            HealthCheck("listeners", listeners),
        )

    async def health(self) -> tuple[HealthCheck, ...]:
        """Whether the broker is well."""
        return self._event_loop(), *self._directories(), await self._metadata_store()

    def _event_loop(self) -> HealthCheck:
        held = self._loop.worst(LOOK_BACK)
        if held <= HELD_SECONDS:
            return HealthCheck("event-loop")
        return HealthCheck("event-loop", f"The event loop was held for {held:.1f} s within the last {LOOK_BACK:.0f} s.")

    def _directories(self) -> list[HealthCheck]:
        logs = self._broker.logs
        failed = logs.failed_directories
        checks = [HealthCheck(f"log-dir {path}", failed.get(path)) for path in logs.directories]
        torn = [tp for tp in logs.failed_logs() if (log := logs.get(tp)) is not None and log.torn is not None]
        if torn:
            checks.append(
                HealthCheck(
                    "logs", f"{len(torn)} logs have lost their end, the first is {torn[0]}: see the broker's log."
                )
            )
        return checks

    async def _metadata_store(self) -> HealthCheck:
        """Whether the store answers; those who ask at the same time are told the same."""
        if self._store is not None and time.monotonic() - self._store[0] < STORE_KNOWN:
            return self._store[1]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_store(), name="metadata store check")
        check = await asyncio.shield(self._asking)
        self._store = time.monotonic(), check
        return check

    async def _ask_store(self) -> HealthCheck:
        try:
            async with asyncio.timeout(STORE_SECONDS):
                await self._broker.membership.store.find(ClusterIdNode.path)
        except TimeoutError:
            return HealthCheck("metadata-store", f"The metadata store has not answered within {STORE_SECONDS:.0f} s.")
        except (BarnabasError, OSError) as error:
            return HealthCheck("metadata-store", f"The metadata store cannot be reached: {error}")
        return HealthCheck("metadata-store")
