"""Share groups without a broker: a coordinator over a log in memory, a share coordinator that is asked by hand, and
clients that do as they are told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.response import DescribedGroup
from kio.schema.share_group_heartbeat.v1 import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from barnabas.machines.groups.share.group import ShareGroup
from barnabas.machines.groups.share.offsets import InitializeStates
from barnabas.machines.groups.share.states import SHARE_TRANSITIONS, ShareGroupState
from barnabas.model.errors import ErrorCode as Code
from tests.support.consumer_groups import FENCED, GROUP, Client, Coordinator, image_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from barnabas.broker.coordinators.share_persister import StatePartition, StateSummary
    from barnabas.machines.groups.table import GroupOutcome, PackedOutcome


class ShareCoordinator(Coordinator):
    """A coordinator of one share group; what it asks the share coordinator for waits in `wanted`."""

    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        settings.setdefault("share_assignment_interval_ms", 0)
        self.wanted: list[InitializeStates] = []
        self.share_steps: set[tuple[ShareGroupState, ShareGroupState]] = set()
        self._was: ShareGroupState | None = None
        super().__init__(topics, **settings)

    @property
    def share(self) -> ShareGroup:
        """The group."""
        group = self.table.groups[GROUP]
        assert isinstance(group, ShareGroup)
        return group

    def run(self, outcome: PackedOutcome) -> None:
        """Do what was decided."""
        super().run(outcome)
        self.wanted += [each for each in outcome.sends if isinstance(each, InitializeStates)]
        group = self.table.groups.get(GROUP)
        before, now = self._was, group.state if isinstance(group, ShareGroup) else None
        self._was = now
        step = before or SHARE_TRANSITIONS.initial, now or ShareGroupState.DEAD
        if before is not now and step[0] is not step[1]:
            SHARE_TRANSITIONS.check(*step)
            self.share_steps.add(step)

    def ask(self, decide: Callable[[Client, int], GroupOutcome]) -> Any:
        """What a request is answered."""
        client = Client()
        self.run(decide(client, self.now_ms))
        (answer,) = client.answers
        return answer

    def share_heartbeat(self, **fields: Any) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat as it is."""
        answer = self.ask(
            lambda client, now_ms: self.rules.share_group_heartbeat(share_request(**fields), client, now_ms)
        )
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer

    def describe_share(self) -> DescribedGroup:
        """The group as tools see it."""
        answer = self.ask(lambda client, now_ms: self.rules.describe_share(GROUP, client, now_ms))
        assert isinstance(answer, DescribedGroup)
        return answer

    def initialize(self, *, fails: bool = False) -> None:
        """Let the share coordinator make all states that it was asked for, or none of them."""
        wanted, self.wanted = self.wanted, []
        for group_id, _, offsets in wanted:
            partitions = {topic: frozenset(found) for topic, found in offsets.items()}
            done, failed = ({}, partitions) if fails else (partitions, {})
            self.run(self.rules.shares.initialize_ended(group_id, done, failed, self.now_ms))

    def change_topics(self, topics: Mapping[str, int], generation: int = 0) -> None:
        """Change the cluster's topics, and tell of those that are gone."""
        before, after = self.table.image, image_of(topics, generation)
        self.set_topics(topics, generation)
        gone = [topic for topic in before.topics.values() if topic.topic_id not in after.topic_names]
        if gone:
            self.run(self.rules.topics_deleted(gone, self.now_ms))

    def restarted(self) -> ShareCoordinator:
        """The coordinator after its broker was started again: what was asked for is lost."""
        fresh = ShareCoordinator()
        for record in self.log:
            fresh._store(record)
        fresh._was = self._was
        fresh.table.image, fresh.table.settings = self.table.image, self.table.settings
        fresh.now_ms, fresh._ids = self.now_ms, self._ids
        fresh.run(fresh.rules.loaded(fresh.now_ms))
        return fresh


def share_request(
    *, member_id: str = "m1", epoch: int = 0, topics: Iterable[str] | None = None, **fields: Any
) -> ShareGroupHeartbeatRequest:
    """A heartbeat; one that joins subscribes to orders unless it says otherwise."""
    if epoch == 0 and topics is None:
        topics = ["orders"]
    return ShareGroupHeartbeatRequest(
        group_id=GroupId(fields.pop("group_id", GROUP)),
        member_id=member_id,
        member_epoch=i32(epoch),
        subscribed_topic_names=None if topics is None else tuple(TopicName(name) for name in topics),
        **fields,
    )


@dataclass(slots=True)
class Worker:
    """A client as it should be."""

    coordinator: ShareCoordinator
    member_id: str
    topics: tuple[str, ...] = ("orders",)
    epoch: int = 0
    held: dict[UUID, frozenset[int]] = field(default_factory=dict)

    def beat(self, **fields: Any) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat, and do as the answer says."""
        if self.epoch == 0:
            fields = {"topics": self.topics, **fields}
        answer = self.coordinator.share_heartbeat(member_id=self.member_id, epoch=self.epoch, **fields)
        if answer.error_code in FENCED:
            self.epoch, self.held = 0, {}
        elif answer.error_code is ErrorCode.none:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.held = {
                    topic.topic_id: frozenset(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                    if topic.topic_id is not None
                }
        return answer

    def leave(self) -> ShareGroupHeartbeatResponse:
        """Leave the group."""
        answer = self.coordinator.share_heartbeat(member_id=self.member_id, epoch=-1)
        self.epoch, self.held = 0, {}
        return answer

    def partitions(self) -> set[tuple[str, int]]:
        """What it has, by name."""
        names = self.coordinator.table.image.topic_names
        return {(names[topic], index) for topic, found in self.held.items() if topic in names for index in found}


def work(workers: Iterable[Worker], rounds: int = 4) -> None:
    """Let everybody send heartbeats, and states be made, until everybody has what it is to have."""
    workers = list(workers)
    for _ in range(rounds):
        for worker in workers:
            worker.beat()
            worker.coordinator.initialize()
            worker.coordinator.advance(1)


class MemoryPersister:
    """Keeps the states of share partitions in memory, by group, topic and partition."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, UUID, int], StateSummary] = {}
        self.fails_with: Code | None = None
        """What everything is answered with, if that is an error."""

    async def initialize(
        self, group_id: str, state_epoch: int, start_offsets: Mapping[UUID, Mapping[int, int]]
    ) -> dict[StatePartition, Code]:
        """Begin states."""
        from barnabas.broker.coordinators.share_persister import StatePartition, StateSummary

        places = {
            StatePartition(topic, index): at for topic, found in start_offsets.items() for index, at in found.items()
        }
        if self.fails_with is None:
            for (topic, index), offset in places.items():
                self.states[group_id, topic, index] = StateSummary(
                    start_offset=offset, delivery_complete_count=-1 if offset < 0 else 0
                )
        return dict.fromkeys(places, self.fails_with or Code.none)

    async def delete(self, group_id: str, partitions: Mapping[UUID, frozenset[int]]) -> dict[StatePartition, Code]:
        """Forget states."""
        from barnabas.broker.coordinators.share_persister import StatePartition

        places = [StatePartition(topic, index) for topic, found in partitions.items() for index in found]
        if self.fails_with is None:
            for place in places:
                self.states.pop((group_id, *place), None)
        return dict.fromkeys(places, self.fails_with or Code.none)

    async def read_summary(
        self, group_id: str, partitions: Mapping[UUID, frozenset[int]]
    ) -> dict[StatePartition, StateSummary]:
        """How far states are."""
        from barnabas.broker.coordinators.share_persister import StatePartition, StateSummary

        missing = StateSummary(error_code=self.fails_with or Code.unknown_topic_or_partition)
        return {
            StatePartition(topic, index): self.states.get((group_id, topic, index), missing)
            for topic, found in partitions.items()
            for index in found
        }
