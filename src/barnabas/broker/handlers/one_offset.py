"""OffsetCommit v8–10 of one offset without metadata: what nearly all consumers send, answered without messages.

What it comes to, and each byte of its answer, are those of `group_offsets.offset_commit`, which gets every other
request: of other versions, with metadata, of several partitions or of one that there is not, and while there are
permissions or quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.calls import PackedCall
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.protocol.messages.groups.offset_commit import FLEXIBLE, OneOffset, pack_one, read_one

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.groups.coordinator import GroupCoordinator
    from barnabas.machines.groups.table import GroupOutcome
    from barnabas.machines.outcome import OneRecord
    from barnabas.net.reply import Answer, Parked


def commit_one(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> Answer | Parked:
    """Store an offset; None, with nothing done, if the request is any other."""
    if version < FLEXIBLE or (found := read_one(frame, body, version)) is None:
        return None
    (group_id, epoch, member_id, instance_id, topic_id, name), index, offset, leader_epoch, _ = found
    image = broker.metadata.image
    topic = image.topics.get(name) if topic_id is None else image.topic_by_id(topic_id)
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    try:
        shard = broker.groups.runtime.find(group_id)
    except ApiError:
        return None
    if (machine := shard.machine) is None or machine.deletions.under_way:
        return None
    one = OneOffset(group_id, epoch, member_id, instance_id, topic.topic_id, topic.name, index, offset, leader_epoch)
    call = PackedCall(caller, version, correlation_id, one, _pack)
    shard.ask(_decide, call)
    return call.result()


def _decide(machine: GroupCoordinator, call: PackedCall[OneOffset], now_ms: int) -> GroupOutcome | OneRecord:
    return machine.commit_one(call.request, call, now_ms)


def _pack(call: PackedCall[OneOffset], response: ErrorCode | ApiError) -> bytes:
    code = response.code if isinstance(response, ApiError) else response
    return pack_one(call.correlation_id, call.version, call.request, code)
