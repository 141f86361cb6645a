"""The handshake on every connection that one broker of a cluster opens to another: both prove who they are.

The cluster's secret is in the metadata tree, which only brokers can read (`protocol/messages/broker_proof` says how it
is used). Requests that only brokers may send are served on a connection whose other end has proved to be one, and it
speaks for itself only: as the controller or the replica that it proved to be.

Where the listener for brokers uses SASL, a broker first logs in there, like any client (`broker/security`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barnabas.metadata.stores.store import StoreError
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.net.channel import Ask


class BrokerHandshake:
    """Proves to others who this broker is; `secret` gives the cluster's, and raises StoreError before it is known."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        secret: Callable[[], bytes],
        log_in: Callable[[Ask, str], Awaitable[float | None]] | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._log_in = log_in
        self._metadata = metadata
        self.secret = secret

    async def perform(self, acceptor: int, host: str, ask: Ask) -> float | None:
        """Prove this broker's id over a new connection to a host, and check the other end's proof.

        Raises ChannelBroken. Gives the seconds after which this broker has to do so over another connection, None if it
        has not.
        """
        seconds = None if self._log_in is None else await self._log_in(ask, host)
        await self._prove(acceptor, ask)
        return seconds

    async def _prove(self, acceptor: int, ask: Ask) -> None:
        from kio.static.primitive import i32  # here: a broker that is alone starts without it

        from barnabas.protocol.messages import inter_broker
        from barnabas.protocol.messages.broker_proof import NONCE_BYTES, Introduction, is_same

        cluster_id, nonce = self._metadata.image.cluster_id, os.urandom(NONCE_BYTES)
        hello: inter_broker.BrokerHelloResponse = await self._ask(
            ask,
            inter_broker.BrokerHelloRequest(
                cluster_id=cluster_id, broker_id=i32(self._broker_id), peer_id=i32(acceptor), nonce=nonce
            ),
            acceptor,
        )
        introduction = Introduction(
            cluster_id=cluster_id,
            initiator=self._broker_id,
            acceptor=acceptor,
            initiator_nonce=nonce,
            acceptor_nonce=hello.nonce,
        )
        try:
            secret = self.secret()
        except StoreError as error:
            raise ChannelBroken(f"this broker cannot prove who it is: {error}") from error
        answer: inter_broker.BrokerProofResponse = await self._ask(
            ask, inter_broker.BrokerProofRequest(proof=introduction.initiator_proof(secret)), acceptor
        )
        if not is_same(answer.proof, introduction.acceptor_proof(secret)):
            raise ChannelBroken(f"the process at the address of broker {acceptor} does not know the cluster's secret")

    async def _ask(self, ask: Ask, request: Any, acceptor: int) -> Any:
        from io import BytesIO

        from kio.serial import entity_writer

        from barnabas.protocol.messages.inter_broker import RESPONSES
        from barnabas.protocol.wire import bounds

        body = BytesIO()
        entity_writer(type(request))(body, request)
        data = await ask(request.__api_key__, request.__version__, body.getvalue())
        try:
            response: Any = bounds.read(RESPONSES[request.__api_key__], data, 1, bounds.MAX_INTERNAL_ELEMENTS)
        except InvalidFrame as error:
            raise ChannelBroken(f"broker {acceptor} sent a response that cannot be read: {error}") from error
        if response.error_code is not ErrorCode.none:
            raise ChannelBroken(f"broker {acceptor} refused the handshake of this broker: {response.error_code.name}")
        return response
