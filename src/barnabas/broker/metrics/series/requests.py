"""How many requests there were of each kind, and how long they took (RequestMetrics)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics.exposition import COUNTER, SUMMARY, Family, counter, labels
from barnabas.broker.metrics.requests import CONSUMER, FOLLOWER, add_up, quantiles, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.metrics.requests import Buckets, RequestTimes
    from barnabas.broker.metrics.scrape import Pace

Kind = tuple[str, tuple[list[int], ...], tuple[list[int], ...], int]
"""A kind of requests by its name, its recent and all its times (local, remote, total), and how many there were."""
PREFIX: Final = "kafka_network_requestmetrics_"
QUANTILES: Final = {0.5: "0.50", 0.75: "0.75", 0.95: "0.95", 0.98: "0.98", 0.99: "0.99", 0.999: "0.999"}
"""As Kafka's histograms have them."""


class RequestSeries:
    """Series by kind of request."""

    def __init__(self, times: RequestTimes) -> None:
        self._times = times

    async def collect(self, pace: Pace) -> Sequence[Family]:
        """Counts since the start, and quantiles of the last minutes, in milliseconds."""
        requests = Family(f"{PREFIX}requests", COUNTER, "Requests that were received, by kind.")
        total = _Summary("totaltimems", "From when a request was whole to when its response was ready, in ms.")
        local = _Summary("localtimems", "How long requests were worked at in the event loop, in ms.")
        remote = _Summary("remotetimems", "How long requests waited for records, replicas or members, in ms.")
        in_loop = Family("barnabas_request_loop_seconds", COUNTER, "For how long requests held the event loop.")
        for name, recent, ever, count in self._kinds():
            label = labels(request=name)
            requests.add(count, label)
            in_loop.add(seconds(ever[0]), label)
            for summary, lately, always in zip((local, remote, total), recent, ever, strict=True):
                summary.add(name, lately, always)
            if pace.is_over:
                await pace.rest()
        slow = counter(
            "barnabas_slow_requests", "Requests that took longer than slow.request.ms.", self._times.slow_count
        )
        return requests, total.family, local.family, remote.family, in_loop, slow

    def _kinds(self) -> list[Kind]:
        """Names, recent and all times, and counts; fetches also together, as Kafka has them."""
        found: list[Kind] = [(times.name, times.recent(), times.ever(), times.count) for times in self._times.times()]
        fetches = [each for each in found if each[0] in (CONSUMER, FOLLOWER)]
        if fetches:
            recent = tuple(add_up(lists) for lists in zip(*(each[1] for each in fetches), strict=True))
            ever = tuple(add_up(lists) for lists in zip(*(each[2] for each in fetches), strict=True))
            found.append(("Fetch", recent, ever, sum(each[3] for each in fetches)))
        return found


class _Summary:
    """Quantiles of times in milliseconds."""

    def __init__(self, name: str, text: str) -> None:
        self.family = Family(PREFIX + name, SUMMARY, text)

    def add(self, request: str, recent: Buckets, ever: Buckets) -> None:
        for value, quantile in zip(quantiles(recent, QUANTILES), QUANTILES.values(), strict=True):
            self.family.add(round(1000 * value, 6), labels(request=request, quantile=quantile))
        label = labels(request=request)
        self.family.add(round(1000 * seconds(ever), 6), label, "_sum")
        self.family.add(sum(ever), label, "_count")
