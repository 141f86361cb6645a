"""Produce and Fetch with an authorizer: who may write and read, by the rules of the moment."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.broker.serving.known_clients import KnownClient
from barnabas.machines.security.acls import AclResourceType, Entry, Operation, PatternType, Permission, ResourcePattern
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import HANG_UP, Parked
from barnabas.protocol.wire import framing
from tests.support.parts import answer_of, append, make_topic, running_parts
from tests.support.wire import batch, read_response, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from barnabas.broker.context import BrokerContext

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
PRODUCE, FETCH = 0, 1
SHARE_STATE = range(83, 88)
"""Initialize, read, write, delete, and read a summary."""
DENIED = ErrorCode.topic_authorization_failed


class Judged:
    """A broker with an authorizer, and a client of it that may do what a test says."""

    def __init__(self, broker: BrokerContext, principal: str = "User:alice", broker_id: int | None = None) -> None:
        self.broker = broker
        self.dispatcher = Dispatcher(broker)
        session = Session(principal=principal, broker_id=broker_id)
        caller = Caller(listener="PLAINTEXT", address=("10.0.0.1", 1), client_id="wire", session=session)
        raw = b"\0\4wire"
        state = KnownClient(raw, framing.HEADER.size + 4, caller)
        self.session = session
        self._connection: Any = SimpleNamespace(listener="PLAINTEXT", address=("10.0.0.1", 1), state=state)

    def may(self, *allowed: tuple[Operation, AclResourceType, str]) -> None:
        """Judge by these rules from now on."""
        permissions = self.broker.permissions
        assert permissions is not None
        acls: dict[ResourcePattern, set[Entry]] = {}
        for operation, kind, name in allowed:
            pattern = ResourcePattern(kind, name, PatternType.LITERAL)
            acls.setdefault(pattern, set()).add(Entry("User:alice", "*", operation, Permission.ALLOW))
        permissions.replace(permissions.rules.with_acls(acls))

    def send(self, key: int, version: int, values: dict[str, Any]) -> Any:
        return self.dispatcher.serve(self._connection, memoryview(request(key, version, 1, values)))

    async def ask(self, key: int, version: int, values: dict[str, Any]) -> Any:
        return await read(key, version, self.send(key, version, values))

    async def produce(self, *topics: str | UUID, acks: int = 1, transactional_id: str | None = None) -> list[ErrorCode]:
        version = 13 if isinstance(topics[0], UUID) else 9
        data = [
            {"name": each, "topic_id": each, "partition_data": [{"index": 0, "records": batch([b"a"])}]}
            for each in topics
        ]
        body = {"acks": acks, "timeout": 1000, "topic_data": data, "transactional_id": transactional_id}
        answer = await self.ask(PRODUCE, version, body)
        return [part.error_code for topic in answer.responses for part in topic.partition_responses]


async def read(key: int, version: int, answer: Any) -> Any:
    whole = await answer_of(answer)
    assert isinstance(whole, bytes | list)
    parts = [whole] if isinstance(whole, bytes) else [part for part in whole if isinstance(part, bytes)]
    return read_response(key, version, b"".join(parts)[4:], 1)


@asynccontextmanager
async def judged(folder: Path, **more: str) -> AsyncIterator[Judged]:
    async with running_parts(folder, {**AUTHORIZER, **more}) as broker:
        await make_topic(broker, "mine")
        await make_topic(broker, "theirs")
        yield Judged(broker)


def end_of(broker: BrokerContext, topic: str) -> int:
    return broker.replicas.find(topic, 0).log.log_end_offset


async def test_what_may_not_be_written_is_not_and_the_rest_is(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.WRITE, AclResourceType.TOPIC, "mine"))
        assert await client.produce("mine", "theirs") == [ErrorCode.none, DENIED]
        assert await client.produce("mine") == [ErrorCode.none]
        assert await client.produce("theirs") == [DENIED]
        assert (end_of(client.broker, "mine"), end_of(client.broker, "theirs")) == (2, 0)


async def test_a_permission_that_is_taken_away_ends_with_the_next_request(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        for topic in ("mine", client.broker.metadata.image.topics["mine"].topic_id):
            client.may((Operation.WRITE, AclResourceType.TOPIC, "mine"))
            assert await client.produce(topic) == [ErrorCode.none]
            assert await client.produce(topic) == [ErrorCode.none]
            client.may()
            assert await client.produce(topic) == [DENIED]


async def test_an_id_that_was_not_known_is_judged_when_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.WRITE, AclResourceType.TOPIC, "mine"))
        topic_id = client.broker.metadata.image.topics["theirs"].topic_id
        with monkeypatch.context() as patched:
            patched.setattr(MetadataCache, "topic_by_id", lambda *_: None)
            assert await client.produce(topic_id) == [ErrorCode.unknown_topic_id]
        assert await client.produce(topic_id) == [DENIED]


async def test_without_a_response_a_denial_closes_the_connection(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may()
        data = [{"name": "mine", "partition_data": [{"index": 0, "records": batch([b"a"])}]}]
        answer = await answer_of(client.send(PRODUCE, 9, {"acks": 0, "timeout": 1000, "topic_data": data}))
        assert answer is HANG_UP
        assert end_of(client.broker, "mine") == 0


async def test_cve_2018_17196_a_produce_needs_permission_for_its_transactional_id(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.WRITE, AclResourceType.TOPIC, "mine"))
        codes = await client.produce("mine", "theirs", transactional_id="x")
        assert codes == [ErrorCode.transactional_id_authorization_failed] * 2
        sent = batch([b"a"], attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0)
        for transactional_id in (None, "x"):
            data = [{"name": "mine", "partition_data": [{"index": 0, "records": sent}]}]
            body = {"acks": 1, "timeout": 1000, "topic_data": data, "transactional_id": transactional_id}
            answer = await client.ask(PRODUCE, 9, body)
            (part,) = answer.responses[0].partition_responses
            assert part.error_code is ErrorCode.transactional_id_authorization_failed
        assert end_of(client.broker, "mine") == 0


async def test_an_idempotent_producer_needs_a_topic_to_write_to(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.READ, AclResourceType.TOPIC, "mine"))
        body = {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
        assert (await client.ask(22, 4, body)).error_code is ErrorCode.cluster_authorization_failed
        client.may((Operation.WRITE, AclResourceType.TOPIC, "mine"))
        assert (await client.ask(22, 4, body)).error_code is ErrorCode.none


def fetch(*topics: str, wait: int = 0, session: tuple[int, int] = (0, -1), replica_id: int = -1) -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}
    partition |= {"last_fetched_epoch": -1, "log_start_offset": -1}
    return {
        "replica_id": replica_id,
        "max_wait": wait,
        "min_bytes": 1,
        "max_bytes": 1000,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{"topic": each, "partitions": [partition]} for each in topics],
    }


def codes(answer: Any) -> dict[str, ErrorCode]:
    return {topic.topic: topic.partitions[0].error_code for topic in answer.responses}


def fill(broker: BrokerContext, topic: str) -> None:
    append(broker.replicas.find(topic, 0), [1_700_000_000_000])


async def test_what_may_not_be_read_is_refused_at_once(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.READ, AclResourceType.TOPIC, "mine"))
        answer = await client.ask(FETCH, 12, fetch("mine", "theirs", wait=60_000))
        assert codes(answer) == {"mine": ErrorCode.none, "theirs": DENIED}


async def test_a_session_is_judged_again_when_the_rules_have_changed(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        both = [(Operation.READ, AclResourceType.TOPIC, name) for name in ("mine", "theirs")]
        client.may(*both)
        opened = await client.ask(FETCH, 12, fetch("mine", "theirs", session=(0, 0)))
        assert codes(opened) == {"mine": ErrorCode.none, "theirs": ErrorCode.none}
        for epoch in (1, 2):
            assert codes(await client.ask(FETCH, 12, fetch(session=(opened.session_id, epoch)))) == {}
        client.may(both[0])
        assert codes(await client.ask(FETCH, 12, fetch(session=(opened.session_id, 3)))) == {"theirs": DENIED}
        client.may(*both)
        again = await client.ask(FETCH, 12, fetch(session=(opened.session_id, 4)))
        assert codes(again) == {"theirs": ErrorCode.none}


async def test_a_session_of_another_is_no_way_to_its_topics(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.READ, AclResourceType.TOPIC, "mine"))
        opened = await client.ask(FETCH, 12, fetch("mine", session=(0, 0)))
        thief = Judged(client.broker, "User:eve")
        assert codes(await thief.ask(FETCH, 12, fetch(session=(opened.session_id, 1)))) == {"mine": DENIED}


async def test_a_fetch_that_waits_gets_nothing_that_was_forbidden_meanwhile(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        client.may((Operation.READ, AclResourceType.TOPIC, "mine"))
        waiting = client.send(FETCH, 12, fetch("mine", wait=60_000))
        assert isinstance(waiting, Parked)
        client.may()
        fill(client.broker, "mine")
        async with asyncio.timeout(30):
            assert codes(await read(FETCH, 12, waiting)) == {"mine": DENIED}


async def test_cve_2018_1288_who_fetches_as_a_follower_has_to_be_one_and_to_be_allowed(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        fill(client.broker, "mine")
        client.may((Operation.READ, AclResourceType.TOPIC, "mine"))
        as_follower = fetch("mine", replica_id=2)
        assert codes(await client.ask(FETCH, 12, as_follower)) == {"mine": DENIED}
        proved = Judged(client.broker, broker_id=2)
        assert codes(await proved.ask(FETCH, 12, as_follower)) == {"mine": DENIED}
        client.may((Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster"))
        assert codes(await client.ask(FETCH, 12, as_follower)) == {"mine": DENIED}
        assert codes(await proved.ask(FETCH, 12, as_follower)) != {"mine": DENIED}


async def test_a_broker_writes_dead_letters_if_it_is_one_and_may_act_for_the_cluster(tmp_path: Path) -> None:
    async with judged(tmp_path) as client:
        proved = Judged(client.broker, broker_id=2)
        client.may()
        assert await proved.produce("mine") == [DENIED]
        client.may((Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster"))
        assert await client.produce("mine") == [DENIED], "it did not prove to be a broker"
        topic_id = client.broker.metadata.image.topics["theirs"].topic_id
        assert await proved.produce("mine") + await proved.produce(topic_id) == [ErrorCode.none] * 2
        assert (end_of(client.broker, "mine"), end_of(client.broker, "theirs")) == (1, 1)


async def test_the_state_of_share_groups_is_for_who_may_act_for_the_cluster(tmp_path: Path) -> None:
    part = {"partition": 0, "state_epoch": 1, "leader_epoch": 1, "start_offset": 0, "state_batches": []}
    async with judged(tmp_path) as client:
        topic_id = client.broker.metadata.image.topics["mine"].topic_id
        body = {"group_id": "workers", "topics": [{"topic_id": topic_id, "partitions": [part]}]}
        client.may((Operation.READ, AclResourceType.GROUP, "workers"), (Operation.READ, AclResourceType.TOPIC, "mine"))
        for key in SHARE_STATE:
            answer = await client.ask(key, 0, body)
            codes = {each.error_code for topic in answer.results for each in topic.partitions}
            assert codes == {ErrorCode.cluster_authorization_failed}, key
