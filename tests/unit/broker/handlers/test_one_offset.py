"""A commit of one offset is answered without messages, byte by byte as the handler of all commits answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from barnabas.broker.handlers.group_offsets import offset_commit
from barnabas.broker.handlers.one_offset import commit_one
from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import Answer, Parked
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from tests.support.group_handlers import answer, committed, coordinating, joined
from tests.support.images import CALLER
from tests.support.parts import answer_of
from tests.support.served_connection import served_connection
from tests.support.wire import read_response, request

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

KEY = ApiKey.OFFSET_COMMIT
VERSIONS = range(8, 11)
BODY = 15
"""Where the body of `request` begins."""


def frame(
    broker: BrokerContext,
    version: int,
    group: str = "g",
    offset: int = 5,
    *,
    epoch: int = -1,
    member: str = "",
    instance: str | None = None,
    partitions: tuple[int, ...] = (0,),
    topic: str = "t",
    metadata: str | None = "",
    leader_epoch: int = 3,
) -> memoryview:
    found = broker.metadata.image.topics.get(topic)
    places = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": leader_epoch,
            "committed_metadata": metadata,
        }
        for index in partitions
    ]
    named = {"name": topic, "topic_id": UUID(int=9) if found is None else found.topic_id, "partitions": places}
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member,
        "group_instance_id": instance,
        "topics": [named],
    }
    return memoryview(bytearray(request(KEY, version, 7, values)))


def at_once(broker: BrokerContext, version: int, asked: memoryview) -> Answer | Parked:
    return commit_one(broker, CALLER, version, 7, asked, BODY)


async def by_messages(broker: BrokerContext, version: int, asked: memoryview) -> bytes:
    message = codec.decoder(KEY, version, 10)(asked, BODY)
    return codec.encode(KEY, version, 7, await answer(offset_commit(broker, message, CALLER, version)))


def code_of(version: int, packed: bytes) -> ErrorCode:
    ((partition,),) = (topic.partitions for topic in read_response(KEY, version, packed[4:], 7).topics)
    code: ErrorCode = partition.error_code
    return code


@pytest.mark.parametrize("version", VERSIONS)
async def test_commits_come_to_the_same_as_by_messages(tmp_path: Path, version: int) -> None:
    async with coordinating(tmp_path) as broker:
        member, generation = await joined(broker, "with members")
        cases: list[dict[str, Any]] = [
            {},
            {"metadata": None},
            {"partitions": (1,), "leader_epoch": -1},
            {"group": ""},
            {"epoch": 4, "member": "m"},
            {"group": "with members"},
            {"group": "with members", "epoch": generation, "member": member},
            {"group": "with members", "epoch": generation, "member": "stranger"},
            {"group": "with members", "epoch": generation, "member": member, "instance": "i"},
            {"group": "with members", "epoch": generation + 1, "member": member},
        ]
        codes = set()
        for number, case in enumerate(cases):
            ((shard, machine),) = (
                (shard, machine)
                for shard, machine in broker.groups.runtime.machines()
                if shard is broker.groups.runtime.find(case.get("group", "g"))
            )
            stored = machine.committed_offsets
            key = case.get("group", "g")
            place = case.get("partitions", (0,))[0]
            expected = await by_messages(broker, version, frame(broker, version, offset=number, **case))
            before = stored.get(key, {}).get("t", {}).get(place)
            end = shard.partition.log.log_end_offset
            got = at_once(broker, version, frame(broker, version, offset=number, **case))
            assert got is not None
            assert await answer_of(got) == expected, case
            after = stored.get(key, {}).get("t", {}).get(place)
            assert (before is None) is (after is None)
            if before is not None and after is not None:
                assert after._replace(commit_timestamp=before.commit_timestamp) == before
            code = code_of(version, expected)
            assert shard.partition.log.log_end_offset - end == (code is ErrorCode.none)
            codes.add(code)
        assert {ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.illegal_generation} <= codes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "case",
    [
        {"metadata": "m"},
        {"partitions": (0, 1)},
        {"partitions": (2,)},
        {"partitions": (-1,)},
        {"partitions": ()},
        {"topic": "nowhere"},
    ],
    ids=str,
)
async def test_any_other_commit_is_left_to_the_handler(tmp_path: Path, version: int, case: dict[str, Any]) -> None:
    async with coordinating(tmp_path) as broker:
        asked = frame(broker, version, **case)
        assert at_once(broker, version, asked) is None
        assert at_once(broker, version, asked[:-1]) is None
        assert await committed(broker, "g") == {}


async def test_so_is_one_whose_coordinator_cannot_decide(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        asked = frame(broker, 9)
        shard = broker.groups.runtime.find("g")
        assert shard.machine is not None
        shard.machine.deletions.under_way["g"] = None  # type: ignore[assignment]
        assert at_once(broker, 9, asked) is None
        shard.machine.deletions.under_way.clear()
        machine, shard.machine = shard.machine, None
        assert at_once(broker, 9, asked) is None
        shard.machine = machine
        assert isinstance(at_once(broker, 9, asked), bytes)
        broker.groups.runtime.resign()
        assert at_once(broker, 9, asked) is None


async def test_an_answer_waits_until_its_offset_is_stored(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        asked = [at_once(broker, 9, frame(broker, 9, offset=offset)) for offset in range(3)]
        first, second, third = asked
        assert isinstance(first, bytes), "the first of a turn is stored at once"
        assert isinstance(second, Parked)
        assert isinstance(third, Parked)
        assert second.may_be_overtaken
        third.abandon()
        packed = await answer_of(second)
        assert isinstance(packed, bytes)
        assert code_of(9, packed) is ErrorCode.none
        assert await committed(broker, "g") == {("t", 0): 2}


async def test_an_answer_that_cannot_be_handed_on_concerns_nobody_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with coordinating(tmp_path) as broker:
        _, second, third = (at_once(broker, 9, frame(broker, 9, offset=offset)) for offset in range(3))
        assert isinstance(second, Parked)
        assert isinstance(third, Parked)

        def fail() -> None:
            raise RuntimeError("a fault of the connection")

        second.notify = fail
        packed = await answer_of(third)
        assert isinstance(packed, bytes)
        assert code_of(9, packed) is ErrorCode.none
        assert await committed(broker, "g") == {("t", 0): 2}
    assert "got lost" in caplog.text


async def test_a_coordinator_that_fails_is_told_as_by_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinating(tmp_path) as broker:
        machine = broker.groups.runtime.find("g").machine
        assert machine is not None

        def fail(*_: object) -> None:
            raise RuntimeError("a fault of the machine")

        monkeypatch.setattr(machine, "commit_one", fail)
        packed = at_once(broker, 9, frame(broker, 9))
        assert isinstance(packed, bytes)
        assert code_of(9, packed) is ErrorCode.unknown_server_error
        await broker.groups.runtime.loaded()
        assert isinstance(at_once(broker, 9, frame(broker, 9)), bytes)


async def test_commits_are_served_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinating(tmp_path) as broker:
        dispatcher = Dispatcher(broker)
        connection = served_connection()
        expected = await by_messages(broker, 9, frame(broker, 9))
        assert await answer_of(dispatcher.serve(connection, frame(broker, 9))) == expected
        monkeypatch.setattr("barnabas.broker.handlers.group_offsets.offset_commit", None)
        (route,) = dispatcher._routes.values()
        route.handler = None  # type: ignore[assignment]
        assert dispatcher.serve(connection, frame(broker, 9)) == expected


async def test_permissions_see_every_commit(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with coordinating(tmp_path, **{"authorizer.class.name": authorizer}) as broker:
        dispatcher = Dispatcher(broker)
        for _ in range(2):
            packed = await answer_of(dispatcher.serve(served_connection(), frame(broker, 9)))
            assert isinstance(packed, bytes)
            assert code_of(9, packed) is ErrorCode.group_authorization_failed
        ((_, machine), *_) = broker.groups.runtime.machines()
        assert "g" not in machine.committed_offsets


async def test_quotas_see_every_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with coordinating(tmp_path) as broker:
        dispatcher = Dispatcher(broker)
        connection = served_connection()
        expected = await answer_of(dispatcher.serve(connection, frame(broker, 9)))
        (route,) = dispatcher._routes.values()

        def unseen(*_: object) -> None:
            raise AssertionError("a commit that no quota saw")

        monkeypatch.setattr(route, "usual", unseen)
        monkeypatch.setattr(broker.quotas, "is_on", True)
        assert await answer_of(dispatcher.serve(connection, frame(broker, 9, offset=6))) == expected
        assert await committed(broker, "g") == {("t", 0): 6}
