"""The metrics listener of a broker: what is found at its paths.

    /metrics           figures, in the format of Prometheus or of OpenMetrics
    /health            whether the broker is well, with reasons
    /v1/slow-requests  the last requests that took long
    /v1/ready          whether it serves
    /v1/broker-state   its state by Kafka's number, and how far the recovery of its logs is

It is open from the first moment of a start to the last of a stop, so that a broker that recovers its logs can be
watched. What reads figures is imported with the first scrape, in a thread.
"""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from barnabas.broker.lifecycle import BrokerState
from barnabas.broker.metrics.event_loop import EventLoopWatch
from barnabas.broker.metrics.exposition import accepted
from barnabas.broker.metrics.health import BrokerHealth, HealthCheck
from barnabas.broker.metrics.http import HttpEndpoint, HttpRequest, HttpResponse, HttpServer
from barnabas.broker.metrics.requests import WINDOW_SECONDS
from barnabas.model.config.listeners import metrics_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.broker.assembly import Assembly
    from barnabas.broker.metrics.scrape import Scraper
    from barnabas.net.server import Server

logger = logging.getLogger(__name__)

JSON = "application/json"


class MetricsListener:
    """Figures and health of one broker over HTTP."""

    def __init__(
        self, assembly: Assembly, state: Callable[[], BrokerState], server: Callable[[], Server | None]
    ) -> None:
        broker = assembly.broker
        self._assembly = assembly
        self._state = state
        self._server = server
        times = assembly.request_times
        assert times is not None
        self.event_loop = EventLoopWatch(times.turn, WINDOW_SECONDS)
        self._health = BrokerHealth(broker, state, self.event_loop)
        self._scraper: Scraper | None = None
        self.port = 0
        """Where it listens, once it does."""
        self._making = asyncio.Lock()
        token = broker.settings.text_or_none("metrics.token")
        self._http = HttpServer(
            {
                "/metrics": HttpEndpoint(self._metrics, is_large=True),
                "/health": HttpEndpoint(self._healthy),
                "/v1/slow-requests": HttpEndpoint(self._slow_requests),
                "/v1/ready": HttpEndpoint(self._ready, is_open=True),
                "/v1/broker-state": HttpEndpoint(self._broker_state, is_open=True),
            },
            token=token,
            tls=None if broker.certificates is None else broker.certificates.metrics(),
        )

    async def start(self) -> int:
        """Open the listener; returns its port. Raises StartupError."""
        address = metrics_listener(self._assembly.broker.settings.static)
        assert address is not None
        self.event_loop.start()
        port = self.port = self._http.listen(address.host, address.port)
        logger.info("Metrics are at %s://%s:%d/metrics.", address.scheme, address.host, port)
        return port

    async def stop(self) -> None:
        """Close it."""
        self.event_loop.stop()
        await self._http.close()
        if self._scraper is not None:
            await self._scraper.close()

    # Paths

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        format = accepted(request.headers.get("accept", ""))
        scraper = self._scraper or await self._make_scraper()
        return HttpResponse(HTTPStatus.OK, format.value, await scraper.page(format))

    async def _healthy(self, request: HttpRequest) -> HttpResponse:
        return _checked(await self._health.health())

    async def _ready(self, request: HttpRequest) -> HttpResponse:
        return _checked(self._health.readiness())

    async def _slow_requests(self, request: HttpRequest) -> HttpResponse:
        times = self._assembly.request_times
        slow = [] if times is None else [each._asdict() for each in reversed(times.slow)]
        return _json(HTTPStatus.OK, {"slowRequests": slow})

    async def _broker_state(self, request: HttpRequest) -> HttpResponse:
        state = self._state()
        told: dict[str, Any] = {"brokerState": int(state), "brokerStateName": state.name}
        if state is BrokerState.RECOVERY:
            progress = self._assembly.broker.logs.progress
            told["recoveryState"] = {"remainingLogsToRecover": progress.logs - progress.loaded}
        return _json(HTTPStatus.OK, told)

    async def _make_scraper(self) -> Scraper:
        async with self._making:
            if self._scraper is None:

                def load() -> Callable[..., Scraper]:
                    from barnabas.broker.metrics.sources import make_scraper  # half a hundred modules come with it

                    return make_scraper

                make = await asyncio.to_thread(load)
                self._scraper = make(self._assembly, self._state, self._server, self.event_loop)
        return self._scraper


def _checked(checks: Iterable[HealthCheck]) -> HttpResponse:
    checks = tuple(checks)
    ok = all(check.ok for check in checks)
    told = {
        "status": "ok" if ok else "failed",
        "checks": [{"name": each.name, "ok": each.ok, "reason": each.reason} for each in checks],
    }
    return _json(HTTPStatus.OK if ok else HTTPStatus.SERVICE_UNAVAILABLE, told)


def _json(status: HTTPStatus, value: object) -> HttpResponse:
    return HttpResponse(status, JSON, (json.dumps(value).encode() + b"\n",))
