"""What a test can trigger without a request: a rebalance, a new leader, retention as of a later time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ApiError
from barnabas.protocol.faults import InvalidFault

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.groups.table import GroupDraft
    from barnabas.net.connection import Connection
    from barnabas.storage.log.log import Log


SETTLE_SECONDS: Final = 5.0


def rebalance(broker: BrokerContext, group_id: str) -> str:
    """Make a group rebalance; returns the state that it is in then.

    A classic group expects all members to join again, as when their metadata changed. A consumer group gets a new
    epoch, so the next heartbeat makes a new assignment, and every member is told.
    """
    from barnabas.machines.groups.classic.group import ClassicGroup
    from barnabas.machines.groups.classic.rebalance import ClassicRebalance
    from barnabas.machines.groups.consumer.group import ConsumerGroup
    from barnabas.machines.groups.consumer.rebalance import epoch_record
    from barnabas.machines.groups.share.group import ShareGroup
    from barnabas.machines.groups.share.rules import epoch_record as share_epoch_record
    from barnabas.machines.outcome import Draft

    try:
        shard = broker.groups.runtime.find(group_id)
    except ApiError as error:
        raise InvalidFault(f"this broker does not coordinate group {group_id}: {error}") from error
    machine = shard.machine
    if machine is None:
        raise InvalidFault(f"the coordinator of group {group_id} is not ready: {shard.failure}")
    group = machine.table.groups.get(group_id)
    if group is None or group.is_empty:
        what = f"group {group_id} has no members" if group else f"there is no group {group_id}"
        raise InvalidFault(f"{what}, so it cannot be rebalanced: wait until a consumer has its partitions")
    now_ms = broker.clock.now_ms()
    draft: GroupDraft = Draft()
    if isinstance(group, ClassicGroup):
        ClassicRebalance(group, machine.table.settings_of(group_id), draft, now_ms).rebalance("a test asked for it")
    elif isinstance(group, ConsumerGroup):
        draft.changes.append(epoch_record(group_id, group.epoch + 1, group.metadata_hash))
    elif isinstance(group, ShareGroup):
        draft.changes.append(share_epoch_record(group_id, group.epoch + 1, group.metadata_hash))
    shard.apply(machine, draft.outcome(), now_ms)
    return str(group.state.value)  # type: ignore[attr-defined]  # of any kind


async def move_leader(broker: BrokerContext, topic: str, partition: int) -> int:
    """Elect a partition's leader anew, the next in-sync replica if there is another; returns the new leader epoch."""
    moved = (await broker.controller.move_leader(topic, partition))[topic]
    if isinstance(moved, ApiError):
        raise InvalidFault(f"the leader of {topic}-{partition} cannot be moved: {moved}")
    await broker.replicas.settled()
    return moved.partitions[partition].leader_epoch


async def settle(connections: Collection[Connection]) -> bool:
    """Wait until everything is served that clients sent before they left; whether it was, in the time that there is.

    A client that leaves may have asked for metadata behind a fetch that waits. When that is answered, perhaps because
    its topic was deleted, the other is served as well, and a topic may be made again for a client that is gone.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    while any(connection.left for connection in list(connections)):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.002)
    return True


async def expire(broker: BrokerContext, topic: str | None, ahead_ms: int) -> int:
    """Apply retention as of `ahead_ms` milliseconds from now; returns how many segments were removed."""
    logs, now_ms = _logs(broker, topic), broker.clock.now_ms() + ahead_ms
    return await asyncio.get_running_loop().run_in_executor(broker.executor, _expire, broker, logs, now_ms)


def log_starts(broker: BrokerContext, topic: str | None) -> dict[str, int]:
    """Where the logs of one topic, or all logs, begin on this broker."""
    return {str(log.tp): log.log_start_offset for log in _logs(broker, topic)}


def _logs(broker: BrokerContext, topic: str | None) -> list[Log]:
    if topic is not None and broker.metadata.topic(topic) is None:
        raise InvalidFault(f"there is no topic {topic}")
    return [log for log in broker.logs.logs() if topic in (None, log.tp.topic)]


def _expire(broker: BrokerContext, logs: Sequence[Log], now_ms: int) -> int:
    """Runs in a thread."""
    removed = 0
    for log in logs:
        with log.upkeep:
            removed += broker.logs.remove_expired(log, now_ms)
    return removed
