"""What is stored of a queue, read over the wire without fencing anybody, as the observer of the simulation does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.ids import uuid_to_text
from tests.history.queues.events import Observation, StateRun
from tests.support.group_wire import READ_SHARE_GROUP_STATE, READ_SHARE_GROUP_STATE_SUMMARY
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
SHARE: Final = 2
SECONDS: Final = 5.0


class Look(NamedTuple):
    """What a coordinator told, and who it is."""

    seen: Observation
    address: str
    key: str
    """Of the state, by which its coordinator is found."""


def look(addresses: Sequence[str], topic: str, group: str, partition: int) -> Look | None:
    """The state of a partition; None if nobody tells it now."""
    asked_at = time.monotonic()
    for address in addresses:
        try:
            found = coordinator_of(address, topic, group, partition)
            state = None if found is None else _read(*found, group, partition)
        except (OSError, AssertionError):
            continue
        if found is not None and state is not None:
            runs = tuple(
                StateRun(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                for each in state.state_batches
            )
            seen = Observation(partition, state.start_offset, runs, asked_at, time.monotonic())
            return Look(seen, found[1], _key(group, found[0], partition))
    return None


def coordinator_of(address: str, topic: str, group: str, partition: int) -> tuple[UUID, str] | None:
    """The topic's id, and the address of the share coordinator of a partition, as one broker says."""
    with Connection(address, SECONDS) as broker:
        [described] = broker.ask(METADATA, 12, {"topics": [{"name": topic}]}).topics
        key = _key(group, described.topic_id, partition)
        [found] = broker.ask(FIND_COORDINATOR, 6, {"key_type": SHARE, "coordinator_keys": [key]}).coordinators
    return None if found.error_code else (described.topic_id, f"{found.host}:{found.port}")


def _key(group: str, topic_id: UUID, partition: int) -> str:
    return f"{group}:{uuid_to_text(topic_id)}:{partition}"


def _read(topic_id: UUID, address: str, group: str, partition: int) -> Any:
    with Connection(address, SECONDS) as coordinator:
        known = _ask(coordinator, READ_SHARE_GROUP_STATE_SUMMARY, group, topic_id, partition, -1)
        if known is None:
            return None
        return _ask(coordinator, READ_SHARE_GROUP_STATE, group, topic_id, partition, known.leader_epoch)


def _ask(connection: Connection, key: int, group: str, topic_id: UUID, partition: int, leader_epoch: int) -> Any:
    part = {"partition": partition, "leader_epoch": leader_epoch}
    answer = connection.ask(key, 0, {"group_id": group, "topics": [{"topic_id": topic_id, "partitions": [part]}]})
    [[found]] = [topic.partitions for topic in answer.results]
    return None if found.error_code else found
