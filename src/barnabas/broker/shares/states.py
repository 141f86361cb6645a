"""The states of share partitions as their leaders read and write them: from the share coordinator, here or elsewhere.

The group coordinator, which begins and deletes states, asks for itself (`broker/coordinators/share_persister`).

Writes to another broker go in batches (`request_batching`): those that come up while it owes an answer leave together.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.coordinators.request_batching import REQUEST_SECONDS, RequestBatcher
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    NotCoordinator,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.shares import Answered
    from barnabas.machines.shares.coordinator import ShareKey, StateUpdate

logger = logging.getLogger(__name__)


_ERRORS: Final[dict[ErrorCode, type[ApiError]]] = {
    each.code: each
    for each in (
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        FencedLeaderEpoch,
        FencedStateEpoch,
        InvalidRequest,
        NotCoordinator,
        UnknownTopicOrPartition,
    )
}
"""What coordinators on other brokers answer."""


class _RemoteWrite(NamedTuple):
    """A change that another broker's coordinator has to store."""

    key: ShareKey
    update: StateUpdate
    result: asyncio.Future[Answered]


class ShareStates:
    """Asks the share coordinators, wherever they are. Errors are answers."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._writes: RequestBatcher[_RemoteWrite] = RequestBatcher(self._send_writes)

    async def stop(self) -> None:
        """Send nothing more."""
        await self._writes.stop()

    async def read(self, key: ShareKey, leader_epoch: int) -> Answered:
        """The state that a leader goes on with."""
        if self._broker.metadata.topic(SHARE_GROUP_STATE) is None:
            try:
                await internal_topics.make(self._broker, SHARE_GROUP_STATE)
            except ApiError as error:
                return CoordinatorNotAvailable(str(error))
        leader = self._coordinator(key)
        if leader is None:
            return CoordinatorNotAvailable(f"The share coordinator of {key.text} has no leader.")
        if leader != self._broker.broker_id:
            return await self._read_remotely(leader, key, leader_epoch)
        answer = self._broker.share_coordinators.ask(
            key, lambda machine, call, now_ms: machine.read(key, leader_epoch, call, now_ms)
        )
        return await answer if asyncio.isfuture(answer) else answer

    async def write(self, key: ShareKey, update: StateUpdate) -> Answered:
        """Store a change."""
        leader = self._coordinator(key)
        if leader is None:
            return CoordinatorNotAvailable(f"The share coordinator of {key.text} has no leader.")
        if leader != self._broker.broker_id:
            result: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
            self._writes.add(leader, _RemoteWrite(key, update, result))
            return await result
        answer = self._broker.share_coordinators.ask(
            key, lambda machine, call, now_ms: machine.write(key, update, call, now_ms)
        )
        return await answer if asyncio.isfuture(answer) else answer

    def _coordinator(self, key: ShareKey) -> int | None:
        """The broker that keeps a state."""
        number = self._broker.share_coordinators.runtime.partition_for(key.text)
        image = None if number is None else self._broker.metadata.partition(SHARE_GROUP_STATE, number)
        return None if image is None or image.leader < 0 else image.leader

    async def _read_remotely(self, leader: int, key: ShareKey, leader_epoch: int) -> Answered:
        from kio.schema.read_share_group_state.v0 import request as reading
        from kio.schema.read_share_group_state.v0.response import ReadShareGroupStateResponse

        from barnabas.machines.shares.coordinator import StoredState
        from barnabas.protocol.coordinator_records.share_state import NOT_COUNTED, StateBatch

        part = reading.PartitionData(partition=key.partition, leader_epoch=leader_epoch)  # type: ignore[arg-type]
        topic = reading.ReadStateData(topic_id=key.topic_id, partitions=(part,))
        request = reading.ReadShareGroupStateRequest(group_id=key.group_id, topics=(topic,))
        answered = await self._ask(leader, request, ReadShareGroupStateResponse)
        if isinstance(answered, ApiError):
            return answered
        found = _by_partition(answered).get((key.topic_id, key.partition))
        if found is None or found.error_code is not ErrorCode.none:
            return _error(found)
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        )
        return StoredState(found.state_epoch, leader_epoch, found.start_offset, NOT_COUNTED, batches)

    async def _send_writes(self, leader: int, writes: list[_RemoteWrite]) -> None:
        """Send the changes of each group in one request, in the order in which they came up."""
        groups: dict[str, list[_RemoteWrite]] = {}
        for write in writes:
            groups.setdefault(write.key.group_id, []).append(write)
        await asyncio.gather(*(self._send_group(leader, group_id, mine) for group_id, mine in groups.items()))

    async def _send_group(self, leader: int, group_id: str, writes: list[_RemoteWrite]) -> None:
        """Several changes of one partition go one after the other: a request has one result for a partition."""
        while writes:
            first: dict[ShareKey, _RemoteWrite] = {}
            later = [write for write in writes if first.setdefault(write.key, write) is not write]
            await self._send_once(leader, group_id, list(first.values()))
            writes = later

    async def _send_once(self, leader: int, group_id: str, writes: list[_RemoteWrite]) -> None:
        from kio.schema.write_share_group_state.v1.response import WriteShareGroupStateResponse

        answered = await self._ask(leader, _write_request(group_id, writes), WriteShareGroupStateResponse)
        results = {} if isinstance(answered, ApiError) else _by_partition(answered)
        for key, _, result in writes:
            if result.done():
                continue
            found = results.get((key.topic_id, key.partition))
            if isinstance(answered, ApiError):
                result.set_result(answered)
            elif found is None or found.error_code is not ErrorCode.none:
                result.set_result(_error(found))
            else:
                from barnabas.machines.shares.coordinator import NO_STATE

                result.set_result(NO_STATE)

    async def _ask(self, leader: int, request: Any, response_class: type[Any]) -> Any:
        """The response of another broker, or the error that there is none."""
        try:
            return await self._broker.peers.ask(
                leader, request, response_class, seconds=REQUEST_SECONDS, purpose="share-state"
            )
        except ChannelBroken as error:
            return CoordinatorNotAvailable(f"Broker {leader}, a share coordinator, cannot be asked: {error}")
        except Exception as error:
            logger.exception("Asking broker %d for the state of share partitions failed.", leader)
            return UnknownServerError(str(error))


def _write_request(group_id: str, writes: list[_RemoteWrite]) -> Any:
    from kio.schema.write_share_group_state.v1 import request as writing

    topics: dict[Any, list[Any]] = {}
    for key, update, _ in writes:
        batches = tuple(
            writing.StateBatch(
                first_offset=each.first_offset,  # type: ignore[arg-type]
                last_offset=each.last_offset,  # type: ignore[arg-type]
                delivery_state=each.delivery_state,  # type: ignore[arg-type]
                delivery_count=each.delivery_count,  # type: ignore[arg-type]
            )
            for each in update.batches
        )
        topics.setdefault(key.topic_id, []).append(
            writing.PartitionData(
                partition=key.partition,  # type: ignore[arg-type]
                state_epoch=update.state_epoch,  # type: ignore[arg-type]
                leader_epoch=update.leader_epoch,  # type: ignore[arg-type]
                start_offset=update.start_offset,  # type: ignore[arg-type]
                delivery_complete_count=update.complete_count,  # type: ignore[arg-type]
                state_batches=batches,
            )
        )
    return writing.WriteShareGroupStateRequest(
        group_id=group_id,
        topics=tuple(
            writing.WriteStateData(topic_id=topic_id, partitions=tuple(parts)) for topic_id, parts in topics.items()
        ),
    )


def _by_partition(response: Any) -> dict[tuple[Any, int], Any]:
    return {(topic.topic_id, part.partition): part for topic in response.results for part in topic.partitions}


def _error(found: Any) -> ApiError:
    if found is None:
        return UnknownServerError("A share coordinator left a partition out of its answer.")
    known = _ERRORS.get(found.error_code, UnknownServerError)
    return known(found.error_message or found.error_code.name)
