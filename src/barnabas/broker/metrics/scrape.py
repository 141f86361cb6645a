"""A scrape: all sources are read one after the other, in steps, and written as one page.

A step lasts a millisecond at most, and the event loop has as long for everything else before the next one. So a scrape
of many partitions takes longer, and no request waits for it for more than a step. Scrapes at the same time share their
work: whoever comes while one is being made gets the same page.

A source that fails takes nothing from the others: its series are missing, and `barnabas_metrics_failed_sources` says
so. Figures of one page are of about the same time, not of one moment.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.metrics.exposition import GAUGE, Family, PageFormat, labels, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

logger = logging.getLogger(__name__)

STEP_SECONDS: Final = 0.001
SOURCE_SECONDS: Final = 5.0
"""How long one source may take, also where it asks other brokers."""


class Pace:
    """Lets the event loop go on after each step."""

    __slots__ = ("_began", "worked")

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.worked = 0.0
        """Seconds in which the scrape held the event loop."""

    @property
    def is_over(self) -> bool:
        """Whether it is time to `rest`; it is cheap to ask."""
        return time.monotonic() - self._began > STEP_SECONDS

    async def rest(self) -> None:
        """Let others do what they have to do, for as long as this step took."""
        took = time.monotonic() - self._began
        self.worked += took
        await asyncio.sleep(min(took, STEP_SECONDS))
        self._began = time.monotonic()

    def resume(self) -> None:
        """A wait for somebody else is over: it was none of the work."""
        self._began = time.monotonic()


class Source(Protocol):
    """Knows some of the series."""

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """The series as they are now; rests whenever a step is over."""
        ...


def _taken(families: list[Family]) -> Iterator[Family]:
    """The families, each of which is let go before the next: to free all their lines at once would be a long step."""
    families.reverse()
    while families:
        yield families.pop()


class Scraper:
    """Makes pages of all sources."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._under_way: dict[PageFormat, asyncio.Task[Sequence[bytes]]] = {}
        self._failed: set[str] = set()
        """Sources that failed the last time."""
        self.seconds = 0.0
        """How long the last scrape took."""

    async def page(self, format: PageFormat) -> Sequence[bytes]:
        """A page, in parts; whoever asks while it is made gets the same."""
        task = self._under_way.get(format)
        if task is None:
            task = self._under_way[format] = asyncio.create_task(self._make(format), name="metrics scrape")
            task.add_done_callback(lambda _: self._under_way.pop(format, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Make no more pages."""
        for task in list(self._under_way.values()):
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    async def _make(self, format: PageFormat) -> Sequence[bytes]:
        began, pace = time.monotonic(), Pace()
        families: list[Family] = []
        failed = Family(
            "barnabas_metrics_failed_sources",
            GAUGE,
            "Whether series of a source are missing, because it could not be read.",
        )
        for name, source in self._sources.items():
            families += await self._collect(name, source, pace)
            failed.add(int(name in self._failed), labels(source=name))
        self.seconds = time.monotonic() - began
        duration = Family(
            "barnabas_metrics_scrape_seconds", GAUGE, "How long it took to read the figures of this page."
        )
        duration.add(self.seconds)
        held = Family(
            "barnabas_metrics_scrape_loop_seconds", GAUGE, "For how long the event loop was held to make this page."
        )
        held.add(pace.worked)
        parts = []
        families += (failed, duration, held)
        for part in render(_taken(families), format):
            parts.append(part)
            if pace.is_over:
                await pace.rest()
        return parts

    async def _collect(self, name: str, source: Source, pace: Pace) -> Sequence[Family]:
        try:
            async with asyncio.timeout(SOURCE_SECONDS):
                families = await source.collect(pace)
        except Exception as error:  # whatever it was: the others are asked all the same
            if name not in self._failed:
                self._failed.add(name)
                logger.warning(
                    "Could not read the metrics of %s. They are missing until it can: %r", name, error, exc_info=error
                )
            return ()
        self._failed.discard(name)
        return families
