"""The state APIs of share partitions on one broker: each partition by its own coordinator, kept over a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest
from kio.schema.initialize_share_group_state.v0.request import InitializeShareGroupStateRequest
from kio.schema.read_share_group_state.v0.request import ReadShareGroupStateRequest
from kio.schema.read_share_group_state_summary.v1.request import ReadShareGroupStateSummaryRequest
from kio.schema.write_share_group_state.v1.request import WriteShareGroupStateRequest

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.handlers import share_state
from barnabas.machines.shares.coordinator import PRUNE
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from tests.support.images import CALLER
from tests.support.parts import make_topic, running_parts
from tests.support.wire import build

if TYPE_CHECKING:
    from pathlib import Path
    from uuid import UUID

    from barnabas.broker.context import BrokerContext

FEW = {"share.coordinator.state.topic.num.partitions": "3"}
HANDLERS: dict[type[Any], Any] = {
    InitializeShareGroupStateRequest: share_state.initialize_share_group_state,
    WriteShareGroupStateRequest: share_state.write_share_group_state,
    ReadShareGroupStateRequest: share_state.read_share_group_state,
    ReadShareGroupStateSummaryRequest: share_state.read_share_group_state_summary,
    DeleteShareGroupStateRequest: share_state.delete_share_group_state,
}


async def ask(broker: BrokerContext, of: type[Any], topic_id: UUID, *parts: dict[str, Any], group: str = "g") -> Any:
    request = build(of, {"group_id": group, "topics": [{"topic_id": topic_id, "partitions": list(parts)}]})
    return (await HANDLERS[of](broker, request, CALLER)).results


async def test_each_partition_of_a_request_has_its_own_answer(tmp_path: Path) -> None:
    async with running_parts(tmp_path, FEW) as broker:
        await internal_topics.make(broker, SHARE_GROUP_STATE)
        await broker.share_coordinators.runtime.loaded()
        topic_id = (await make_topic(broker, "orders", 4)).topic_id
        begin = [{"partition": index, "state_epoch": 1, "start_offset": 5} for index in range(5)]
        (topic,) = await ask(broker, InitializeShareGroupStateRequest, topic_id, *begin)
        assert [part.error_code for part in topic.partitions] == [ErrorCode.none] * 4 + [
            ErrorCode.unknown_topic_or_partition
        ]
        (read,) = await ask(broker, ReadShareGroupStateRequest, topic_id, {"partition": 3, "leader_epoch": 0})
        assert (read.partitions[0].state_epoch, read.partitions[0].start_offset) == (1, 5)
        assert not await ask(
            broker, InitializeShareGroupStateRequest, topic_id, {"partition": 0, "start_offset": 0}, group=""
        )
        used = {
            shard.partition.tp.partition
            for shard, machine in broker.share_coordinators.runtime.machines()
            if machine.states
        }
        assert len(used) > 1, "the partitions of a group are coordinated in several places"


async def test_a_state_is_there_after_a_restart_and_after_pruning(tmp_path: Path) -> None:
    settings = {**FEW, "share.coordinator.snapshot.update.records.per.snapshot": "1"}
    batch = {"first_offset": 5, "last_offset": 9, "delivery_state": 2, "delivery_count": 1}
    async with running_parts(tmp_path, settings) as broker:
        await internal_topics.make(broker, SHARE_GROUP_STATE)
        await broker.share_coordinators.runtime.loaded()
        topic_id = (await make_topic(broker, "orders")).topic_id
        await ask(broker, InitializeShareGroupStateRequest, topic_id, {"partition": 0, "start_offset": 5})
        coordinators = broker.share_coordinators
        (shard,) = [shard for shard, machine in coordinators.runtime.machines() if machine.states]
        shard.decide_event(lambda machine, now_ms: machine.expire(PRUNE, now_ms))
        write = {"partition": 0, "start_offset": -1, "state_batches": [batch], "delivery_complete_count": 5}
        for _ in range(2):
            (written,) = await ask(broker, WriteShareGroupStateRequest, topic_id, write)
            assert written.partitions[0].error_code is ErrorCode.none
        for _ in range(2):
            shard.decide_event(lambda machine, now_ms: machine.expire(PRUNE, now_ms))
        assert shard.partition.log.log_start_offset == 1, "only the first snapshot was there when it last looked"
    async with running_parts(tmp_path, settings) as broker:
        await broker.share_coordinators.runtime.loaded()
        (read,) = await ask(broker, ReadShareGroupStateRequest, topic_id, {"partition": 0, "leader_epoch": 0})
        (found,) = read.partitions[0].state_batches
        assert (found.first_offset, found.last_offset, found.delivery_state, found.delivery_count) == (5, 9, 2, 1)
        (summary,) = await ask(broker, ReadShareGroupStateSummaryRequest, topic_id, {"partition": 0})
        assert (summary.partitions[0].start_offset, summary.partitions[0].delivery_complete_count) == (5, 5)
        await ask(broker, DeleteShareGroupStateRequest, topic_id, {"partition": 0})
        (gone,) = await ask(broker, ReadShareGroupStateRequest, topic_id, {"partition": 0})
        assert gone.partitions[0].error_code is ErrorCode.invalid_request
