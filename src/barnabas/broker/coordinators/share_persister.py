"""Where a group coordinator has the state of share partitions kept: it begins states, deletes them, and asks how far
they are. The leaders of partitions, who read and write them, ask share coordinators themselves
(`broker/shares/states`).

`CoordinatorPersister` asks the share coordinator of each partition, on this broker or on another. Tests have a
`SharePersister` of their own, in memory.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from kio.schema.delete_share_group_state.v0 import request as deleting
from kio.schema.delete_share_group_state.v0.response import DeleteShareGroupStateResponse
from kio.schema.initialize_share_group_state.v0 import request as initializing
from kio.schema.initialize_share_group_state.v0.response import InitializeShareGroupStateResponse
from kio.schema.read_share_group_state_summary.v1 import request as summing_up
from kio.schema.read_share_group_state_summary.v1.response import ReadShareGroupStateSummaryResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32, i64

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.coordinators.request_batching import REQUEST_SECONDS
from barnabas.broker.coordinators.runtime import partition_of
from barnabas.broker.serving.asking import ask
from barnabas.model.errors import ApiError, ErrorCode
from barnabas.model.ids import NO_ID, uuid_to_text
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from kio.schema.delete_share_group_state.v0.response import PartitionResult as Deleted
    from kio.schema.initialize_share_group_state.v0.response import PartitionResult as Initialized
    from kio.schema.read_share_group_state_summary.v1.response import PartitionResult as SummedUp

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.share.offsets import StartOffsets

logger = logging.getLogger(__name__)

TRIES: Final = 5
"""How often a coordinator is asked that moves, loads or cannot be reached, as Kafka's persister does."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 1.6
"""Seconds before the second try; each pause is twice as long as the last, up to the longest."""
AGAIN: Final = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.network_exception,
    }
)
"""Errors of a coordinator that is not where it was, or not ready."""


class StatePartition(NamedTuple):
    """A partition, by the id of its topic."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSummary:
    """How far a group is with a partition, or why that cannot be told."""

    error_code: ErrorCode = ErrorCode.none
    leader_epoch: int = 0
    start_offset: int = -1
    """The first message that is not dealt with; -1 if nobody has fetched yet."""
    delivery_complete_count: int = -1
    """How many messages from there on are dealt with; -1 if that is not known."""


class SharePersister(Protocol):
    """Keeps the state of share partitions. Errors are results: nothing is raised."""

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: StartOffsets
    ) -> Mapping[StatePartition, ErrorCode]:
        """Begin states anew at these offsets; -1 is decided by whoever fetches first."""
        ...

    async def delete(self, group_id: str, partitions: Partitions) -> Mapping[StatePartition, ErrorCode]:
        """Forget states; one that is not there is forgotten already."""
        ...

    async def read_summary(self, group_id: str, partitions: Partitions) -> Mapping[StatePartition, StateSummary]:
        """How far states are."""
        ...


class _PartitionResult(Protocol):
    """What a coordinator tells of one partition, whatever it was asked for."""

    @property
    def partition(self) -> int: ...

    @property
    def error_code(self) -> ErrorCode: ...


Part = TypeVar("Part")
Result = TypeVar("Result", bound=_PartitionResult)
Told = TypeVar("Told", bound=_PartitionResult, covariant=True)


class _TopicResult(Protocol[Told]):
    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def partitions(self) -> tuple[Told, ...]: ...


class _Response(Protocol[Told]):
    @property
    def results(self) -> tuple[_TopicResult[Told], ...]: ...


class _Api(NamedTuple, Generic[Part, Result]):
    """The messages of one API: all of them have the same form."""

    request: Callable[[GroupId, Mapping[UUID, list[Part]]], object]
    """Makes a request of a group and the parts of topics."""
    response: type[_Response[Result]]


_INITIALIZE: Final[_Api[initializing.PartitionData, Initialized]] = _Api(
    lambda group_id, topics: initializing.InitializeShareGroupStateRequest(
        group_id=group_id,
        topics=tuple(
            initializing.InitializeStateData(topic_id=topic_id, partitions=tuple(parts))
            for topic_id, parts in topics.items()
        ),
    ),
    InitializeShareGroupStateResponse,
)
_DELETE: Final[_Api[deleting.PartitionData, Deleted]] = _Api(
    lambda group_id, topics: deleting.DeleteShareGroupStateRequest(
        group_id=group_id,
        topics=tuple(
            deleting.DeleteStateData(topic_id=topic_id, partitions=tuple(parts)) for topic_id, parts in topics.items()
        ),
    ),
    DeleteShareGroupStateResponse,
)
_SUMMARY: Final[_Api[summing_up.PartitionData, SummedUp]] = _Api(
    lambda group_id, topics: summing_up.ReadShareGroupStateSummaryRequest(
        group_id=group_id,
        topics=tuple(
            summing_up.ReadStateSummaryData(topic_id=topic_id, partitions=tuple(parts))
            for topic_id, parts in topics.items()
        ),
    ),
    ReadShareGroupStateSummaryResponse,
)


class CoordinatorPersister:
    """Asks the share coordinator of each partition, wherever it is."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: StartOffsets
    ) -> Mapping[StatePartition, ErrorCode]:
        """Begin states anew at these offsets."""
        parts = {
            StatePartition(topic, partition): initializing.PartitionData(
                partition=i32(partition), state_epoch=i32(state_epoch), start_offset=i64(offset)
            )
            for topic, offsets in start_offsets.items()
            for partition, offset in offsets.items()
        }
        return _codes(await self._ask(_INITIALIZE, group_id, parts))

    async def delete(self, group_id: str, partitions: Partitions) -> Mapping[StatePartition, ErrorCode]:
        """Forget states."""
        parts = {place: deleting.PartitionData(partition=i32(place.partition)) for place in _places(partitions)}
        return _codes(await self._ask(_DELETE, group_id, parts))

    async def read_summary(self, group_id: str, partitions: Partitions) -> Mapping[StatePartition, StateSummary]:
        """How far states are."""
        parts = {
            place: summing_up.PartitionData(partition=i32(place.partition), leader_epoch=i32(-1))
            for place in _places(partitions)
        }
        results = await self._ask(_SUMMARY, group_id, parts)
        return {
            place: StateSummary(error_code=result)
            if isinstance(result, ErrorCode)
            else StateSummary(
                error_code=result.error_code,
                leader_epoch=result.leader_epoch,
                start_offset=result.start_offset,
                delivery_complete_count=result.delivery_complete_count,
            )
            for place, result in results.items()
        }

    async def _ask(
        self, api: _Api[Part, Result], group_id: str, parts: Mapping[StatePartition, Part]
    ) -> dict[StatePartition, Result | ErrorCode]:
        """The result of each partition, or the error code that keeps its coordinator from giving one."""
        results: dict[StatePartition, Result | ErrorCode] = {}
        pause = FIRST_PAUSE
        for left in reversed(range(TRIES)):
            asked = {place: part for place, part in parts.items() if _code(results.get(place)) in (None, *AGAIN)}
            results |= await self._ask_once(api, group_id, asked)
            if not left or not any(_code(results[place]) in AGAIN for place in asked):
                break
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return results

    async def _ask_once(
        self, api: _Api[Part, Result], group_id: str, parts: Mapping[StatePartition, Part]
    ) -> dict[StatePartition, Result | ErrorCode]:
        by_broker: dict[int | None, dict[StatePartition, Part]] = {}
        if self._broker.metadata.topic(SHARE_GROUP_STATE) is None:
            try:
                await internal_topics.make(self._broker, SHARE_GROUP_STATE)
            except ApiError:
                return dict.fromkeys(parts, ErrorCode.coordinator_not_available)
        for place, part in parts.items():
            by_broker.setdefault(self._coordinator_of(group_id, place), {})[place] = part
        answers = await asyncio.gather(
            *(self._ask_broker(broker_id, api, group_id, mine) for broker_id, mine in by_broker.items())
        )
        return {place: result for answer in answers for place, result in answer.items()}

    def _coordinator_of(self, group_id: str, place: StatePartition) -> int | None:
        """The broker that leads the partition in which a state is kept; None if there is none."""
        metadata = self._broker.metadata
        topic = metadata.topic(SHARE_GROUP_STATE)
        if topic is None:
            return None
        key = f"{group_id}:{uuid_to_text(place.topic_id)}:{place.partition}"
        image = metadata.partition(SHARE_GROUP_STATE, partition_of(key, len(topic.partitions)))
        return None if image is None or image.leader < 0 else image.leader

    async def _ask_broker(
        self, broker_id: int | None, api: _Api[Part, Result], group_id: str, parts: Mapping[StatePartition, Part]
    ) -> dict[StatePartition, Result | ErrorCode]:
        results: dict[StatePartition, Result | ErrorCode] = dict.fromkeys(parts, ErrorCode.coordinator_not_available)
        if broker_id is None:
            return results
        topics: dict[UUID, list[Part]] = {}
        for place, part in parts.items():
            topics.setdefault(place.topic_id, []).append(part)
        request = api.request(GroupId(group_id), topics)
        try:
            response: _Response[Result] = await ask(
                self._broker, broker_id, request, api.response, seconds=REQUEST_SECONDS, purpose="share-states"
            )
        except ChannelBroken:
            return dict.fromkeys(parts, ErrorCode.network_exception)
        except Exception:
            logger.exception("Broker %d failed to answer for the share states of group %s.", broker_id, group_id)
            return dict.fromkeys(parts, ErrorCode.unknown_server_error)
        for topic in response.results:
            for part_result in topic.partitions:
                results[StatePartition(topic.topic_id or NO_ID, part_result.partition)] = part_result
        return results


def _places(partitions: Partitions) -> Iterable[StatePartition]:
    return (StatePartition(topic, partition) for topic, found in partitions.items() for partition in sorted(found))


def _code(result: _PartitionResult | ErrorCode | None) -> ErrorCode | None:
    """The error code of a result, which may be nothing but that."""
    return result if result is None or isinstance(result, ErrorCode) else result.error_code


def _codes(results: Mapping[StatePartition, _PartitionResult | ErrorCode]) -> dict[StatePartition, ErrorCode]:
    return {place: _code(result) or ErrorCode.none for place, result in results.items()}
