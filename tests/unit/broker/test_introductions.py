"""Brokers prove to each other who they are, and nobody else can: not by replaying, reflecting or guessing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kio.static.primitive import i32

from barnabas.broker.handlers.introductions import hello, proof
from barnabas.broker.introductions import Introducer
from barnabas.machines.controller.image import ClusterImage
from barnabas.metadata.cache import MetadataCache
from barnabas.metadata.store import StoreError
from barnabas.model.errors import ApiError, ClusterAuthorizationFailed, ErrorCode, InconsistentClusterId
from barnabas.net.channel import ChannelBroken
from barnabas.protocol import bounds, internal
from barnabas.protocol.broker_proof import Introduction
from tests.support.images import CALLER, ClusterOf, proved, telling_broker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker

SECRET, OTHER = bytes(range(32)), bytes(32)
NONCE = b"n" * 32


def a_broker(secret: bytes = SECRET, broker_id: int = 1, properties: Mapping[str, str] | None = None) -> Broker:
    introducer = SimpleNamespace(secret=lambda: secret)
    broker = telling_broker(ClusterOf(), properties, cluster=SimpleNamespace(introducer=introducer))
    return replace(broker, broker_id=broker_id)


def a_caller() -> Caller:
    return replace(CALLER, peer=type(CALLER.peer)())


def greeting(broker: Broker, broker_id: int = 2, **fields: Any) -> internal.BrokerHelloRequest:
    asked = internal.BrokerHelloRequest(
        cluster_id=broker.metadata.image.cluster_id,
        broker_id=i32(broker_id),
        peer_id=i32(broker.broker_id),
        nonce=NONCE,
    )
    return replace(asked, **fields)


def between(broker: Broker, acceptor_nonce: bytes, broker_id: int = 2) -> Introduction:
    return Introduction(
        cluster_id=broker.metadata.image.cluster_id,
        initiator=broker_id,
        acceptor=broker.broker_id,
        initiator_nonce=NONCE,
        acceptor_nonce=acceptor_nonce,
    )


def asking(broker: Broker, caller: Caller) -> Any:
    """What an initiator asks with, of handlers in place of a connection."""

    async def ask(key: int, version: int, body: bytes) -> memoryview:
        request = bounds.read(internal.REQUESTS[key], memoryview(body), 0, 1000)
        from io import BytesIO

        from kio.serial import entity_writer

        try:
            response: Any = (hello if key == internal.BROKER_HELLO else proof)(broker, request, caller)
        except ApiError as error:
            empty = {"nonce": b""} if key == internal.BROKER_HELLO else {"proof": b""}
            response = internal.RESPONSES[key](error_code=error.code, **empty)
        buffer = BytesIO()
        entity_writer(type(response))(buffer, response)
        return memoryview(b"\0" + buffer.getvalue())

    return ask


def introducer(broker: Broker, secret: bytes = SECRET) -> Introducer:
    return Introducer(2, MetadataCache(ClusterImage(cluster_id=broker.metadata.image.cluster_id)), lambda: secret)


async def test_two_brokers_of_one_cluster_know_each_other() -> None:
    broker, caller = a_broker(), a_caller()
    assert caller.broker_id is None
    await introducer(broker).introduce(1, asking(broker, caller))
    assert caller.broker_id == 2


async def test_one_with_another_secret_is_not_believed() -> None:
    broker, caller = a_broker(), a_caller()
    with pytest.raises(ChannelBroken, match="cluster_authorization_failed"):
        await introducer(broker, OTHER).introduce(1, asking(broker, caller))
    assert caller.broker_id is None


async def test_who_takes_the_connection_has_to_prove_itself_too() -> None:
    broker = a_broker()

    async def ask(key: int, version: int, body: bytes) -> memoryview:
        """Somebody who says that every proof is right."""
        return memoryview(b"\0\0\0" + b"\x21" + NONCE + b"\0")

    with pytest.raises(ChannelBroken, match="does not know the cluster's secret"):
        await introducer(broker).introduce(1, ask)


async def test_the_wrong_broker_at_the_right_address_is_noticed() -> None:
    broker, caller = a_broker(broker_id=3), a_caller()
    with pytest.raises(ChannelBroken, match="cluster_authorization_failed"):
        await introducer(broker).introduce(1, asking(broker, caller))


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
        proof(broker, internal.BrokerProofRequest(proof=between(broker, b"").initiator_proof(SECRET)), caller)
    assert caller.broker_id is None


def test_a_proof_cannot_be_replayed() -> None:
    broker = a_broker()
    first, second = a_caller(), a_caller()
    nonce = hello(broker, greeting(broker), first).nonce
    right = internal.BrokerProofRequest(proof=between(broker, nonce).initiator_proof(SECRET))
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
        proof(broker, internal.BrokerProofRequest(proof=bytes(32)), caller)
    right = internal.BrokerProofRequest(proof=between(broker, nonce).initiator_proof(SECRET))
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, right, caller)


def test_a_proof_cannot_be_reflected() -> None:
    """Neither the acceptor's own proof, nor what another broker proves for itself, opens a connection."""
    broker, caller = a_broker(), a_caller()
    nonce = hello(broker, greeting(broker), caller).nonce
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, internal.BrokerProofRequest(proof=between(broker, nonce).acceptor_proof(SECRET)), caller)
    nonce = hello(broker, greeting(broker), caller).nonce
    swapped = replace(between(broker, nonce), initiator=1, acceptor=2)
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, internal.BrokerProofRequest(proof=swapped.initiator_proof(SECRET)), caller)
    nonce = hello(broker, greeting(broker, 3), caller).nonce
    with pytest.raises(ClusterAuthorizationFailed):
        proof(broker, internal.BrokerProofRequest(proof=between(broker, nonce).initiator_proof(SECRET)), caller)


def test_a_second_greeting_takes_back_what_was_proved() -> None:
    broker, caller = a_broker(), proved(2)
    hello(broker, greeting(broker, 3), caller)
    assert caller.broker_id is None


def test_brokers_with_a_listener_of_their_own_prove_themselves_there_only() -> None:
    apart = {
        "listeners": "PLAINTEXT://:9092,INTERNAL://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
    }
    broker = a_broker(properties=apart)
    with pytest.raises(ClusterAuthorizationFailed, match="listener"):
        hello(broker, greeting(broker), a_caller())
    assert hello(broker, greeting(broker), replace(a_caller(), listener="INTERNAL")).nonce


async def test_a_broker_that_does_not_know_the_secret_yet_says_so() -> None:
    def unknown() -> bytes:
        raise StoreError("the metadata store is not open")

    broker = a_broker()
    one = Introducer(2, MetadataCache(ClusterImage(cluster_id=broker.metadata.image.cluster_id)), unknown)
    with pytest.raises(ChannelBroken, match="cannot prove who it is now"):
        await one.introduce(1, asking(broker, a_caller()))
    broker.cluster.introducer.secret = unknown
    caller = a_caller()
    hello(broker, greeting(broker), caller)
    with pytest.raises(ClusterAuthorizationFailed, match="does not know"):
        proof(broker, internal.BrokerProofRequest(proof=bytes(32)), caller)
