"""What the dispatcher refuses, and what it hands on to the controller."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.partition import Partition
from barnabas.model.errors import ErrorCode, InvalidFrame, NotController
from barnabas.net.reply import HANG_UP, Parked
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


def test_what_brokers_ask_is_refused_on_other_listeners() -> None:
    broker = out_of_office(Link(), APART)
    with pytest.raises(InvalidFrame, match="for brokers only"):
        serve(broker, request(ALTER_PARTITION, 3, 1, NO_CHANGES))


async def test_it_is_taken_on_theirs_and_where_there_is_only_one() -> None:
    frame = request(ALTER_PARTITION, 3, 1, NO_CHANGES)
    for listener, properties in (("INTERNAL", APART), ("PLAINTEXT", {})):
        controller = SimpleNamespace(is_active=False, decide=_refuse)
        broker = telling_broker(ClusterOf(), properties, controller=controller)
        answer = read_response(ALTER_PARTITION, 3, (await resolved(serve(broker, frame, listener)))[4:], 1)
        assert answer.error_code is ErrorCode.not_controller


async def test_who_asks_it_where_clients_are_too_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    frame = memoryview(request(ALTER_PARTITION, 3, 1, NO_CHANGES))
    for listener, properties, noted in (("INTERNAL", APART, 0), ("PLAINTEXT", {}, 1)):
        broker = telling_broker(ClusterOf(), properties, controller=SimpleNamespace(is_active=False, decide=_refuse))
        dispatcher, one = Dispatcher(broker), connection(listener)
        for _ in range(2):
            await resolved(dispatcher.serve(one, frame))
        assert caplog.text.count("wire at 127.0.0.1:1 asks ALTER_PARTITION as a broker, where clients are too") == noted


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
    assert serve(broker, frame) is HANG_UP
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
