"""OffsetCommit v8–10 of one offset without metadata: what nearly all consumers send, answered without messages.

What it comes to, and each byte of its answer, are those of `group_offsets.offset_commit`, which gets every other
request: of other versions, with metadata, of several partitions or of one that there is not, and while there are
permissions or quotas.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.machines.outcome import Asker
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.net.reply import Parked
from barnabas.protocol.messages.groups.offset_commit import FLEXIBLE, OneOffset, pack_one, read_one

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.groups.coordinator import GroupCoordinator
    from barnabas.machines.groups.table import GroupOutcome

logger = logging.getLogger(__name__)


def commit_one(
    broker: BrokerContext, caller: Caller, version: int, correlation_id: int, frame: memoryview, body: int
) -> bytes | Parked | None:
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
    call = _Call(caller, version, correlation_id, one)
    shard.ask(_decide, call)
    return call.packed or call.park()


def _decide(machine: GroupCoordinator, call: _Call, now_ms: int) -> GroupOutcome:
    return machine.commit_one(call.one, call, now_ms)


class _Call(Asker[ErrorCode]):
    """Who waits for the result of a commit."""

    __slots__ = ("_correlation_id", "_parked", "client_host", "client_id", "one", "packed", "version")

    def __init__(self, caller: Caller, version: int, correlation_id: int, one: OneOffset) -> None:
        self.client_id = caller.client_id or ""
        self.client_host = caller.host
        self.version = version
        self.one = one
        self.packed = b""
        """The answer, as soon as it is there."""
        self._correlation_id = correlation_id
        self._parked: Parked | None = None

    def answer(self, response: object) -> None:
        """Give the result."""
        code = response.code if isinstance(response, ApiError) else response
        self.packed = pack_one(self._correlation_id, self.version, self.one, code)  # type: ignore[arg-type]
        if self._parked is not None:
            try:
                self._parked.resolve(self.packed)
            except Exception:  # which concerns none of the others that are answered now
                logger.exception("The response to client %s at %s got lost.", self.client_id, self.client_host)

    def fail(self, error: ApiError) -> None:
        """Give an error as the result."""
        self.answer(error)

    def park(self) -> Parked:
        """What the answer goes to when it comes; a client that leaves is not waited for."""
        self._parked = Parked(on_abandon=_forget)
        return self._parked


def _forget() -> None:
    """The offset is committed all the same."""
