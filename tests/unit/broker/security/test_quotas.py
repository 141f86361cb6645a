"""Quotas of a whole broker without sockets: kept in its metadata, applied to requests, told in answers."""

from __future__ import annotations

import asyncio
import threading
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from kio.serial import entity_writer
from kio.static.primitive import i32

from barnabas.broker.security import quota_hosts
from barnabas.broker.security.host_lookups import MOST_WAITING, THREADS, HostLookups
from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.broker.serving.known_clients import KnownClient
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.security import quota_entities
from barnabas.metadata.znodes import ConfigNode
from barnabas.model.clock import ManualClock
from barnabas.protocol.messages import inter_broker
from barnabas.protocol.wire import framing
from tests.support.parts import answer_of, make_topic, running_parts
from tests.support.quotas import alteration
from tests.support.waiting import until
from tests.support.wire import batch, plain, read_response, request

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS, ALTER_USER_SCRAM_CREDENTIALS = 48, 49, 51


class Client:
    """One connection, as far as the dispatcher knows of it, and for how long it was muted."""

    def __init__(self, broker: BrokerContext, client_id: str | None = "app", principal: str = "User:alice") -> None:
        self._dispatcher = Dispatcher(broker)
        self._client_id = client_id
        self.muted: list[float] = []
        self.waits_as: object = None
        self.server = SimpleNamespace(loop=asyncio.get_running_loop())
        self.listener, self.address, self.certificate = "PLAINTEXT", ("127.0.0.1", 1), None
        self.state: Any = Session(principal)
        self.on_close: Any = None

    def mute(self, seconds: float, whose: object) -> None:
        self.muted.append(seconds)
        self.waits_as = whose

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

    async def tell(self, message: Any) -> None:
        """Send a message of brokers."""
        body, name = BytesIO(), (self._client_id or "").encode()
        entity_writer(type(message))(body, message)
        head = framing.HEADER.pack(message.__api_key__, message.__version__, 7, len(name)) + name + b"\0"
        await answer_of(self._dispatcher.serve(self, memoryview(head + body.getvalue())))  # type: ignore[arg-type]

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
        broker.quotas.subscribe(lambda concerns: changes.append(broker.quotas.is_on))
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


async def test_a_change_of_quotas_frees_only_those_whom_it_concerns(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        await make_topic(broker, "t")
        alice, bob, freed = Client(broker), Client(broker, principal="User:bob"), list[object]()
        broker.quotas.subscribe(
            lambda concerns: freed.extend(one.waits_as for one in (alice, bob) if concerns(one.waits_as))
        )
        await alice.alter({"user": None}, producer_byte_rate=100)
        for client in (alice, bob):
            assert (await client.produce("t", 5000))["throttle_time"] > 0
        await alice.alter({"user": "carol"}, producer_byte_rate=1)
        await alice.alter({"client-id": "other"}, producer_byte_rate=1)
        await alice.alter({"ip": None}, connection_creation_rate=1)
        assert freed == [], "nobody waits because of these"
        await alice.alter({"user": "bob"}, producer_byte_rate=10_000_000)
        assert freed == [("bob", "app")]
        await alice.alter({"user": None}, producer_byte_rate=None)
        assert freed == [("bob", "app"), ("alice", "app")]


async def test_a_change_of_topics_and_their_settings_looks_at_no_quotas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would be a look at the settings of all topics, for each topic that comes, goes or gets another leader."""
    async with running_parts(tmp_path) as broker:
        client, looked = Client(broker), Mock(wraps=quota_entities.quotas_of)
        await client.alter({"user": "bob"}, producer_byte_rate=1)
        monkeypatch.setattr(quota_entities, "quotas_of", looked)
        await make_topic(broker, "t")
        await broker.controller.alter_configs({ConfigResource.topic("t"): {"retention.ms": "77"}})
        assert not looked.called
        broker.metadata.apply_again()
        assert looked.call_count == 1
        await client.alter({"user": "bob"}, producer_byte_rate=None)
        assert not broker.quotas.is_on


async def test_what_other_programs_write_of_users_is_kept_when_quotas_and_passwords_change(tmp_path: Path) -> None:
    """They write to the tree itself, and the controller may not have heard of it."""
    async with running_parts(tmp_path) as broker:
        client, alice, carol = Client(broker), ConfigResource.user("alice"), ConfigResource.user("carol")
        await client.alter({"user": "alice"}, producer_byte_rate=1)
        path, store = ConfigNode.path(alice), broker.membership.store
        await store.set(path, ConfigNode.encode({"SCRAM-SHA-256": "theirs", "producer_byte_rate": "1"}))
        await store.create(ConfigNode.path(carol), ConfigNode.encode({"SCRAM-SHA-256": "hers"}))
        await client.alter({"user": "alice"}, consumer_byte_rate=2)
        await client.alter({"user": "carol", "client-id": "x"}, consumer_byte_rate=3)
        kept = {"SCRAM-SHA-256": "theirs", "producer_byte_rate": "1", "consumer_byte_rate": "2"}
        assert ConfigNode.decode(path, (await store.get(path)).data) == kept
        assert broker.metadata.image.config(alice) == kept
        assert broker.metadata.image.config(carol) == {"SCRAM-SHA-256": "hers"}
        await store.set(path, ConfigNode.encode({**kept, "request_percentage": "7"}))
        deletion = {"name": "alice", "mechanism": 1}
        answer = await client.ask(ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [deletion], "upsertions": []})
        assert [result["error_code"] for result in answer["results"]] == [0]
        left = {"producer_byte_rate": "1", "consumer_byte_rate": "2", "request_percentage": "7"}
        assert ConfigNode.decode(path, (await store.get(path)).data) == left


async def test_quotas_of_a_host_that_is_looked_up_for_long_hold_nobody_up(tmp_path: Path) -> None:
    answered = threading.Event()

    def look_up(host: str) -> tuple[str, ...]:
        answered.wait(20)
        return ("192.0.2.1",)

    async with running_parts(tmp_path, host_lookups=HostLookups(look_up)) as broker:
        client = Client(broker)
        slow = asyncio.ensure_future(client.alter({"ip": "slow.example"}, connection_creation_rate=1))
        try:
            await asyncio.sleep(0)
            async with asyncio.timeout(10):
                await Client(broker).alter({"user": "alice"}, producer_byte_rate=1)
            assert not broker.settings.writing.locked()
            assert not slow.done()
        finally:
            answered.set()
        await slow


async def test_a_host_that_is_not_known_yet_is_looked_up_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_hosts, "LOOKED_UP_AGAIN", 0.01)
    found = iter([("192.0.2.1",), (), (), ("192.0.2.1", "192.0.2.2")])
    async with running_parts(tmp_path, host_lookups=HostLookups(lambda host: next(found))) as broker:
        await Client(broker).alter({"ip": "flaky.example"}, connection_creation_rate=7)
        await until(lambda: broker.quotas.shares.limits.of_address("192.0.2.2") == 7)


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


async def test_no_quota_holds_up_a_broker_that_is_about_to_prove_itself_but_one_that_tries_on(tmp_path: Path) -> None:
    """Followers connect again for each of their sessions: a wait there is a wait of replication."""
    async with running_parts(tmp_path) as broker:
        admin, follower = Client(broker, principal="User:admin"), Client(broker, principal="User:broker")
        await follower.ask(METADATA, 9, {"topics": []})  # its session
        await admin.alter({"user": "broker"}, request_percentage=1e-9)
        hello = inter_broker.BrokerHelloRequest(
            cluster_id=broker.metadata.image.cluster_id,
            broker_id=i32(2),
            peer_id=i32(broker.broker_id),
            nonce=bytes(32),
        )
        for message in (hello, inter_broker.BrokerProofRequest(proof=bytes(32))):
            await follower.tell(message)
        assert follower.muted == []
        for _ in range(2):
            await follower.tell(hello)
        assert follower.muted == [1.0], "who goes on trying is counted, and waits"


async def test_many_hosts_are_looked_up_by_few_threads_and_in_time() -> None:
    go_on, seen = threading.Event(), list[str]()

    def look_up(host: str) -> tuple[str, ...]:
        seen.append(host)
        go_on.wait(20)
        return (host,)

    hosts = HostLookups(look_up)
    names = [f"host-{number}" for number in range(MOST_WAITING + 50)]
    found = await hosts.find(names, 0.05)
    await until(lambda: len(seen) >= THREADS)
    assert len(seen) == THREADS
    assert all(not addresses for addresses in found.values()), "those for which there was no room are not known"
    assert len(found) == 50 - THREADS
    go_on.set()
    await until(lambda: not hosts._waiting)
    assert await hosts.find(["late"], 20) == {"late": ("late",)}
    assert await hosts.find([], 0) == {}


async def test_ten_thousand_client_ids_cost_no_more_than_the_limit(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        shares = broker.quotas.shares
        await Client(broker).alter({"client-id": None}, producer_byte_rate=1, request_percentage=1)
        for number in range(12_000):
            shares.produced("alice", f"made-up-{number}", 1, 0.0)
            shares.took("alice", f"made-up-{number}", 0.1, 0.0)
        assert len(shares) == 10_000


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
