"""Looks at the cluster every ten seconds, whether or not a page is open, and keeps what it saw in the history.

It asks in the name of the console itself. Where the cluster asks for a login and the console was given none, there is
nothing to keep, and pages say so.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from barnabas.clients.scraping import MetricsAccess
from barnabas.console.cluster import metrics
from barnabas.console.cluster.cached_answer import CachedAnswer
from barnabas.console.settings import without_words
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from barnabas.console.cluster.group_lags import GroupStates
    from barnabas.console.cluster.observer import Observer
    from barnabas.console.cluster.snapshot import ClusterSnapshot
    from barnabas.console.history import History
    from barnabas.console.settings import WithRemedy

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 10.0
TRAFFIC_SECONDS: Final = 1.0
TRAFFIC_PATIENCE_SECONDS: Final = 0.3
"""How long a page waits for newer figures of bytes, which it can do without."""
SHARE_OF_TRAFFIC: Final = 9
"""Brokers' metrics are kept for so many times as long as reading them took: a broker with many partitions has a lot."""
GROWTH_SAMPLES: Final = 30
"""Over how many samples the lag of a group has to grow before it is called growing."""
LEAST_SAMPLES: Final = 6
LEAST_GROWTH: Final = 1_000

RECORDS: Final = "records"
LAG: Final = "lag"
DISK: Final = "disk"
UNDER_REPLICATED: Final = "under-replicated"
BYTES_IN: Final = "bytes-in"
BYTES_OUT: Final = "bytes-out"
"""Names of series; those of one topic or group have its name behind a colon."""


class Sampler:
    """The one that looks."""

    def __init__(
        self,
        observer: Observer,
        history: History,
        addresses: tuple[str, ...] = (),
        access: MetricsAccess | None = None,
        with_remedy: WithRemedy = without_words,
    ) -> None:
        self._observer = observer
        self._history = history
        self._scraper = metrics.TrafficReader(observer, addresses, access or MetricsAccess(), with_remedy)
        self._before: ClusterSnapshot | None = None
        self._lags: deque[dict[str, int]] = deque(maxlen=GROWTH_SAMPLES)
        self.failure: str | None = None
        """Why nothing was kept the last time."""
        self._traffic = CachedAnswer(
            self._look_at_traffic,
            TRAFFIC_SECONDS,
            TRAFFIC_PATIENCE_SECONDS,
            SHARE_OF_TRAFFIC,
            is_whole=lambda _: self._scraper.is_whole,
        )

    @property
    def metrics_failure(self) -> str | None:
        """Why a broker did not let the console read its metrics, if that is so."""
        return self._scraper.failure

    async def traffic(self) -> metrics.ByteRates | None:
        """Bytes a second through all brokers now; None where brokers have no metrics, or nobody may look."""
        if self.failure is not None:
            return None
        with suppress(BarnabasError):
            return (await self._traffic.get_soon())[0]
        return None

    async def cleaners(self) -> list[metrics.CleanerFigures]:
        """What brokers' cleaners have done."""
        await self.traffic()
        return self._scraper.cleaners

    async def run(self) -> None:
        """Look until this task is cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self._sample()
            except BarnabasError as error:
                if self.failure is None:
                    log.warning("Could not read figures of the brokers. Their history has a gap: %s", error)
                self.failure = str(error)
            except Exception as error:  # of whatever a broker or its metrics have answered: pages need no history
                if self.failure is None:
                    log.exception("Could not make figures of what brokers answered. Their history has a gap.")
                self.failure = f"what brokers answered could not be read: {error!r}"
            await anyio.sleep(max(1.0, STEP_SECONDS - (time.monotonic() - began)))

    def growing(self) -> dict[str, int]:
        """Groups whose lag is larger than it was, at each look of the last minutes, and by how much."""
        if len(self._lags) < LEAST_SAMPLES:
            return {}
        first, last = self._lags[0], self._lags[-1]
        found = {}
        for group, lag in last.items():
            grown = lag - first.get(group, lag)
            lowest = min(sample.get(group, lag) for sample in self._lags)
            if grown >= LEAST_GROWTH and lowest >= first[group]:
                found[group] = grown
        return dict(sorted(found.items(), key=lambda each: -each[1])[:10])

    async def _sample(self) -> None:
        snapshot = await self._observer.snapshot(fresh=True)
        groups = await self._observer.groups()
        disks = await self._observer.disks()
        (traffic,) = await self._traffic.get()
        figures = self._rates(snapshot)
        figures[DISK] = sum(
            replica.size for dirs in disks.directories.values() for each in dirs for replica in each.replicas
        )
        figures[UNDER_REPLICATED] = snapshot.under_replicated
        figures |= self._lag_figures(groups)
        if traffic is not None:
            figures |= {BYTES_IN: traffic.bytes_in, BYTES_OUT: traffic.bytes_out}
        await self._history.add(snapshot.cluster_id, snapshot.at, figures)
        self.failure = None

    async def _look_at_traffic(self) -> tuple[metrics.ByteRates | None]:
        return (await self._scraper.traffic(await self._observer.snapshot()),)

    def _rates(self, snapshot: ClusterSnapshot) -> dict[str, float]:
        before, self._before = self._before, snapshot
        if before is None or snapshot.at <= before.at:
            return {}
        seconds = snapshot.at - before.at
        rates: dict[str, float] = {RECORDS: 0.0}
        for place, end in snapshot.ends.items():
            if place in before.ends:
                rate = max(0, end - before.ends[place]) / seconds
                name = f"{RECORDS}:{place.topic}"
                rates[name] = rates.get(name, 0.0) + rate
                rates[RECORDS] += rate
        return {name: round(rate, 2) for name, rate in rates.items()}

    def _lag_figures(self, groups: GroupStates) -> dict[str, float]:
        lags = {group.id: group.lag for group in groups.groups.values() if group.lags}
        self._lags.append(lags)
        return {LAG: float(sum(lags.values())), **{f"{LAG}:{name}": float(lag) for name, lag in lags.items()}}
