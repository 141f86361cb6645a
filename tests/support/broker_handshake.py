"""Passing for a broker over a socket: the handshake of brokers, for tests that send what only brokers may.

The secret is read from the cluster's metadata tree, an SQLite file, as a broker does.
"""

from __future__ import annotations

import asyncio
import struct
from io import BytesIO
from typing import TYPE_CHECKING, Any

from kio.serial import entity_reader, entity_writer

from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.znodes import ClusterIdNode, SecretNode
from barnabas.model.errors import ErrorCode
from barnabas.protocol.messages import inter_broker
from barnabas.protocol.messages.broker_proof import Introduction

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.wire import Connection

NONCE = bytes(range(32))


def secret_of(metadata: Path) -> tuple[str, bytes]:
    """A cluster's id and its secret."""

    async def read() -> tuple[str, bytes]:
        store = SqliteStore(metadata)
        await store.start()
        try:
            cluster_id, secret = await store.get(ClusterIdNode.path), await store.get(SecretNode.path)
            return ClusterIdNode.decode(cluster_id.data), SecretNode.decode(secret.data)
        finally:
            await store.close()

    return asyncio.run(read())


def tell(connection: Connection, message: Any, client_id: str = "wire") -> Any:
    """Send a message of brokers; gives the response, or None when the connection was closed instead."""
    body = BytesIO()
    entity_writer(type(message))(body, message)
    name = client_id.encode()
    head = struct.pack(">hhih", message.__api_key__, message.__version__, 1, len(name)) + name + b"\0"
    connection.send_frame(head + body.getvalue())
    answer = connection.receive_frame()
    return None if answer is None else entity_reader(inter_broker.RESPONSES[message.__api_key__])(answer, 5)[0]


def introduction(cluster_id: str, broker_id: int, peer_id: int, nonce: bytes, acceptor_nonce: bytes) -> Introduction:
    """What a proof is about."""
    return Introduction(
        cluster_id=cluster_id,
        initiator=broker_id,
        acceptor=peer_id,
        initiator_nonce=nonce,
        acceptor_nonce=acceptor_nonce,
    )


def introduce(connection: Connection, metadata: Path, broker_id: int, peer_id: int) -> None:
    """Prove to broker `peer_id` that this connection is one of broker `broker_id`."""
    from kio.static.primitive import i32

    cluster_id, secret = secret_of(metadata)
    hello = inter_broker.BrokerHelloRequest(
        cluster_id=cluster_id, broker_id=i32(broker_id), peer_id=i32(peer_id), nonce=NONCE
    )
    answer = tell(connection, hello)
    assert answer.error_code is ErrorCode.none
    known = introduction(cluster_id, broker_id, peer_id, NONCE, answer.nonce)
    answer = tell(connection, inter_broker.BrokerProofRequest(proof=known.initiator_proof(secret)))
    assert answer.error_code is ErrorCode.none
    assert answer.proof == known.acceptor_proof(secret)
