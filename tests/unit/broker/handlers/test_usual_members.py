"""Usual requests of members are answered byte by byte as the handlers of all requests answer them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.coordinators.calls import PackedCall
from barnabas.broker.coordinators.shard import Shard
from barnabas.broker.handlers import groups
from barnabas.broker.serving.registry import BY_KEY
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.model.clock import ManualClock
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import HANG_UP, Parked
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from tests.support.group_handlers import answer, coordinating
from tests.support.images import CALLER
from tests.support.parts import answer_of
from tests.support.wire import read_response, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.net.reply import Answer

    Asked = tuple[ApiKey, int, dict[str, Any]]
    """API, version and what the request says."""

BODY = 15
"""Where the body of `request` begins."""
HANDLERS: dict[ApiKey, tuple[Callable[..., Any], Callable[..., Any]]] = {
    ApiKey.JOIN_GROUP: (groups.usual_join_group, groups.join_group),
    ApiKey.SYNC_GROUP: (groups.usual_sync_group, groups.sync_group),
    ApiKey.HEARTBEAT: (groups.usual_heartbeat, groups.heartbeat),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        groups.usual_consumer_group_heartbeat,
        groups.consumer_group_heartbeat,
    ),
}
JOIN: dict[str, Any] = {
    "group_id": "g",
    "session_timeout": 10_000,
    "rebalance_timeout": 10_000,
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"}],
}
BEAT: dict[str, Any] = {"group_id": "h", "member_id": "m", "topic_partitions": None}


def frame(asked: Asked) -> memoryview:
    key, version, values = asked
    return memoryview(bytearray(request(key, version, 7, values)))


def by_frame(broker: BrokerContext, asked: Asked) -> Answer | Parked:
    key, version, _ = asked
    found: Answer | Parked = HANDLERS[key][0](broker, CALLER, version, 7, frame(asked), BODY)
    return found


async def in_frames(broker: BrokerContext, asked: Asked) -> bytes:
    found = by_frame(broker, asked)
    assert found is not None, f"{asked} is not answered so"
    packed = await answer_of(found)
    assert isinstance(packed, bytes)
    return packed


async def in_messages(broker: BrokerContext, asked: Asked) -> bytes:
    key, version, _ = asked
    message = codec.decoder(key, version, BY_KEY[key].newest)(frame(asked), BODY)
    return codec.encode(key, version, 7, await answer(HANDLERS[key][1](broker, message, CALLER, version)))


def read(asked: Asked, packed: bytes) -> Any:
    return read_response(asked[0], asked[1], packed[4:], 7)


async def tell_story(broker: BrokerContext, ask: Callable[[BrokerContext, Asked], Any]) -> list[bytes]:
    """Members of both protocols come, take part and are refused; what they are answered."""
    told: list[bytes] = []

    async def say(key: ApiKey, version: int, **values: Any) -> Any:
        told.append(await ask(broker, (key, version, values)))
        return read((key, version, values), told[-1])

    for version in (6, 7, 8, 9):
        given = await say(ApiKey.JOIN_GROUP, version, **JOIN, member_id="")
        if given.error_code is ErrorCode.member_id_required:
            given = await say(ApiKey.JOIN_GROUP, version, **JOIN, member_id=given.member_id)
        assert given.error_code is ErrorCode.none
        member: dict[str, Any] = {"group_id": "g", "member_id": given.member_id, "generation_id": given.generation_id}
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        assigned = [{"member_id": given.member_id, "assignment": b"all of it"}]
        for sync in (4, 5):
            values = {**member, **(named if sync == 5 else {})}
            synced = await say(ApiKey.SYNC_GROUP, sync, **values, assignments=assigned)
            assert synced.assignment == b"all of it"
            refused = await say(ApiKey.SYNC_GROUP, sync, **{**values, "generation_id": 99}, assignments=[])
            assert refused.error_code is ErrorCode.illegal_generation
        beaten = await say(ApiKey.HEARTBEAT, 4, **member)
        assert beaten.error_code is ErrorCode.none
        await say(ApiKey.HEARTBEAT, 4, **{**member, "member_id": "stranger"})
        await say(ApiKey.JOIN_GROUP, version, **{**JOIN, "session_timeout": 1}, member_id=given.member_id)
        await answer(groups.leave_group(broker, leaving("g", given.member_id), CALLER, 5))
    for version in (0, 1):
        beat = {**BEAT, "group_id": f"h{version}"}
        joined = await say(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            version,
            **{**beat, "topic_partitions": []},
            member_epoch=0,
            rebalance_timeout=10_000,
            subscribed_topic_names=["t"],
        )
        assert len(joined.assignment.topic_partitions[0].partitions) == 2
        epoch = joined.member_epoch
        assert (await say(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **beat, member_epoch=epoch)).assignment is None
        await say(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **beat, member_epoch=epoch + 1)
        await say(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            version,
            **{**beat, "member_id": "another", "topic_partitions": []},
            member_epoch=0,
            rebalance_timeout=10_000,
            subscribed_topic_names=["elsewhere"],
        )
        stepped = await say(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **beat, member_epoch=epoch)
        assert (stepped.member_epoch, stepped.assignment) == (epoch + 1, None)
        await say(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **beat, member_epoch=-1)
    return told


def leaving(group: str, member_id: str) -> Any:
    values = {"group_id": group, "members": [{"member_id": member_id}]}
    return codec.decoder(ApiKey.LEAVE_GROUP, 5, 5)(frame((ApiKey.LEAVE_GROUP, 5, values)), BODY)


def ids() -> Iterator[str]:
    return (f"id{number}" for number in count())


async def test_members_are_answered_as_by_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stories = []
    for name, ask in (("frames", in_frames), ("messages", in_messages)):
        numbers = ids()
        monkeypatch.setattr("barnabas.broker.coordinators.groups._new_id", lambda numbers=numbers: next(numbers))
        async with coordinating(tmp_path / name, **{"group.consumer.assignment.interval.ms": "0"}) as broker:
            topic_id = broker.metadata.image.topics["t"].topic_id.bytes
            stories.append([each.replace(topic_id, bytes(16)) for each in await tell_story(broker, ask)])
    assert stories[0] == stories[1]


@pytest.mark.parametrize(
    "asked",
    [
        (ApiKey.JOIN_GROUP, 5, {**JOIN, "member_id": ""}),
        (ApiKey.JOIN_GROUP, 9, {**JOIN, "group_id": "", "member_id": ""}),
        (ApiKey.SYNC_GROUP, 3, {"group_id": "g", "member_id": "m", "generation_id": 1, "assignments": []}),
        (ApiKey.SYNC_GROUP, 5, {"group_id": "g", "member_id": "m", "generation_id": 1, "assignments": []}),
        (ApiKey.HEARTBEAT, 3, {"group_id": "g", "member_id": "m", "generation_id": 1}),
        (ApiKey.HEARTBEAT, 4, {"group_id": "g", "member_id": "m", "generation_id": 1, "group_instance_id": "i"}),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**BEAT, "group_id": "", "member_epoch": 1}),
    ],
    ids=str,
)
async def test_any_other_request_is_left_to_the_handler(tmp_path: Path, asked: Asked) -> None:
    async with coordinating(tmp_path) as broker:
        assert by_frame(broker, asked) is None


async def test_so_is_one_that_is_cut_off(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        asked = (ApiKey.JOIN_GROUP, 9, {**JOIN, "member_id": ""})
        assert groups.usual_join_group(broker, CALLER, 9, 7, frame(asked)[:-1], BODY) is None


async def test_so_is_one_whose_coordinator_cannot_decide(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        asked = (ApiKey.JOIN_GROUP, 9, {**JOIN, "member_id": ""})
        shard = broker.groups.runtime.find("g")
        assert shard.machine is not None
        shard.machine.deletions.under_way["g"] = None  # type: ignore[assignment]
        assert by_frame(broker, asked) is None
        shard.machine.deletions.under_way.clear()
        machine, shard.machine = shard.machine, None
        assert by_frame(broker, asked) is None
        shard.machine = machine
        assert isinstance(by_frame(broker, asked), bytes)
        broker.groups.runtime.resign()
        assert by_frame(broker, asked) is None


async def test_heartbeats_of_the_new_protocol_are_left_to_the_handler_while_it_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinating(tmp_path) as broker:
        asked = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**BEAT, "member_epoch": 1})
        assert by_frame(broker, asked) is not None
        monkeypatch.setattr("barnabas.broker.coordinators.groups.CONSUMER_PROTOCOL_SINCE", 100)
        assert by_frame(broker, asked) is None


async def join(broker: BrokerContext) -> int:
    """Member `m` joins group `h`; its epoch."""
    fields: dict[str, Any] = {"rebalance_timeout": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    asked = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**BEAT, **fields, "member_epoch": 0})
    epoch: int = read(asked, await in_frames(broker, asked)).member_epoch
    return epoch


async def beat(broker: BrokerContext, epoch: int) -> Any:
    asked = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**BEAT, "member_epoch": epoch})
    return read(asked, await in_frames(broker, asked))


def let_pass(broker: BrokerContext, ms: int) -> None:
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(ms)
    broker.groups.runtime.find("h")._timers.run_due()


def is_member(broker: BrokerContext) -> bool:
    machine = broker.groups.runtime.find("h").machine
    assert machine is not None
    group = machine.table.groups["h"]
    assert isinstance(group, ConsumerGroup)
    return "m" in group.members


async def test_heartbeats_that_bring_nothing_new_keep_a_member_and_without_them_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with coordinating(tmp_path) as broker:
        epoch = await join(broker)
        await beat(broker, epoch)
        with monkeypatch.context() as patch:
            patch.setattr(Shard, "ask", None)  # the short way alone is taken
            for _ in range(5):
                let_pass(broker, 44_000)
                assert (await beat(broker, epoch)).error_code is ErrorCode.none
        let_pass(broker, 44_999)
        assert is_member(broker)
        let_pass(broker, 1)
        assert not is_member(broker)
        assert (await beat(broker, epoch)).error_code is ErrorCode.unknown_member_id


async def test_a_change_of_the_groups_settings_counts_from_the_next_heartbeat_on(tmp_path: Path) -> None:
    async with coordinating(tmp_path) as broker:
        epoch = await join(broker)
        assert (await beat(broker, epoch)).heartbeat_interval == timedelta(seconds=5)
        changed = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "7000"}
        broker.groups._overrides["h"] = changed
        assert (await beat(broker, epoch)).heartbeat_interval == timedelta(seconds=7)
        let_pass(broker, 59_999)
        assert is_member(broker)
        let_pass(broker, 1)
        assert not is_member(broker)


@pytest.mark.parametrize("condition", ["unwritten", "uncommitted", "too few in sync"])
async def test_a_heartbeat_is_not_answered_before_what_was_decided_could_be_lost(
    tmp_path: Path, condition: str
) -> None:
    async with coordinating(tmp_path) as broker:
        epoch = await join(broker)
        shard = broker.groups.runtime.find("h")
        asked = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**BEAT, "member_epoch": epoch})
        assert isinstance(by_frame(broker, asked), bytes)
        if condition == "too few in sync":
            log = shard.partition.log
            log.update_config(replace(log.config, min_insync_replicas=2))
            assert (await beat(broker, epoch)).error_code is ErrorCode.coordinator_not_available
            return
        if condition == "unwritten":
            shard._is_quiet = False
            other = {**BEAT, "member_id": "n", "member_epoch": 0, "rebalance_timeout": 9_000}
            joining = {**other, "subscribed_topic_names": ["other"], "topic_partitions": []}
            assert isinstance(by_frame(broker, (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)), Parked)
        else:
            shard.partition.leader.high_watermark -= 1
        waiting = by_frame(broker, asked)
        assert isinstance(waiting, Parked) and not waiting.resolved


async def test_a_response_that_cannot_be_packed_ends_its_connection_and_concerns_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def pack(call: PackedCall[int], response: bytes) -> bytes:
        return b"%d: %b" % (call.request, response)

    at_once, waiting, fine = (PackedCall(CALLER, 9, 7, number, pack) for number in range(3))
    parked, last = waiting.result(), fine.result()
    for call in (at_once, waiting):
        call.answer("no bytes")
    fine.answer(b"packed")
    assert at_once.result() is HANG_UP
    assert isinstance(parked, Parked) and isinstance(last, Parked)
    assert (await answer_of(parked), await answer_of(last)) == (HANG_UP, b"2: packed")
    assert caplog.text.count("a response failed") == 2
