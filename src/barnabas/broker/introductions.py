"""Brokers of a cluster introduce themselves to each other on every connection that one makes to another.

The cluster's secret is in the metadata tree, which only brokers can read (`protocol/broker_proof` says how it is used).
What only brokers may ask is served on a connection whose other end has proved to be one, and it speaks for itself only:
as the controller or the replica that it proved to be.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from barnabas.metadata.store import StoreError
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.broker_proof import NONCE_BYTES, Introduction, is_same

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from barnabas.metadata.cache import MetadataCache
    from barnabas.net.channel import Ask


class Introducer:
    """Proves to others who this broker is; `secret` gives the cluster's, and raises StoreError before it is known."""

    def __init__(self, broker_id: int, metadata: MetadataCache, secret: Callable[[], bytes]) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self.secret = secret

    async def introduce(self, acceptor: int, ask: Ask) -> None:
        """Introduce this broker over a new connection, and have the other end do the same. Raises ChannelBroken."""
        from kio.static.primitive import i32  # here: a broker that is alone starts without it

        from barnabas.protocol import internal

        cluster_id, nonce = self._metadata.image.cluster_id, secrets.token_bytes(NONCE_BYTES)
        hello: internal.BrokerHelloResponse = await self._ask(
            ask,
            internal.BrokerHelloRequest(
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
            raise ChannelBroken(f"this broker cannot prove who it is now: {error}") from error
        answer: internal.BrokerProofResponse = await self._ask(
            ask, internal.BrokerProofRequest(proof=introduction.initiator_proof(secret)), acceptor
        )
        if not is_same(answer.proof, introduction.acceptor_proof(secret)):
            raise ChannelBroken(f"who answers for broker {acceptor} does not know the cluster's secret")

    async def _ask(self, ask: Ask, request: Any, acceptor: int) -> Any:
        from io import BytesIO

        from kio.serial import entity_writer

        from barnabas.protocol import bounds
        from barnabas.protocol.internal import RESPONSES

        body = BytesIO()
        entity_writer(type(request))(body, request)
        data = await ask(request.__api_key__, request.__version__, body.getvalue())
        try:
            response: Any = bounds.read(RESPONSES[request.__api_key__], data, 1, bounds.MAX_INTERNAL_ELEMENTS)
        except InvalidFrame as error:
            raise ChannelBroken(f"broker {acceptor} sent what cannot be read: {error}") from error
        if response.error_code is not ErrorCode.none:
            raise ChannelBroken(
                f"broker {acceptor} does not take this one for a broker of its cluster: {response.error_code.name}"
            )
        return response
