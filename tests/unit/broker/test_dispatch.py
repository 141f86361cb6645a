"""What the dispatcher refuses, and what it hands on to the controller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.caller import Caller, Peer
from barnabas.broker.dispatch import Dispatcher, KnownClient
from barnabas.broker.partition import Partition
from barnabas.model.errors import ErrorCode, InvalidFrame, NotController
from barnabas.net.reply import HANG_UP, Parked
from barnabas.protocol import framing
from tests.support.images import ClusterOf, telling_broker
from tests.support.parts import make_topic, running_parts
from tests.support.wire import read_response, request

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from barnabas.broker.context import Broker

APART = {
    "listeners": "PLAINTEXT://:9092,INTERNAL://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
DELETE_RECORDS, ALTER_PARTITION, INCREMENTAL_ALTER_CONFIGS, CREATE_PARTITIONS = 21, 56, 44, 37
NO_CHANGES = {"broker_id": 1, "topics": []}
ONE_TOPIC = {"topics": [{"name": "t", "count": 2}], "validate_only": False}


class Link:
    """A controller elsewhere; `answer` is what it says after its correlation id."""

    def __init__(self, answer: bytes | None = b"answer") -> None:
        self.relayed: list[tuple[int, int, bytes, bool]] = []
        self._answer = answer

    async def relay(self, key: int, version: int, body: bytes, *, flexible: bool) -> memoryview | None:
        self.relayed.append((key, version, body, flexible))
        if self._answer is None:
            raise NotController("nobody is the controller")
        return memoryview(self._answer)


def out_of_office(link: Link, properties: Mapping[str, str] | None = None) -> Broker:
    return telling_broker(
        ClusterOf(), properties, controller=SimpleNamespace(is_active=False), cluster=SimpleNamespace(link=link)
    )


def connection(listener: str = "PLAINTEXT") -> Any:
    return SimpleNamespace(listener=listener, address=("127.0.0.1", 1), state=None)


def proved(one: Any, broker_id: int, client_id: bytes = b"wire") -> Any:
    """A connection of another broker, which has proved that it is one."""
    raw = len(client_id).to_bytes(2, "big") + client_id
    caller = Caller(listener=one.listener, address=one.address, client_id=client_id.decode(), peer=Peer(broker_id))
    one.state = KnownClient(raw, framing.HEADER.size + len(client_id), caller)
    return one


def serve(broker: Broker, frame: bytes, listener: str = "PLAINTEXT") -> Any:
    return Dispatcher(broker).serve(connection(listener), memoryview(frame))


async def _refuse(_: object) -> None:
    raise NotController("not here")


async def resolved(parked: Any) -> bytes:
    assert isinstance(parked, Parked)
    done = asyncio.Event()
    parked.notify = done.set
    if not parked.resolved:
        await asyncio.wait_for(done.wait(), 30)
    assert isinstance(parked.answer, bytes)
    return parked.answer


@pytest.mark.parametrize("listener", ["PLAINTEXT", "INTERNAL"])
def test_what_brokers_ask_is_refused_to_anybody_else(listener: str) -> None:
    broker = out_of_office(Link(), APART)
    with pytest.raises(InvalidFrame, match="for brokers of this cluster"):
        serve(broker, request(ALTER_PARTITION, 3, 1, NO_CHANGES), listener)


@pytest.mark.parametrize(
    ("broker_id", "error"), [(1, ErrorCode.not_controller), (2, ErrorCode.cluster_authorization_failed)]
)
async def test_who_has_proved_to_be_a_broker_may_ask_it_and_speaks_for_itself(broker_id: int, error: ErrorCode) -> None:
    broker = telling_broker(ClusterOf(), controller=SimpleNamespace(is_active=False, decide=_refuse))
    dispatcher, proved_one = Dispatcher(broker), proved(connection(), broker_id)
    frame = memoryview(request(ALTER_PARTITION, 3, 1, NO_CHANGES))
    answer = read_response(ALTER_PARTITION, 3, (await resolved(dispatcher.serve(proved_one, frame)))[4:], 1)
    assert answer.error_code is error


def test_a_proof_holds_for_the_client_id_that_it_was_given_with() -> None:
    broker = telling_broker(ClusterOf(), controller=SimpleNamespace(is_active=False, decide=_refuse))
    other = request(ALTER_PARTITION, 3, 1, NO_CHANGES).replace(b"\0\x04wire", b"\0\x04else")
    with pytest.raises(InvalidFrame, match="for brokers of this cluster"):
        Dispatcher(broker).serve(proved(connection(), 1), memoryview(other))


async def test_what_only_the_controller_can_answer_is_handed_on_as_it_came() -> None:
    broker = out_of_office(link := Link(b"what it says"))
    frame = request(CREATE_PARTITIONS, 3, 77, ONE_TOPIC)
    answer = await resolved(serve(broker, frame))
    assert answer[4:] == (77).to_bytes(4, "big") + b"what it says"
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    ((key, version, body, flexible),) = link.relayed
    assert (key, version, flexible) == (CREATE_PARTITIONS, 3, True)
    assert frame.endswith(body)


async def test_the_client_is_told_when_nobody_is_the_controller() -> None:
    answer = await resolved(serve(out_of_office(Link(None)), request(CREATE_PARTITIONS, 3, 1, ONE_TOPIC)))
    (result,) = read_response(CREATE_PARTITIONS, 3, answer[4:], 1).results
    assert (result.name, result.error_code) == ("t", ErrorCode.not_controller)


def test_a_request_is_handed_on_once_only() -> None:
    broker = out_of_office(link := Link())
    frame = request(CREATE_PARTITIONS, 3, 1, ONE_TOPIC).replace(b"\0\x04wire", b"\0\x12broker-2-forwarded")
    from_broker = proved(connection(), 2, b"broker-2-forwarded")
    assert Dispatcher(broker).serve(from_broker, memoryview(frame)) is HANG_UP
    assert not link.relayed


@pytest.mark.parametrize(
    ("kind", "name", "handed_on"), [(2, "t", True), (4, "", True), (4, "1", False), (8, "1", False)]
)
async def test_a_brokers_own_settings_are_its_own_affair(kind: int, name: str, handed_on: bool) -> None:
    broker = out_of_office(link := Link())
    resources = [{"resource_type": kind, "resource_name": name, "configs": []}]
    values = {"resources": resources, "validate_only": True}
    await resolved(serve(broker, request(INCREMENTAL_ALTER_CONFIGS, 1, 1, values)))
    assert bool(link.relayed) is handed_on


@pytest.mark.parametrize("abandoned", [True, False], ids=["whose client has gone", "when the broker stops"])
async def test_a_request_that_would_wait_for_weeks_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, abandoned: bool
) -> None:
    monkeypatch.setattr(Partition, "low_watermark", lambda _: -1)
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 0}]}]
    frame = request(DELETE_RECORDS, 2, 1, {"topics": topics, "timeout": 2**31 - 1})
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        dispatcher = Dispatcher(broker)
        parked = dispatcher.serve(connection(), memoryview(frame))
        assert isinstance(parked, Parked)
        if abandoned:
            await asyncio.sleep(0)
            parked.abandon()
        async with asyncio.timeout(30):
            await dispatcher.finish(3600 if abandoned else 0)
    assert not parked.resolved
    assert ("will not be" in caplog.text) is not abandoned
