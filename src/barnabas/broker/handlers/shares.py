"""ShareFetch v1–2, ShareAcknowledge v1–2: a member of a share group gets records, and says what has become of them.

- Sessions are those of `machines/shares/sessions`: bound to the connection, and when it ends, what the member has
  acquired is released. A fetch that begins a session cannot acknowledge; one that ends it does not fetch.
- Acknowledgements of a ShareFetch are stored before it reads. A partition of the response has two errors: of the fetch,
  and of the acknowledgement.
- Long poll: with less than min_bytes to acquire, a fetch waits for appends and released records, at most max_wait_ms.
  Partitions take turns, and share max_bytes. max_records holds for all of them; batches of the log are not divided,
  unless the acquire mode (v2+) is record_limit.
- v2+: a request with is_renew_ack may renew locks (KIP-1222), and fetches nothing.
- Under a quota (consumer_byte_rate) a member gets no more at once than the quota allows in its window, and then nothing
  until the average is right again. Acknowledgements are always taken.
- The response to an incremental request has only partitions with something to tell.
- With an authorizer, Read of the group, and of each topic: another one has TOPIC_AUTHORIZATION_FAILED. A fetch that
  waited is judged again before it gets something. Dead letters (KIP-1191) need nothing of the member: the broker writes
  them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.security.metering import throttle_time
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.broker.shares.fetching import ShareFetched, ShareFetching, ShareFetchLimits
from barnabas.machines.security.acls import Operation
from barnabas.machines.shares.coordinator import ShareKey
from barnabas.machines.shares.records import AcknowledgementBatch
from barnabas.machines.shares.sessions import FINAL, INITIAL, TopicIdPartition, check_first
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    GroupAuthorizationFailed,
    InvalidRequest,
    NotLeaderOrFollower,
    TopicAuthorizationFailed,
)
from barnabas.model.ids import NO_ID
from barnabas.protocol.acknowledgements import Acknowledgement
from barnabas.protocol.messages.shares.requests import RENEWALS
from barnabas.protocol.messages.shares.responses import (
    NO_LEADER,
    AcknowledgedSharePartition,
    AcquiredShareRecords,
    FetchedSharePartition,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from barnabas.protocol.wire.durations import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta
    from uuid import UUID

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.shares.sessions import ShareSession
    from barnabas.protocol.messages.shares.requests import ShareAcknowledgeRequest, ShareFetchRequest

    Acknowledged = Mapping[TopicIdPartition, ApiError | None]
    """What became of the acknowledgements of each partition: None if they are stored."""

RECORD_LIMIT: Final = 1
"""The acquire mode in which max_records holds for every record."""
LONGEST_MEMBER_ID: Final = 36
MOST_UNKNOWN: Final = 1000
"""Partitions of a session beyond those that exist. Kafka has no limit."""


@dataclass(frozen=True, slots=True)
class _Requested:
    """What a request says, without how it says it."""

    acknowledgements: Mapping[TopicIdPartition, tuple[AcknowledgementBatch, ...]]
    partitions: tuple[TopicIdPartition, ...]
    forgotten: tuple[TopicIdPartition, ...] = ()


async def share_fetch(
    broker: BrokerContext, request: ShareFetchRequest, caller: Caller, version: int
) -> ShareFetchResponse:
    """Store what is acknowledged, and give the member more."""
    broker.groups.check_share_protocol()
    group_id, member_id = _checked(request)
    epoch = request.share_session_epoch
    if version >= RENEWALS and request.is_renew_ack:
        _check_only_renews(request)
    asked = _requested(request)
    shares = broker.shares
    if epoch == INITIAL:
        check_first(bool(asked.acknowledgements))
        session, replaced = shares.sessions.begin(group_id, member_id, caller.session, asked.partitions)
        shares.bind(caller.session)
        if replaced is not None:
            await shares.release(replaced)
    elif epoch == FINAL:
        session = shares.sessions.find(group_id, member_id)
    else:
        session = shares.sessions.continue_fetching(group_id, member_id, epoch, asked.partitions, asked.forgotten)
    if _has_too_many(broker, session):
        await shares.end_session(session)
        raise InvalidRequest("A share session cannot have more partitions than there are.")
    acknowledged = await _acknowledge(broker, session, asked, caller, may_renew=request.is_renew_ack)
    if epoch == FINAL:
        await shares.end_session(session)
        return _fetch_response(broker, caller, session, {}, acknowledged)
    refused = _refused(broker, caller, session.partitions)
    places = [place for place in _in_turn(session) if place not in refused]
    found: dict[TopicIdPartition, ShareFetched] = {place: ShareFetched(error) for place, error in refused.items()}
    throttle_ms = broker.quotas.delivered(caller, 0)
    if not (request.is_renew_ack or throttle_ms):
        limits = _limits(broker, request, caller, waits=not refused)
        fetching_now = ShareFetching(broker, session, limits, _Gate(broker, caller, group_id))
        found |= await shares.fetch(session, fetching_now, places)
        throttle_ms = broker.quotas.delivered(caller, 0)
    if epoch != INITIAL:
        found = {place: one for place, one in found.items() if one.error or one.acquired or place in acknowledged}
    return _fetch_response(broker, caller, session, found, acknowledged, throttle_ms)


async def share_acknowledge(
    broker: BrokerContext, request: ShareAcknowledgeRequest, caller: Caller, version: int
) -> ShareAcknowledgeResponse:
    """Store what is acknowledged."""
    broker.groups.check_share_protocol()
    group_id, member_id = _checked(request)
    epoch = request.share_session_epoch
    asked = _requested(request)
    session = broker.shares.sessions.acknowledging(group_id, member_id, epoch)
    acknowledged = await _acknowledge(broker, session, asked, caller, may_renew=request.is_renew_ack)
    if epoch == FINAL:
        await broker.shares.end_session(session)
    topics: dict[UUID, list[AcknowledgedSharePartition]] = {}
    for place, error in acknowledged.items():
        code, message = (ErrorCode.none, None) if error is None else (error.code, str(error))
        topics.setdefault(place.topic_id, []).append(
            AcknowledgedSharePartition(place.partition, code, message, _leader_hint(broker, place, error))
        )
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=_lock_timeout(broker, group_id),
        responses=tuple(ShareAcknowledgeTopicResponse(topic_id, tuple(parts)) for topic_id, parts in topics.items()),
        node_endpoints=_endpoints(broker, caller, acknowledged),
    )


# Requests


def _checked(request: ShareFetchRequest | ShareAcknowledgeRequest) -> tuple[str, str]:
    """The group and the member. Raises InvalidRequest."""
    if request.group_id is None:
        raise InvalidRequest("The request names no group.")
    if not request.member_id or len(request.member_id) > LONGEST_MEMBER_ID:
        raise InvalidRequest("The member id must have 1 to 36 characters.")
    return request.group_id, request.member_id


def _has_too_many(broker: BrokerContext, session: ShareSession) -> bool:
    """Whether a session names more partitions than exist, but for some that this broker may not know yet.

    Every fetch of the session looks at all of them, however short its request is.
    """
    spare = len(session.partitions) - MOST_UNKNOWN
    return spare > 0 and spare > sum(len(topic.partitions) for topic in broker.metadata.image.topics.values())


def _check_only_renews(request: ShareFetchRequest) -> None:
    """Refuse a request that renews locks and wants records as well, as Kafka does."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait:
        raise InvalidRequest("A request with is_renew_ack fetches nothing: its limits have to be 0.")


def _requested(request: Any) -> _Requested:
    """The partitions of a request, and what it acknowledges."""
    acknowledgements: dict[TopicIdPartition, tuple[AcknowledgementBatch, ...]] = {}
    partitions: list[TopicIdPartition] = []
    for topic in request.topics:
        for part in topic.partitions:
            place = TopicIdPartition(topic.topic_id or NO_ID, part.partition_index)
            partitions.append(place)
            if part.acknowledgement_batches:
                batches = tuple(
                    AcknowledgementBatch(each.first_offset, each.last_offset, tuple(each.acknowledge_types))
                    for each in part.acknowledgement_batches
                )
                # A partition may be named twice, by a client that no one has seen: nothing that it says is dropped.
                acknowledgements[place] = acknowledgements.get(place, ()) + batches
    forgotten = tuple(
        TopicIdPartition(topic.topic_id or NO_ID, index)
        for topic in getattr(request, "forgotten_topics_data", ())
        for index in topic.partitions
    )
    return _Requested(acknowledgements, tuple(partitions), forgotten)


def _limits(broker: BrokerContext, request: ShareFetchRequest, caller: Caller, *, waits: bool) -> ShareFetchLimits:
    most = min(broker.settings.number("fetch.max.bytes"), broker.quotas.most_delivered(caller))
    waits = waits and request.max_records > 0  # who wants no records waits for nothing
    return ShareFetchLimits(
        max_wait_ms=int(request.max_wait / MILLISECOND) if waits else 0,
        min_bytes=min(request.min_bytes, most),
        max_bytes=min(request.max_bytes, most),
        max_records=request.max_records,
        batch_size=request.batch_size,
        strict=request.share_acquire_mode == RECORD_LIMIT,
    )


def _in_turn(session: ShareSession) -> list[TopicIdPartition]:
    """The partitions of a session, another one first each time, so that none is left out for long."""
    places = list(session.partitions)
    if not places:
        return places
    first = session.epoch % len(places)
    return places[first:] + places[:first]


@dataclass(frozen=True, slots=True)
class _Gate:
    """What a caller may have at the moment of a delivery."""

    broker: BrokerContext
    caller: Caller
    group_id: str

    def refusal(self, place: TopicIdPartition) -> ApiError | None:
        """Why the caller may not read a partition for this group."""
        permissions = self.broker.permissions
        if permissions is None:
            return None
        if not permissions.of(self.caller, "SHARE_FETCH").allows_group(Operation.READ, self.group_id):
            return GroupAuthorizationFailed("Group authorization failed.")
        refused: ApiError | None = _refused(self.broker, self.caller, (place,)).get(place)
        return refused

    def is_throttled(self) -> bool:
        """Whether its quota is used up, by this connection or another of the same user."""
        return self.broker.quotas.delivered(self.caller, 0) > 0

    def count(self, size: int) -> None:
        """Count what is delivered before anybody else is asked."""
        self.broker.quotas.delivered(self.caller, size)


def _refused(
    broker: BrokerContext, caller: Caller, places: Iterable[TopicIdPartition]
) -> dict[TopicIdPartition, ApiError]:
    """The partitions of topics that the caller may not read."""
    if broker.permissions is None:
        return {}
    access = broker.permissions.of(caller, "SHARE_FETCH")
    refused: dict[TopicIdPartition, ApiError] = {}
    for place in places:
        topic = broker.metadata.topic_by_id(place.topic_id)
        if topic is not None and not access.allows_topic(Operation.READ, topic.name):
            refused[place] = TopicAuthorizationFailed("Topic authorization failed.")
    return refused


# Acknowledgements


async def _acknowledge(
    broker: BrokerContext, session: ShareSession, asked: _Requested, caller: Caller, *, may_renew: bool
) -> dict[TopicIdPartition, ApiError | None]:
    """Store the acknowledgements of all partitions beside each other. They are stored even if the client leaves."""
    if not asked.acknowledgements:
        return {}
    refused = _refused(broker, caller, asked.acknowledgements)
    may_renew = may_renew and broker.shares.may_renew(session.group_id)
    results: dict[TopicIdPartition, ApiError | None] = {}

    async def store(place: TopicIdPartition, batches: tuple[AcknowledgementBatch, ...]) -> None:
        try:
            _check_batches(batches, may_renew=may_renew)
            hosted = broker.shares.served(ShareKey(session.group_id, *place))
            await hosted.acknowledge(session.member_id, batches)
        except ApiError as error:
            results[place] = error
        else:
            results[place] = None

    tasks = []
    for place, batches in asked.acknowledgements.items():
        if place in refused:
            results[place] = refused[place]
        else:
            tasks.append(broker.shares.spawn(store(place, batches)))
    if len(tasks) == 1:
        await asyncio.shield(tasks[0])
    else:
        await asyncio.gather(*map(asyncio.shield, tasks))
    return results


def _check_batches(batches: Sequence[AcknowledgementBatch], *, may_renew: bool) -> None:
    """Refuse what no member can mean. Raises InvalidRequest."""
    before = -1
    for first, last, types in batches:
        if first > last:
            raise InvalidRequest(f"A batch of acknowledgements goes from {first} to {last}.")
        if first <= before:
            raise InvalidRequest("Batches of acknowledgements must not overlap, and have to be in order.")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise InvalidRequest(f"{len(types)} acknowledgements were sent for {last - first + 1} records.")
        if any(not Acknowledgement.GAP <= kind <= Acknowledgement.RENEW for kind in types):
            raise InvalidRequest("There are acknowledgements from 0 (gap) to 4 (renew).")
        if not may_renew and Acknowledgement.RENEW in types:
            raise InvalidRequest("The request, or the group's share.renew.acknowledge.enable, does not allow renewals.")
        before = last


# Responses


def _fetch_response(
    broker: BrokerContext,
    caller: Caller,
    session: ShareSession,
    found: Mapping[TopicIdPartition, ShareFetched],
    acknowledged: Acknowledged,
    throttle_ms: int = 0,
) -> ShareFetchResponse:
    """The response; its client is muted no longer than half a lock, so that it can acknowledge what it got."""
    throttle_ms = min(throttle_ms, broker.shares.settings_of(session.group_id).lock_ms // 2)
    topics: dict[UUID, list[FetchedSharePartition]] = {}
    for place in dict.fromkeys((*found, *acknowledged)):
        part = _partition_data(broker, place, found.get(place) or ShareFetched(), acknowledged.get(place))
        topics.setdefault(place.topic_id, []).append(part)
    errors = {**{place: one.error for place, one in found.items() if one.error}, **acknowledged}
    return ShareFetchResponse(
        throttle_time=throttle_time(throttle_ms),
        error_code=ErrorCode.none,
        error_message=None,
        acquisition_lock_timeout=_lock_timeout(broker, session.group_id),
        responses=tuple(ShareFetchableTopicResponse(topic_id, tuple(parts)) for topic_id, parts in topics.items()),
        node_endpoints=_endpoints(broker, caller, errors),
    )


def _partition_data(
    broker: BrokerContext, place: TopicIdPartition, found: ShareFetched, refusal: ApiError | None
) -> FetchedSharePartition:
    return FetchedSharePartition(
        partition_index=place.partition,
        error_code=ErrorCode.none if found.error is None else found.error.code,
        error_message=None if found.error is None else str(found.error),
        acknowledge_error_code=0 if refusal is None else refusal.code.value,
        acknowledge_error_message=None if refusal is None else str(refusal),
        current_leader=_leader_hint(broker, place, found.error or refusal),
        records=found.records,
        acquired_records=tuple(AcquiredShareRecords(*each) for each in found.acquired),
    )


def _leader_hint(broker: BrokerContext, place: TopicIdPartition, error: ApiError | None) -> LeaderIdAndEpoch:
    """Broker id and epoch of the leader, for a client that has asked the wrong one; otherwise zeros, as in Kafka."""
    if not isinstance(error, NotLeaderOrFollower):
        return NO_LEADER
    leader = broker.replicas.current_leader(place.topic_id.bytes, place.partition)
    return NO_LEADER if leader is None else LeaderIdAndEpoch(*leader)


def _endpoints(broker: BrokerContext, caller: Caller, errors: Acknowledged) -> tuple[NodeEndpoint, ...]:
    """Where the leaders are that clients are told of."""
    nodes = {_leader_hint(broker, place, error).leader_id for place, error in errors.items() if error is not None}
    found: list[NodeEndpoint] = []
    for node in sorted(nodes):
        known = broker.metadata.image.brokers.get(node)
        endpoint = None if known is None else known.endpoints.get(caller.listener)
        if known is not None and endpoint is not None:
            found.append(NodeEndpoint(node, endpoint.host, endpoint.port, known.rack))
    return tuple(found)


def _lock_timeout(broker: BrokerContext, group_id: str) -> timedelta:
    return broker.shares.settings_of(group_id).lock_ms * MILLISECOND
