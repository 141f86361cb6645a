"""The states of share partitions are stored though their coordinator moves, and loaded anew when they are gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.shares import hosted
from barnabas.broker.shares.partitions import SharePartitions
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.shares.coordinator import Initialization, ShareKey
from barnabas.metadata.stores.store import StoreUnavailable
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedStateEpoch,
    InvalidRequest,
    NotCoordinator,
    StorageFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from tests.support.parts import append, make_topic
from tests.support.share_letters import done_before
from tests.support.share_members import ACCEPT, GROUP, Member, acquired, begin, later, queue, send, states_of

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.shares.coordinator import StateUpdate


class FailingWrites:
    """Lets the writes of states fail for a while, and keeps what was to be written."""

    def __init__(self, broker: BrokerContext, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.first_offset = 0
        """Writes of records before it do not fail."""
        self.updates: list[StateUpdate] = []
        states_of(broker).on_write = self._refuse

    async def _refuse(self, update: StateUpdate) -> ApiError | None:
        self.updates.append(update)
        return self.errors.pop(0) if self.errors and update.batches[0].first_offset >= self.first_offset else None


MOVING = [NotCoordinator("moved"), CoordinatorNotAvailable("no leader"), CoordinatorLoadInProgress("loads")]


async def test_an_acknowledgement_is_stored_though_the_share_coordinator_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "WRITE_PAUSES", (0.01,) * 999)
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 4)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000, max_records=2, share_acquire_mode=1)) == [(0, 1, 1)]
        assert acquired(await bela.fetch()) == [(2, 3, 1)]
        writes = FailingWrites(broker, *[NotCoordinator("moved")] * 999)
        writes.first_offset = 2
        late = asyncio.create_task(bela.acknowledge((2, 3, ACCEPT)))
        await asyncio.sleep(0.03)
        assert await anna.acknowledge((0, 1, ACCEPT)) is ErrorCode.none
        writes.errors = [*MOVING]
        assert await late is ErrorCode.none
        starts = [update.start_offset for update in writes.updates]
        assert (starts[0], starts[-1]) == (0, 2), "the start does not go back"
        assert await bela.fetch() is None


@pytest.mark.parametrize("error", MOVING, ids=lambda error: type(error).__name__)
async def test_a_client_is_told_to_try_again_if_the_coordinator_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ApiError
) -> None:
    monkeypatch.setattr(hosted, "WRITE_PAUSES", (0.001,) * 3)
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna = Member(broker, topic_id, "anna")
        await anna.fetch(wait_ms=5000)
        writes = FailingWrites(broker, *[error] * 4)
        assert await anna.acknowledge((0, 1, ACCEPT)) is ErrorCode.coordinator_not_available
        assert len(writes.updates) == 4
        assert await anna.acknowledge((0, 1, ACCEPT)) is ErrorCode.none, "the records are still its own"


async def test_a_full_disk_of_the_share_coordinator_leaves_messages_with_their_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker says is refused; it may say it again when the disk has room, or the lock ends."""
    monkeypatch.setattr(hosted, "WRITE_PAUSES", (0.001,) * 3)
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 3)
        anna, bela = Member(broker, topic_id, "anna"), Member(broker, topic_id, "bela")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 2, 1)]
        append, is_full = LeaderPartition.append, True

        def failing(partition: LeaderPartition, *args: Any, **named: Any) -> Any:
            if partition.tp.topic == SHARE_GROUP_STATE and is_full:
                raise StorageFailed("no space left on device")
            return append(partition, *args, **named)

        monkeypatch.setattr(LeaderPartition, "append", failing)
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.coordinator_not_available
        assert acquired(await bela.fetch()) == []
        await later(broker, 30_001)
        assert acquired(await bela.fetch()) == [(0, 0, 2), (1, 2, 2)], "the end of a lock counts at once, stored or not"
        is_full = False
        monkeypatch.setattr(hosted, "WRITE_PAUSES", (0.02,) * 500)  # the coordinator is loaded again after a while
        assert await anna.acknowledge((0, 0, ACCEPT)) is ErrorCode.invalid_record_state
        assert await bela.acknowledge((0, 2, ACCEPT)) is ErrorCode.none
        assert done_before(broker) == 3


async def test_what_the_next_session_of_a_member_acquires_is_not_taken_back(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        more = (await make_topic(broker, "more")).topic_id
        await begin(broker, more, Initialization(0, 0))
        send(broker)
        both = [{"topic_id": each, "partitions": [{"partition_index": 0}]} for each in (topic_id, more)]
        first = Member(broker, topic_id, "anna")
        await first.fetch(wait_ms=5000, topics=both)
        machine = broker.shares.find(ShareKey(GROUP, topic_id, 0)).machine
        assert machine is not None
        assert machine.in_flight == 1
        may_write = asyncio.Event()

        async def write_later(_: StateUpdate) -> None:
            await may_write.wait()

        states_of(broker).on_write = write_later
        first.hang_up()
        await asyncio.sleep(0.01)
        append(broker.replicas.find("more", 0), [1_700_000_000_000])
        second = Member(broker, more, "anna")
        assert acquired(await second.fetch(wait_ms=5000)) == [(0, 0, 1)]
        may_write.set()
        await broker.shares._tasks.wait()
        assert await second.acknowledge((0, 0, ACCEPT)) is ErrorCode.none


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnknownServerError("broken"), ErrorCode.unknown_server_error),
        (FencedStateEpoch("old"), ErrorCode.not_leader_or_follower),
        (RuntimeError("a mistake"), ErrorCode.unknown_server_error),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_state_that_cannot_be_loaded_is_told_and_not_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, told: ErrorCode
) -> None:
    monkeypatch.setattr(hosted, "LONGEST_PAUSE", 0.2)
    async with queue(tmp_path) as (broker, topic_id):
        send(broker)
        reads = []

        async def failing(key: ShareKey) -> ApiError:
            reads.append(key)
            if isinstance(error, ApiError):
                return error
            raise error

        states_of(broker).on_read = failing
        anna = Member(broker, topic_id, "anna")
        part = await asyncio.wait_for(anna.fetch(wait_ms=20_000), 10)
        assert (part.error_code, len(reads)) == (told, 1)
        assert (await anna.fetch()).error_code is told
        assert len(reads) == 1, "the failure is remembered for a moment"
        states_of(broker).on_read = None
        while broker.shares._hosted:
            await asyncio.sleep(0.02)
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 0, 1)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (InvalidRequest("not initialized"), ErrorCode.unknown_server_error),
        (UnknownTopicOrPartition("deleted"), ErrorCode.unknown_topic_or_partition),
        (FencedStateEpoch("old"), ErrorCode.not_leader_or_follower),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_share_partition_is_loaded_anew_if_its_state_is_gone(
    tmp_path: Path, error: ApiError, told: ErrorCode
) -> None:
    async with queue(tmp_path) as (broker, topic_id):
        send(broker, 2)
        anna = Member(broker, topic_id, "anna")
        assert acquired(await anna.fetch(wait_ms=5000)) == [(0, 1, 1)]
        FailingWrites(broker, error)
        assert await anna.acknowledge((0, 1, ACCEPT)) is told
        await begin(broker, topic_id, Initialization(1, 1))
        assert acquired(await anna.fetch(wait_ms=5000)) == [(1, 1, 1)]


class Behind:
    """The membership of a broker that hears a moment later what the controller has set for a group."""

    def __init__(self, broker: BrokerContext, *, is_reached: bool = True) -> None:
        self._broker = broker
        self._is_reached = is_reached

    async def catch_up_with_settings(self) -> None:
        if not self._is_reached:
            raise StoreUnavailable("the metadata store does not answer")
        image = self._broker.metadata.image
        new = {ConfigResource("groups", GROUP): {"share.auto.offset.reset": "earliest"}}
        self._broker.metadata.replace(replace(image, configs={**image.configs, **new}))


async def test_a_group_begins_by_what_was_set_before_it_came_though_this_broker_has_not_heard_of_it(
    tmp_path: Path,
) -> None:
    """A cluster test met this: a new `Queue` sometimes passed over what had been sent before."""
    async with queue(tmp_path) as (broker, _):
        send(broker, 4)
        behind: Any = Behind(broker)
        shares = SharePartitions(lambda: replace(broker, membership=behind))
        assert await shares.initial_offset(GROUP, broker.replicas.find("jobs", 0)) == 0


async def test_a_group_does_not_begin_while_nobody_can_tell_what_is_set_for_it(tmp_path: Path) -> None:
    async with queue(tmp_path) as (broker, _):
        send(broker, 4)
        behind: Any = Behind(broker, is_reached=False)
        shares = SharePartitions(lambda: replace(broker, membership=behind))
        with pytest.raises(CoordinatorNotAvailable, match="does not answer"):
            await shares.initial_offset(GROUP, broker.replicas.find("jobs", 0))
