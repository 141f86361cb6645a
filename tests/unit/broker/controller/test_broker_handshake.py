"""Brokers prove to each other who they are, and nobody else can: not by replaying, reflecting or guessing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from kio.static.primitive import i32

from barnabas.broker.controller.broker_handshake import BrokerHandshake
from barnabas.broker.handlers.broker_handshake import hello, proof
from barnabas.machines.controller.image import ClusterImage
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.stores.store import StoreError
from barnabas.model.errors import ApiError, ClusterAuthorizationFailed, ErrorCode, InconsistentClusterId
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import inter_broker
from barnabas.protocol.messages.broker_proof import Introduction
from barnabas.protocol.wire import bounds
from tests.support.images import CALLER, ClusterOf, proved, telling_broker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller

SECRET, OTHER = bytes(range(32)), bytes(32)
NONCE = b"n" * 32


def a_broker(secret: bytes = SECRET, broker_id: int = 1, properties: Mapping[str, str] | None = None) -> BrokerContext:
    handshake = SimpleNamespace(secret=lambda: secret)
    broker = telling_broker(ClusterOf(), properties, handshake=handshake)
    return replace(broker, broker_id=broker_id)


def a_caller() -> Caller:
    return replace(CALLER, session=type(CALLER.session)())


def greeting(broker: BrokerContext, broker_id: int = 2, **fields: Any) -> inter_broker.BrokerHelloRequest:
    asked = inter_broker.BrokerHelloRequest(
        cluster_id=broker.metadata.image.cluster_id,
        broker_id=i32(broker_id),
        peer_id=i32(broker.broker_id),
        nonce=NONCE,
    )
    return replace(asked, **fields)


def between(broker: BrokerContext, acceptor_nonce: bytes, broker_id: int = 2) -> Introduction:
    return Introduction(
        cluster_id=broker.metadata.image.cluster_id,
        initiator=broker_id,
        acceptor=broker.broker_id,
        initiator_nonce=NONCE,
        acceptor_nonce=acceptor_nonce,
    )


def asking(broker: BrokerContext, caller: Caller) -> Any:
    """What an initiator asks with, of handlers in place of a connection."""

    async def ask(key: int, version: int, body: bytes) -> memoryview:
        request = bounds.read(inter_broker.REQUESTS[key], memoryview(body), 0, 1000)
        from io import BytesIO

        from kio.serial import entity_writer

        try:
            response: Any = (hello if key == ApiKey.BROKER_HELLO else proof)(broker, request, caller)
        except ApiError as error:
            empty = {"nonce": b""} if key == ApiKey.BROKER_HELLO else {"proof": b""}
            response = inter_broker.RESPONSES[key](error_code=error.code, **empty)
        buffer = BytesIO()
        entity_writer(type(response))(buffer, response)
        return memoryview(b"\0" + buffer.getvalue())

    return ask


def handshake(broker: BrokerContext, secret: bytes = SECRET) -> BrokerHandshake:
    return BrokerHandshake(2, MetadataCache(ClusterImage(cluster_id=broker.metadata.image.cluster_id)), lambda: secret)


async def test_two_brokers_of_one_cluster_know_each_other() -> None:
    broker, caller = a_broker(), a_caller()
    assert caller.broker_id is None
    await handshake(broker).perform(1, "localhost", asking(broker, caller))
    assert caller.broker_id == 2


async def test_one_with_another_secret_is_not_believed() -> None:
    broker, caller = a_broker(), a_caller()
    with pytest.raises(ChannelBroken, match="cluster_authorization_failed"):
        await handshake(broker, OTHER).perform(1, "localhost", asking(broker, caller))
    assert caller.broker_id is None


async def test_who_takes_the_connection_has_to_prove_itself_too() -> None:
    broker = a_broker()

    async def ask(key: int, version: int, body: bytes, *, flexible: bool = True) -> memoryview:
        """Somebody who says that every proof is right."""
        return memoryview(b"\0\0\0" + b"\x21" + NONCE + b"\0")

    with pytest.raises(ChannelBroken, match="does not know the cluster's secret"):
        await handshake(broker).perform(1, "localhost", ask)


async def test_the_wrong_broker_at_the_right_address_is_noticed() -> None:
    broker, caller = a_broker(broker_id=3), a_caller()
    with pytest.raises(ChannelBroken, match="cluster_authorization_failed"):
        await handshake(broker).perform(1, "localhost", asking(broker, caller))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "another"}, InconsistentClusterId),
        ({"peer_id": i32(7)}, ClusterAuthorizationFailed),
        ({"broker_id": i32(1)}, ClusterAuthorizationFailed),
        ({"broker_id": i32(-1)}, ClusterAuthorizationFailed),
        ({"nonce": b""}, ClusterAuthorizationFailed),
        ({"nonce": NONCE + b"n"}, ClusterAuthorizationFailed),
    ],
    ids=["another cluster", "another broker", "itself", "nobody", "no nonce", "a long nonce"],
)
def test_what_is_wrong_from_the_start(fields: dict[str, Any], error: type[ApiError]) -> None:
    broker, caller = a_broker(), a_caller()
    with pytest.raises(error):
        hello(broker, greeting(broker, **fields), caller)
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, inter_broker.BrokerProofRequest(proof=between(broker, b"").initiator_proof(SECRET)), caller)
    assert caller.broker_id is None


def test_a_proof_cannot_be_replayed() -> None:
    broker = a_broker()
    first, second = a_caller(), a_caller()
    nonce = hello(broker, greeting(broker), first).nonce
    right = inter_broker.BrokerProofRequest(proof=between(broker, nonce).initiator_proof(SECRET))
    assert proof(broker, right, first).error_code is ErrorCode.none
    hello(broker, greeting(broker), second)
    with pytest.raises(ClusterAuthorizationFailed, match="wrong"):
        proof(broker, right, second)
    with pytest.raises(ClusterAuthorizationFailed, match="once"):
        proof(broker, right, second)
    assert second.broker_id is None


def test_a_wrong_proof_uses_its_nonce_up() -> None:
    broker, caller = a_broker(), a_caller()
    nonce = hello(broker, greeting(broker), caller).nonce
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, inter_broker.BrokerProofRequest(proof=bytes(32)), caller)
    right = inter_broker.BrokerProofRequest(proof=between(broker, nonce).initiator_proof(SECRET))
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, right, caller)


def test_a_proof_cannot_be_reflected() -> None:
    """Neither the acceptor's own proof, nor what another broker proves for itself, opens a connection."""
    broker, caller = a_broker(), a_caller()
    nonce = hello(broker, greeting(broker), caller).nonce
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, inter_broker.BrokerProofRequest(proof=between(broker, nonce).acceptor_proof(SECRET)), caller)
    nonce = hello(broker, greeting(broker), caller).nonce
    swapped = between(broker, nonce)._replace(initiator=1, acceptor=2)
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, inter_broker.BrokerProofRequest(proof=swapped.initiator_proof(SECRET)), caller)
    nonce = hello(broker, greeting(broker, 3), caller).nonce
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, inter_broker.BrokerProofRequest(proof=between(broker, nonce).initiator_proof(SECRET)), caller)


def test_a_second_greeting_takes_back_what_was_proved() -> None:
    broker, caller = a_broker(), proved(2)
    hello(broker, greeting(broker, 3), caller)
    assert caller.broker_id is None


def test_brokers_prove_themselves_on_every_listener_so_that_theirs_can_be_changed_by_a_roll() -> None:
    apart = {
        "listeners": "PLAINTEXT://:9092,INTERNAL://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    broker = a_broker(properties=apart)
    for listener in ("PLAINTEXT", "INTERNAL"):
        assert hello(broker, greeting(broker), replace(a_caller(), listener=listener)).nonce


async def test_a_broker_that_does_not_know_the_secret_yet_says_so() -> None:
    def unknown() -> bytes:
        raise StoreError("the metadata store is not open")

    broker = a_broker()
    one = BrokerHandshake(2, MetadataCache(ClusterImage(cluster_id=broker.metadata.image.cluster_id)), unknown)
    with pytest.raises(ChannelBroken, match="cannot prove who it is"):
        await one.perform(1, "localhost", asking(broker, a_caller()))
    broker = replace(broker, handshake=cast("BrokerHandshake", SimpleNamespace(secret=unknown)))
    caller = a_caller()
    hello(broker, greeting(broker), caller)
    with pytest.raises(ClusterAuthorizationFailed, match="cannot read the cluster's secret"):
        proof(broker, inter_broker.BrokerProofRequest(proof=bytes(32)), caller)
