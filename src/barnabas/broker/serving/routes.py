"""How one version of an API is served: its handler, its codec and what decides who may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.broker.serving.registry import Callers
from barnabas.protocol.wire import codec

if TYPE_CHECKING:
    from barnabas.broker.security.metering import Meter
    from barnabas.broker.serving.registry import Api


class Route:
    """One version of an API: its handler and its codec, which are loaded when it is first asked for.

    `is_judged` says whether anything decides who may ask, before the handler; `is_plain`, that nothing does, and that
    the request is served here.
    """

    __slots__ = (
        "api",
        "brokers_only",
        "check",
        "decode",
        "encode",
        "flexible",
        "handler",
        "is_judged",
        "is_plain",
        "metered",
        "raw",
        "response",
        "usual",
        "version",
    )

    meter: Meter | None = None
    """Counts the request that is served against its client's quotas (`MeteredRoute`)."""

    def __init__(self, api: Api, version: int, *, has_authorizer: bool) -> None:
        self.api = api
        self.version = version
        self.flexible = version >= api.format.flexible_from
        self.brokers_only = api.callers is Callers.BROKERS
        self.raw = api.raw
        self.handler = api.load()
        self.usual = api.load_usual()
        self.check = api.needs.load() if has_authorizer else None
        self.is_judged = self.check is not None or api.callers is Callers.TRUSTED
        self.is_plain = not (self.is_judged or api.forwarded)
        if api.raw:
            self.metered = api.load_metered()
        else:
            self.decode = codec.decoder(api.key, version, api.newest)
            self.encode = codec.encoder(api.key, version)
            self.response = codec.handled_response_class(api.key, api.newest)

    def __str__(self) -> str:
        return f"{self.api.key.name} v{self.version}"


class MeteredRoute(Route):
    """The same for one request of a client, while there are quotas: its time counts, and its response tells a wait."""

    __slots__ = ("_plain", "meter")

    def __init__(self, plain: Route, meter: Meter) -> None:
        self._plain = plain
        self.meter: Meter = meter
        self.api, self.version, self.flexible = plain.api, plain.version, plain.flexible
        self.brokers_only, self.raw, self.response = plain.brokers_only, plain.raw, plain.response
        self.is_judged, self.is_plain = plain.is_judged, plain.is_plain
        self.check = None if plain.check is None else meter.timed(plain.check)
        self.decode = meter.timed(plain.decode)
        self.handler = meter.timed(plain.handler)
        self.encode = meter.timed(self._encode)

    def _encode(self, correlation_id: int, response: Any) -> bytes:
        return self._plain.encode(correlation_id, self.meter.stamp(response))
