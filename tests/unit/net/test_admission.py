"""How many connections come in, and how fast."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.net.admission import Admission, ConnectionLimits, ListenerLimits
from barnabas.net.server import Limits
from tests.support.servers import Rig, connect, frame, hang_up, read_answer, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def admission(**limits: object) -> Admission:
    return Admission(ConnectionLimits(**limits))  # type: ignore[arg-type]  # whatever the test gives


def test_a_broker_and_a_listener_have_their_own_limits() -> None:
    counted = admission(max_connections=3, listeners={"A": ListenerLimits(max_connections=1)})
    assert not counted.is_full("A")
    counted.add("A", "1.1.1.1")
    assert counted.is_full("A")
    assert not counted.is_full("B")
    counted.add("B", "1.1.1.1")
    counted.add("B", "1.1.1.1")
    assert counted.is_full("B")
    counted.remove("B", "1.1.1.1")
    assert not counted.is_full("B")


def test_an_address_has_its_own_limit_or_that_of_all() -> None:
    counted = admission(max_connections_per_ip=1, per_ip_overrides={"2.2.2.2": 2, "3.3.3.3": 0})
    for ip in ("1.1.1.1", "2.2.2.2"):
        assert not counted.is_refused(ip)
        counted.add("A", ip)
    assert counted.is_refused("1.1.1.1")
    assert not counted.is_refused("2.2.2.2")
    assert counted.is_refused("3.3.3.3")
    counted.remove("A", "1.1.1.1")
    assert not counted.is_refused("1.1.1.1")


def test_brokers_come_in_though_clients_have_taken_all_places() -> None:
    counted = admission(max_connections=1, inter_broker_listener="BROKERS")
    counted.add("CLIENTS", "1.1.1.1")
    assert counted.is_full("CLIENTS")
    assert not counted.is_full("BROKERS")
    counted.add("BROKERS", "1.1.1.2")
    assert counted.is_overfull


def test_connections_come_no_faster_than_they_may() -> None:
    counted = admission(creation_rate=10, listeners={"A": ListenerLimits(creation_rate=2)})
    came = 0
    for tenth in range(50):
        while not counted.wait_seconds("A", tenth / 10):
            counted.add("A", "1.1.1.1")
            came += 1
    assert 10 <= came <= 12  # five seconds, and those of the first at once
    counted = admission(creation_rate=10, inter_broker_listener="BROKERS")
    for _ in range(100):
        assert counted.wait_seconds("BROKERS", 0.0) == 0
        counted.add("BROKERS", "1.1.1.1")
    assert counted.wait_seconds("CLIENTS", 0.0) == 0


def test_no_rate_lets_nobody_in_and_no_limit_everybody() -> None:
    counted = admission(creation_rate=0)
    assert counted.wait_seconds("A", 100.0) > 0
    counted.change_limits(ConnectionLimits())
    assert counted.wait_seconds("A", 100.0) == 0


async def test_a_connection_beyond_the_limit_waits_until_another_is_closed(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        first, first_writer = await connect(rig)
        first_writer.write(frame(b"first"))
        assert await read_answer(first) == b"first"
        second, second_writer = await connect(rig)  # the system's backlog takes it
        second_writer.write(frame(b"second"))
        waiting = asyncio.ensure_future(read_answer(second))
        first_writer.write(frame(b"again"))
        assert await read_answer(first) == b"again"
        assert not waiting.done()
        assert rig.seen == [b"first", b"again"]
        await hang_up(first_writer)
        assert await waiting == b"second"
        await hang_up(second_writer)

    await run(Rig(limits=Limits(connections=ConnectionLimits(max_connections=1))), executor, story)


async def test_the_quietest_client_makes_room_for_a_broker(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        port = rig.server.listen("BROKERS", "127.0.0.1", 0)
        rig.server.accept()
        quiet, quiet_writer = await connect(rig)
        quiet_writer.write(frame(b"quiet"))
        assert await read_answer(quiet) == b"quiet"
        loud, loud_writer = await connect(rig)
        loud_writer.write(frame(b"loud"))
        assert await read_answer(loud) == b"loud"
        broker, broker_writer = await asyncio.open_connection("127.0.0.1", port)
        broker_writer.write(frame(b"broker"))
        assert await read_answer(broker) == b"broker"
        assert await quiet.read() == b""
        loud_writer.write(frame(b"still here"))
        assert await read_answer(loud) == b"still here"
        for writer in (quiet_writer, loud_writer, broker_writer):
            await hang_up(writer)
        await until(lambda: not rig.server.connections)

    limits = ConnectionLimits(max_connections=2, inter_broker_listener="BROKERS")
    await run(Rig(limits=Limits(connections=limits)), executor, story)


async def test_a_higher_limit_lets_those_in_that_wait(executor: ThreadPoolExecutor) -> None:
    async def story(rig: Rig) -> None:
        _, first_writer = await connect(rig)
        await until(lambda: len(rig.server.connections) == 1)
        second, second_writer = await connect(rig)
        second_writer.write(frame(b"second"))
        await until(lambda: bool(rig.server._waiting))
        rig.server.change_limits(Limits(connections=ConnectionLimits(max_connections=2)))
        assert await read_answer(second) == b"second"
        await hang_up(first_writer)
        await hang_up(second_writer)

    await run(Rig(limits=Limits(connections=ConnectionLimits(max_connections=1))), executor, story)


async def test_the_quota_of_an_address_does_not_hold_for_brokers_on_their_own_listener(
    executor: ThreadPoolExecutor,
) -> None:
    async def story(rig: Rig) -> None:
        port = rig.server.listen("BROKERS", "127.0.0.1", 0)
        rig.server.accept()
        rig.delay_connection = lambda ip: 0.01
        client, client_writer = await connect(rig)
        assert await client.read() == b"", "clients of this address have opened too many"
        broker, broker_writer = await asyncio.open_connection("127.0.0.1", port)
        broker_writer.write(frame(b"broker"))
        assert await read_answer(broker) == b"broker"
        await hang_up(client_writer)
        await hang_up(broker_writer)

    await run(Rig(limits=Limits(connections=ConnectionLimits(inter_broker_listener="BROKERS"))), executor, story)
