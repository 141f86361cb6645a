"""The other brokers: their addresses, and channels to them.

A channel is opened with the first request to a broker, and anew when the broker has another address. A broker answers
one request of a connection at a time, so requests that must not wait for each other have a purpose, and so a channel,
of their own. When a broker's registration goes, requests to it fail at once. On each connection the two brokers first
prove to each other who they are (`broker_handshake`).
"""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from barnabas.model.errors import InvalidFrame
from barnabas.net.channel import Channel, ChannelBroken, ChannelOptions
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from barnabas.broker.controller.broker_handshake import BrokerHandshake
    from barnabas.broker.settings import Settings
    from barnabas.metadata.images.cache import Delta, Endpoint, MetadataCache

    MakeChannel = Callable[[str, int, ChannelOptions], Channel]


class Peers:
    """Every broker but this one."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        settings: Settings,
        handshake: BrokerHandshake,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        make_channel: MakeChannel = Channel,
    ) -> None:
        self._broker_id = broker_id
        self._handshake = handshake
        self._tls = tls
        self._make_channel = make_channel
        self._metadata = metadata
        self._settings = settings
        self._listener = settings.static.inter_broker_listener
        self._channels: dict[tuple[int, str], Channel] = {}

    def endpoint(self, broker_id: int) -> Endpoint | None:
        """The address at which a broker serves other brokers; None if it is not up."""
        broker = self._metadata.image.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(self._listener)

    def open(self, broker_id: int, purpose: str) -> Channel:
        """A new channel that nobody else uses. Raises ChannelBroken when the broker is not up."""
        endpoint = self.endpoint(broker_id)
        if endpoint is None:
            raise ChannelBroken(f"broker {broker_id} is not up")
        number = self._settings.number
        return self._make_channel(
            endpoint.host,
            endpoint.port,
            ChannelOptions(
                client_id=f"broker-{self._broker_id}-{purpose}",
                connect_seconds=number("controller.socket.timeout.ms") / 1000,
                max_response=number("socket.request.max.bytes"),
                handshake=partial(self._handshake.perform, broker_id, endpoint.host),
                tls=self._tls,
            ),
        )

    async def ask(
        self, broker_id: int, request: Any, response_class: type, *, seconds: float, purpose: str = "requests"
    ) -> Any:
        """Send a request in the version that it has; gives the response. Raises ChannelBroken."""
        from kio.serial import entity_writer  # here: a broker that is alone starts without it

        body = BytesIO()
        entity_writer(type(request))(body, request)
        data = await self._channel(broker_id, purpose).ask(
            request.__api_key__, request.__version__, [body.getvalue()], flexible=request.__flexible__, seconds=seconds
        )
        return _read(broker_id, response_class, data, flexible=request.__flexible__)

    async def ask_packed(
        self,
        broker_id: int,
        key: int,
        version: int,
        body: Sequence[bytes],
        response_class: type,
        *,
        seconds: float,
        purpose: str,
    ) -> Any:
        """Send a request that is packed already, in a flexible version. Raises ChannelBroken."""
        channel = self._channel(broker_id, purpose)
        data = await channel.ask(key, version, body, flexible=True, seconds=seconds)
        return _read(broker_id, response_class, data, flexible=True)

    def _channel(self, broker_id: int, purpose: str) -> Channel:
        endpoint = self.endpoint(broker_id)
        known = self._channels.get((broker_id, purpose))
        if known is not None and endpoint is not None and (known.host, known.port) == (endpoint.host, endpoint.port):
            return known
        if known is not None:
            del self._channels[broker_id, purpose]
            known.close()
        channel = self._channels[broker_id, purpose] = self.open(broker_id, purpose)
        return channel

    def on_change(self, delta: Delta) -> None:
        """Close the channels to brokers that are not up any more: requests that wait for one that hangs fail."""
        if delta.before.brokers is not delta.after.brokers:
            for key in [key for key in self._channels if self.endpoint(key[0]) is None]:
                self._channels.pop(key).close()

    def close(self) -> None:
        """Close every channel."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


def _read(broker_id: int, response_class: type, data: memoryview, *, flexible: bool) -> Any:
    try:
        return bounds.read(response_class, data, 1 if flexible else 0, bounds.MAX_INTERNAL_ELEMENTS)
    except InvalidFrame as error:
        raise ChannelBroken(f"broker {broker_id} sent a response that cannot be read: {error}") from error
