"""Quotas of a whole broker without sockets: kept in its metadata, applied to requests, told in answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.dispatch import Dispatcher, KnownClient
from barnabas.machines.controller.image import ConfigResource
from barnabas.model.clock import ManualClock
from barnabas.protocol.wire import framing
from tests.support.parts import answer_of, make_topic, running_parts
from tests.support.quotas import alteration
from tests.support.wire import batch, plain, read_response, request

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS = 48, 49


class Client:
    """One connection, as far as the dispatcher knows of it, and for how long it was muted."""

    def __init__(self, broker: BrokerContext, client_id: str | None = "app", principal: str = "User:alice") -> None:
        self._dispatcher = Dispatcher(broker)
        self._client_id = client_id
        self.muted: list[float] = []
        self.server = SimpleNamespace(loop=asyncio.get_running_loop())
        self.listener, self.address, self.certificate = "PLAINTEXT", ("127.0.0.1", 1), None
        self.state: Any = Session(principal)
        self.on_close: Any = None

    def mute(self, seconds: float) -> None:
        self.muted.append(seconds)

    async def ask(self, key: int, version: int, values: dict[str, Any]) -> Any:
        frame = request(key, version, 7, values, self._client_id)
        answer = await answer_of(self._dispatcher.serve(self, memoryview(frame)))  # type: ignore[arg-type]
        if answer is None:
            return None
        assert isinstance(answer, (bytes, list)), answer
        parts = [answer] if isinstance(answer, bytes) else answer
        whole = b"".join(part for part in parts if isinstance(part, bytes))
        if any(not isinstance(part, bytes) for part in parts):
            return whole
        return plain(read_response(key, version, whole[4:], 7))

    async def alter(self, entity: dict[str, str | None], **quotas: float | None) -> None:
        entry = alteration(list(entity.items()), list(quotas.items()))
        [result] = (await self.ask(ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": False}))["entries"]
        assert result["error_code"] == 0, result

    async def quotas(self) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
        answer = await self.ask(DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
        return {
            tuple((part["entity_type"], part["entity_name"]) for part in one["entity"]): {
                value["key"]: value["value"] for value in one["values"]
            }
            for one in answer["entries"]
        }

    async def produce(self, topic: str, size: int, acks: int = 1) -> Any:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch([b"x" * size])}]}]
        return await self.ask(PRODUCE, 9, {"acks": acks, "timeout": 1000, "topic_data": data})

    async def fetch(self, topic: str, **more: int) -> Any:
        wanted = {"partition": 0, "current_leader_epoch": -1, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
        body = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
        topics = [{"topic": topic, "partitions": [wanted]}]
        return await self.ask(FETCH, 11, {**body, "topics": topics, "forgotten_topics_data": [], **more})


async def test_quotas_survive_a_restart_and_leave_passwords_alone(tmp_path: Path) -> None:
    odd = "CN=ä b/%,O=<default>"
    async with running_parts(tmp_path) as broker:
        kept = {"SCRAM-SHA-512": "salt=..."}
        await broker.controller.alter_configs({ConfigResource.user(odd): kept})
        client = Client(broker)
        await client.alter({"user": odd}, producer_byte_rate=1024)
        await client.alter({"user": odd, "client-id": None}, request_percentage=12.5)
        await client.alter({"user": None, "client-id": "../x"}, consumer_byte_rate=5)
        await client.alter({"client-id": "."}, controller_mutation_rate=0.5)
        await client.alter({"ip": "2001:db8::1"}, connection_creation_rate=3)
        set_before = await client.quotas()
        assert len(set_before) == 5
        assert broker.metadata.image.config(ConfigResource.user(odd)) == {**kept, "producer_byte_rate": "1024"}
        assert broker.quotas.is_on
    async with running_parts(tmp_path) as broker:
        client = Client(broker)
        assert await client.quotas() == set_before
        assert broker.quotas.is_on
        assert broker.quotas.delay_connection("2001:db8::1") == 0
        await client.alter({"user": odd}, producer_byte_rate=None)
        assert broker.metadata.image.config(ConfigResource.user(odd)) == kept


async def test_without_quotas_nothing_is_counted(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        client = Client(broker)
        assert not broker.quotas.is_on
        await client.alter({"ip": None}, connection_creation_rate=1)
        assert not broker.quotas.is_on, "requests have nothing to do with addresses"
        changes: list[bool] = []
        broker.quotas.subscribe(lambda: changes.append(broker.quotas.is_on))
        await client.alter({"user": "bob"}, producer_byte_rate=1)
        await client.alter({"user": "bob"}, producer_byte_rate=1)
        await client.alter({"user": "bob"}, producer_byte_rate=None)
        assert changes == [True, False], "muted clients are told of every change, and of nothing else"


async def test_a_producer_is_told_to_wait_and_muted_whatever_its_acks(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        client = Client(broker)
        await client.alter({"user": "alice"}, producer_byte_rate=100)
        answer = await client.produce("t", 5000)
        assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
        assert answer["throttle_time"] > 40_000
        assert client.muted == [answer["throttle_time"] / 1000]
        assert await client.produce("t", 5000, acks=0) is None
        assert client.muted[1] > client.muted[0]
        other = Client(broker, principal="User:bob")
        assert (await other.produce("t", 5000))["throttle_time"] == 0
        assert other.muted == []
        another = Client(broker, "another id")
        assert (await another.produce("t", 1))["throttle_time"] > 80_000, "a user's clients share its quota"


async def test_a_consumer_over_its_quota_gets_no_records_and_keeps_its_session(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        client = Client(broker)
        for _ in range(4):
            await client.produce("t", 600)
        await client.alter({"client-id": "app"}, consumer_byte_rate=200)
        opened = await client.fetch("t", session_epoch=0)
        assert isinstance(opened, bytes), "two or three batches fit into the window of two thousand bytes"
        [session] = broker.fetch_sessions._sessions
        refused = await client.fetch("t", session_id=session, session_epoch=1)
        assert (refused["error_code"], refused["session_id"], refused["responses"]) == (0, session, [])
        assert refused["throttle_time"] > 0
        assert client.muted == [refused["throttle_time"] / 1000]
        assert isinstance(broker.clock, ManualClock)
        broker.clock.advance(12_000)
        assert isinstance(await client.fetch("t", session_id=session, session_epoch=2), bytes)
        wrong = await client.fetch("t", session_id=session, session_epoch=2)
        assert wrong["error_code"] == 71  # INVALID_FETCH_SESSION_EPOCH, as without quotas


async def test_whose_requests_take_too_long_has_to_wait_in_every_api(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        client = Client(broker, client_id=None)
        await client.alter({"user": "alice", "client-id": None}, request_percentage=0.0001)
        asked: list[tuple[int, int, dict[str, Any]]] = [
            (METADATA, 9, {"topics": []}),
            (API_VERSIONS, 3, {"client_software_name": "x"}),
            (API_VERSIONS, 0, {}),
        ]
        asked += [(DESCRIBE_CLIENT_QUOTAS, 1, {"components": []}), (METADATA, 9, {"topics": []})]
        told = [(await client.ask(*one)).get("throttle_time") for one in asked]
        assert told == [0, 1000, None, 1000, 1000]
        assert client.muted == [1.0] * 4
        assert (await client.produce("t", 1))["throttle_time"] == 1000
        assert (await client.fetch("t"))["throttle_time"] == 1000
        assert client.muted == [1.0] * 6
        await client.fetch("t", replica_id=2)
        assert client.muted == [1.0] * 7, "who passes for a follower waits, too"


async def test_what_brokers_ask_does_not_count(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        await Client(broker, principal="User:admin").alter(
            {"user": "alice"}, producer_byte_rate=1, request_percentage=1e-6
        )
        other = Client(broker)
        raw = len(b"app").to_bytes(2, "big") + b"app"
        session = Session("User:alice", broker_id=2)
        caller = Caller(listener="PLAINTEXT", address=other.address, client_id="app", session=session)
        other.state = KnownClient(raw, framing.HEADER.size + 3, caller)
        for _ in range(3):
            assert (await other.produce("t", 5000))["throttle_time"] == 0
            assert (await other.ask(METADATA, 9, {"topics": []}))["throttle_time"] == 0
        assert other.muted == []


async def test_ten_thousand_client_ids_cost_no_more_than_the_limit(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        quotas = broker.quotas
        await Client(broker).alter({"client-id": None}, producer_byte_rate=1, request_percentage=1)
        for number in range(12_000):
            quotas.shares.produced("alice", f"made-up-{number}", 1, 0.0)
            quotas.shares.took("alice", f"made-up-{number}", 0.1, 0.0)
        assert len(quotas.shares) == 10_000


async def test_the_quota_of_a_host_is_that_of_its_addresses(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await Client(broker).alter({"ip": "localhost"}, connection_creation_rate=1)
        for _ in range(200):
            if broker.quotas.shares.limits.of_address("127.0.0.1") is not None:
                break
            await asyncio.sleep(0.05)
        delays = [broker.quotas.delay_connection("127.0.0.1") for _ in range(12)]
        assert delays == [0.0] * 10 + [1.0] * 2
        assert broker.quotas.delay_connection("10.0.0.1") == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_the_steps_of_a_coroutine_are_timed_and_it_is_told_of_everything(tmp_path: Path, fails: bool) -> None:
    async with running_parts(tmp_path) as broker:
        client = Client(broker)
        await client.alter({"user": "alice"}, request_percentage=50)
        caller = Caller(listener="x", address=("", 1), client_id=None, session=client.state.caller.session)
        meter = broker.quotas.begin(client, caller)  # type: ignore[arg-type]
        assert meter is not None
        spent: list[float] = []
        seen: list[str] = []

        async def steps() -> str:
            try:
                await asyncio.sleep(0)
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                seen.append("cancelled")
                if fails:
                    raise
            return "done"

        original = type(meter).took
        try:
            type(meter).took = lambda self, seconds: spent.append(seconds)  # type: ignore[method-assign]

            async def main() -> Any:
                return await meter.watch(steps())

            task = asyncio.create_task(main())
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            result: Any = (await asyncio.gather(task, return_exceptions=True))[0]
        finally:
            type(meter).took = original  # type: ignore[method-assign]
        assert seen == ["cancelled"]
        assert isinstance(result, asyncio.CancelledError) if fails else result == "done"
        assert len(spent) == 3
