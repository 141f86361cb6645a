"""Members of a share group on one broker without sockets: what they fetch, and what they say of it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_fetch.v2.request import ShareFetchRequest

from barnabas.broker.coordinators import internal_topics
from barnabas.broker.handlers.shares import share_acknowledge, share_fetch
from barnabas.broker.serving.caller import Session
from barnabas.broker.shares.partitions import SharePartitions
from barnabas.broker.shares.states import ShareStates
from barnabas.machines.shares.coordinator import Initialization, ShareKey
from barnabas.model.clock import ManualClock
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from barnabas.protocol.acknowledgements import Acknowledgement
from tests.support.images import CALLER
from tests.support.parts import append, make_topic, running_parts
from tests.support.wire import build

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path
    from uuid import UUID

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.shares import Answered
    from barnabas.machines.shares.coordinator import StateUpdate
    from barnabas.model.errors import ApiError

FEW = {"share.coordinator.state.topic.num.partitions": "3"}
GROUP = "workers"
GAP, ACCEPT, RELEASE, REJECT, RENEW = map(int, Acknowledgement)


class SteeredStates(ShareStates):
    """The states of share partitions, which a test refuses to read or to write, or keeps waiting."""

    on_read: Callable[[ShareKey], Awaitable[ApiError | None]] | None = None
    on_write: Callable[[StateUpdate], Awaitable[ApiError | None]] | None = None
    """What happens first; an error is answered instead."""

    async def read(self, key: ShareKey, leader_epoch: int) -> Answered:
        if self.on_read is not None and (refusal := await self.on_read(key)) is not None:
            return refusal
        return await super().read(key, leader_epoch)

    async def write(self, key: ShareKey, update: StateUpdate) -> Answered:
        if self.on_write is not None and (refusal := await self.on_write(update)) is not None:
            return refusal
        return await super().write(key, update)


class SteeredShares(SharePartitions):
    """The share partitions of a broker whose states a test has in its hands."""

    @cached_property
    def states(self) -> SteeredStates:
        return SteeredStates(self._broker)


def states_of(broker: BrokerContext) -> SteeredStates:
    assert isinstance(broker.shares, SteeredShares)
    return broker.shares.states


class Member:
    """A member of the group, with a connection and a session."""

    def __init__(self, broker: BrokerContext, topic_id: UUID, name: str) -> None:
        self.broker = broker
        self.topic_id = topic_id
        self.name = name
        self.caller = replace(CALLER, session=Session())
        self.epoch = 0
        self.throttled = timedelta(0)

    def _body(self, acknowledges: list[tuple[Any, ...]], **fields: Any) -> dict[str, Any]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, *types in acknowledges
        ]
        part = {"partition_index": 0, "acknowledgement_batches": batches}
        topics = [{"topic_id": self.topic_id, "partitions": [part]}]
        body = {"group_id": GROUP, "member_id": self.name, "share_session_epoch": self.epoch, "topics": topics}
        return {**body, **fields}

    async def fetch(self, *acknowledges: tuple[Any, ...], wait_ms: int = 0, **fields: Any) -> Any:
        """The one partition of a response, or None."""
        limits = {"max_wait": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        body = self._body(list(acknowledges), **{**limits, **fields})
        response = await share_fetch(self.broker, build(ShareFetchRequest, body), self.caller, 2)
        self.epoch += 1
        self.throttled = response.throttle_time
        return response.responses[0].partitions[0] if response.responses else None

    async def acknowledge(self, *acknowledges: tuple[Any, ...], **fields: Any) -> Any:
        body = self._body(list(acknowledges), **fields)
        response = await share_acknowledge(self.broker, build(ShareAcknowledgeRequest, body), self.caller, 2)
        self.epoch += 1
        return response.responses[0].partitions[0].error_code if response.responses else None

    def hang_up(self) -> None:
        self.caller.session.has_ended = True
        if self.caller.session.on_end is not None:
            self.caller.session.on_end()


@asynccontextmanager
async def queue(
    directory: Path, make_shares: type[SharePartitions] = SteeredShares, /, **settings: str
) -> AsyncIterator[tuple[BrokerContext, UUID]]:
    """A broker with the topic `jobs`, of which the group has read nothing."""
    properties = {**FEW, **{name.replace("_", "."): text for name, text in settings.items()}}
    async with running_parts(directory, properties, make_shares=make_shares) as broker:
        await internal_topics.make(broker, SHARE_GROUP_STATE)
        topic_id = (await make_topic(broker, "jobs")).topic_id
        await broker.share_coordinators.runtime.loaded()
        await begin(broker, topic_id, Initialization(0, 0))
        yield broker, topic_id


async def begin(broker: BrokerContext, topic_id: UUID, state: Initialization) -> None:
    """Begin the state of the group anew, in partition 0 of a topic."""
    key = ShareKey(GROUP, topic_id, 0)
    answer = broker.share_coordinators.ask(
        key, lambda machine, call, now_ms: machine.initialize(key, state, call, now_ms)
    )
    if asyncio.isfuture(answer):
        await answer


def send(broker: BrokerContext, count: int = 1) -> None:
    append(broker.replicas.find("jobs", 0), [1_700_000_000_000] * count)


async def later(broker: BrokerContext, ms: int) -> None:
    """Let time pass, and locks end."""
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(ms)
    for each in list(broker.shares._hosted.values()):
        each._timers.run_due()
    await asyncio.sleep(0.01)


def acquired(partition: Any) -> list[tuple[int, int, int]]:
    assert partition.error_code is ErrorCode.none
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records]
