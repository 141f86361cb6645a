"""The interceptor in front of a dispatcher that is only played: what reaches it, when, and in what shape."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.broker.faults.delayed_request import DelayedRequest, give_up, lost
from barnabas.broker.faults.interceptor import Interceptor
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.faults import FaultRule, InvalidFault
from tests.support.wire import request

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.net.connection import Connection

HEARTBEAT = request(ApiKey.HEARTBEAT, 4, 1, {"group_id": "g"})
LIST_GROUPS = request(ApiKey.LIST_GROUPS, 4, 1, {})
NOBODY = cast("Connection", object())


class Scene:
    """An interceptor, and the frames that came through."""

    def __init__(self, answer: Answer | Parked = b"served") -> None:
        self.served: list[bytes] = []
        self._answer = answer
        self.interceptor = Interceptor(cast("BrokerContext", object()), self._serve)

    def _serve(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        self.served.append(bytes(frame))
        return self._answer

    def ask(self, frame: bytes) -> Any:
        return self.interceptor.serve(NOBODY, memoryview(bytearray(frame)))


def test_without_faults_everything_is_served() -> None:
    scene = Scene()
    assert scene.ask(HEARTBEAT) == b"served"
    assert scene.ask(b"\x7f\xff" + bytes(8)) == b"served", "what is no request is the dispatcher's to refuse"


def test_what_no_fault_is_meant_for_is_served() -> None:
    scene = Scene()
    scene.interceptor.add(FaultRule(kind="drop", api=ApiKey.HEARTBEAT, group="another"))
    scene.interceptor.add(FaultRule(kind="drop", api=ApiKey.HEARTBEAT, client_id="another"))
    assert [scene.ask(HEARTBEAT), scene.ask(LIST_GROUPS)] == [b"served", b"served"]
    assert scene.ask(b"\x7f\xff" + bytes(8)) == b"served"


def test_a_fault_happens_as_often_as_it_should() -> None:
    scene = Scene()
    number = scene.interceptor.add(FaultRule(kind="drop", api=None, times=2))
    assert [scene.ask(HEARTBEAT) for _ in range(3)] == [HANG_UP, HANG_UP, b"served"]
    assert scene.interceptor.find(number).fired == 2
    assert scene.interceptor.remove(number).fired == 2
    assert scene.interceptor.find(number).fired == 2


def test_a_refusal_does_not_reach_the_dispatcher() -> None:
    scene = Scene()
    scene.interceptor.add(FaultRule(kind="fail", api=ApiKey.HEARTBEAT, error=ErrorCode.unknown_member_id, group="g"))
    assert int(ErrorCode.unknown_member_id).to_bytes(2, "big") in scene.ask(HEARTBEAT)
    assert scene.served == []


def test_clearing_removes_everything() -> None:
    scene = Scene()
    for _ in range(2):
        scene.interceptor.add(FaultRule(kind="drop", api=None))
    scene.interceptor.add_move("t", 0, [])
    assert scene.interceptor.clear() == 2
    assert scene.ask(HEARTBEAT) == b"served"


def test_a_fault_for_what_is_not_served_is_refused() -> None:
    with pytest.raises(InvalidFault, match="there is no fault 7"):
        Scene().interceptor.find(7)


async def test_a_delayed_request_is_served_from_a_copy() -> None:
    scene = Scene()
    number = scene.interceptor.add(FaultRule(kind="delay", api=None, seconds=3600))
    frame = memoryview(bytearray(HEARTBEAT))
    parked = scene.interceptor.serve(NOBODY, frame)
    frame[:] = bytes(len(frame))
    assert isinstance(parked, Parked)
    assert scene.served == []
    scene.interceptor.remove(number)
    assert (parked.answer, scene.served) == (b"served", [HEARTBEAT])


async def test_a_delayed_answer_was_served_before() -> None:
    scene = Scene()
    number = scene.interceptor.add(FaultRule(kind="delay", api=None, seconds=3600, when="after"))
    parked = scene.ask(HEARTBEAT)
    assert (parked.resolved, scene.served) == (False, [HEARTBEAT])
    scene.interceptor.remove(number)
    assert parked.answer == b"served"


async def test_a_delay_ends_in_time() -> None:
    scene = Scene()
    scene.interceptor.add(FaultRule(kind="delay", api=None, seconds=0.001))
    parked = scene.ask(HEARTBEAT)
    resolved = asyncio.Event()
    parked.notify = resolved.set
    await asyncio.wait_for(resolved.wait(), 30)
    assert parked.answer == b"served"


async def test_who_waits_is_hung_up_on_when_the_broker_stops() -> None:
    scene = Scene()
    scene.interceptor.add(FaultRule(kind="delay", api=None, seconds=3600))
    parked = scene.ask(HEARTBEAT)
    scene.interceptor.close()
    assert (parked.answer, scene.served) == (HANG_UP, [])


async def test_who_leaves_while_held_is_not_served() -> None:
    scene = Scene()
    number = scene.interceptor.add(FaultRule(kind="delay", api=None, seconds=3600))
    scene.ask(HEARTBEAT).abandon()
    assert scene.interceptor.remove(number).held == set()
    assert scene.served == []


async def test_who_leaves_after_it_was_let_go_abandons_what_it_waits_for() -> None:
    inner = Parked()
    scene = Scene(inner)
    number = scene.interceptor.add(FaultRule(kind="delay", api=None, seconds=3600))
    parked = scene.ask(HEARTBEAT)
    scene.interceptor.remove(number)
    parked.abandon()
    assert inner.abandoned


async def test_what_cannot_be_served_later_ends_its_connection() -> None:
    def refuse() -> Answer:
        raise InvalidFrame("no request")

    held = DelayedRequest(0, refuse, give_up=lambda: None, done=lambda held: None)
    held.let_go()
    assert held.parked.answer is HANG_UP


def test_an_answer_is_lost_when_it_is_there() -> None:
    inner = Parked()
    outer = lost(inner)
    assert isinstance(outer, Parked)
    assert not outer.resolved
    inner.resolve(b"taken effect")
    assert outer.answer is HANG_UP


def test_an_answer_that_is_there_is_lost_at_once() -> None:
    inner = Parked()
    inner.resolve(b"taken effect")
    outer = lost(inner)
    assert isinstance(outer, Parked)
    assert outer.answer is HANG_UP
    give_up(inner)
    assert inner.abandoned


async def test_a_fault_is_waited_for() -> None:
    scene = Scene()
    active = scene.interceptor.find(scene.interceptor.add(FaultRule(kind="drop", api=None)))
    assert not await active.has_happened(1, 0.001)
    waiting = asyncio.create_task(active.has_happened(2, 10))
    await asyncio.sleep(0)
    scene.ask(HEARTBEAT)
    scene.ask(HEARTBEAT)
    assert await waiting
    assert await active.has_happened(1, 10)
