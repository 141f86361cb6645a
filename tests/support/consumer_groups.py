"""A coordinator of groups without a broker: what it decides is stored and replayed at once, timers are turned by hand,
and its clients, of both protocols, are honest about what they have.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.schema.consumer_group_describe.v1.response import DescribedGroup
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from barnabas.machines.controller.image import ClusterImage, PartitionImage, TopicImage
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.rules import Stepped, StillThere, unchanged_member
from barnabas.machines.groups.consumer.states import GROUP_TRANSITIONS, ConsumerGroupState
from barnabas.machines.groups.coordinator import GroupCoordinator
from barnabas.machines.groups.settings import GroupSettings
from barnabas.machines.groups.table import GroupTable, PackedRecord, TimerKey
from barnabas.machines.outcome import Asker, Timer
from barnabas.protocol.coordinator_records import decode, encode
from barnabas.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
    idle_request,
    pack,
    pack_still_there,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.machines.groups.table import PackedOutcome
    from barnabas.machines.outcome import OneRecord
    from barnabas.protocol.coordinator_records import CoordinatorRecord

GROUP = "a-group"
FENCED = (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found)
"""After these a member has nothing, and joins again."""


@dataclass(slots=True, eq=False)
class Client(Asker[object]):
    """Who asks, and what it was answered."""

    client_id: str = "a-client"
    client_host: str = "/10.0.0.1"
    version: int = 1
    answers: list[Any] = field(default_factory=list)


def image_of(topics: Mapping[str, int], generation: int = 0) -> ClusterImage:
    """A cluster with topics of so many partitions; topics of another generation were deleted and made again."""
    images = {
        name: TopicImage(
            name, topic_id(name, generation), tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(count))
        )
        for name, count in topics.items()
    }
    return ClusterImage(topics=images, topic_names={topic.topic_id: name for name, topic in images.items()})


def topic_id(name: str, generation: int = 0) -> UUID:
    """The id of a topic of `image_of`."""
    return UUID(bytes=name.encode().ljust(15, b"\0")[:15] + bytes([generation]))


class Coordinator:
    """A coordinator over a log in memory."""

    def __init__(
        self, topics: Mapping[str, int] | None = None, log: Iterable[CoordinatorRecord] = (), **settings: Any
    ) -> None:
        self._ids = 0
        settings.setdefault("consumer_assignment_interval_ms", 0)
        self.table = GroupTable(
            new_id=self._new_id, settings=GroupSettings(**settings), image=image_of(topics or {"orders": 3})
        )
        self.rules = GroupCoordinator(self.table)
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[TimerKey, int] = {}
        self.now_ms = 1_000_000
        self.stepped = 0
        """How many heartbeats were steps of the shortest way."""
        self.is_full = False
        """Whether everything that can be refused as too large is."""
        self.steps: set[tuple[ConsumerGroupState, ConsumerGroupState]] = set()
        """What followed what, while the group was a consumer group; all of it is in the table."""
        for record in log:
            read = decode(*encode(record))
            assert read is not None
            self._store(read)
        self._last_state = self._state()

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    @property
    def group(self) -> ConsumerGroup:
        """The one group that tests have."""
        group = self.table.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def classic_group(self) -> ClassicGroup:
        """The one group that tests have, while it is classic."""
        group = self.table.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def state(self) -> ConsumerGroupState:
        """What the group is doing."""
        return self.group.state

    def run(self, outcome: PackedOutcome) -> None:
        """Do what was decided, and give everybody their answers."""
        if self.is_full and outcome.changes and outcome.otherwise is not None:
            refused = [(asker, _refused(answer)) for asker, answer in outcome.replies]
            instead = outcome.otherwise()
            outcome = replace(instead, replies=(*refused, *instead.replies))
        for record in outcome.changes:
            if isinstance(record, PackedRecord):
                self._store_packed(record)
            else:
                self._store(record)
        self._note_step()
        for timer in outcome.timers:
            assert isinstance(timer.key, TimerKey)
            if timer.at_ms is None:
                self.timers.pop(timer.key, None)
            else:
                self.timers[timer.key] = timer.at_ms
        for asker, answer in outcome.replies:
            assert isinstance(asker, Client)
            asker.answers.append(answer)

    def heartbeat(self, client: Client | None = None, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat as it is; whatever is decided by a shorter way is what all the rules would decide."""
        client, asked = client or Client(), request(**fields)
        group = self.table.groups.get(asked.group_id)
        is_short = isinstance(group, ConsumerGroup) and unchanged_member(group, asked, client) is not None
        idle = asked.group_id, asked.member_id, asked.member_epoch
        there = self.rules.still_there(*idle, client.client_id, client.client_host)
        step = self.rules.step(*idle, client.client_id, client.client_host, self.now_ms)
        outcome = self.rules.consumer_group_heartbeat(asked, client, self.now_ms)
        if asked == idle_request(*idle):
            assert there is None or step is None
            if there is not None:
                self._check_still_there(there, outcome)
            if step is not None:
                self._check_step(step, client, outcome)
        if is_short:
            by_all = self.rules._consumer._decide(asked, client, self.now_ms)
            pairs = [list(map(self.rules.encode, each.changes)) for each in (by_all, outcome)]
            assert pairs[0] == pairs[1]
            assert (by_all.replies, by_all.timers) == (outcome.replies, outcome.timers)
        self.run(outcome)
        (answer,) = client.answers
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def describe(self) -> DescribedGroup:
        """The group as tools see it."""
        client = Client()
        self.run(self.rules.describe_consumer(GROUP, client, self.now_ms))
        (described,) = client.answers
        assert isinstance(described, DescribedGroup)
        return described

    def advance(self, ms: int) -> None:
        """Let time pass, with all that is due in it."""
        until = self.now_ms + ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= until]:
            self.now_ms, key = min(due)
            del self.timers[key]
            self.run(self.rules.expire(key, self.now_ms))
        self.now_ms = until

    def set_topics(self, topics: Mapping[str, int], generation: int = 0) -> None:
        """Change the cluster's topics."""
        before = self.table.image
        self.table.image = image_of(topics, generation)
        changed = {name for name in (*before.topics, *topics) if before.topic(name) != self.table.image.topic(name)}
        self.run(self.rules.topics_changed(changed, self.now_ms))

    def reloaded(self) -> Coordinator:
        """The coordinator after its broker was started again."""
        fresh = Coordinator(log=self.log)
        fresh.table.image, fresh.table.settings = self.table.image, self.table.settings
        fresh.now_ms, fresh._ids = self.now_ms, self._ids
        fresh.run(fresh.rules.loaded(fresh.now_ms))
        return fresh

    def _state(self) -> ConsumerGroupState | None:
        group = self.table.groups.get(GROUP)
        return group.state if isinstance(group, ConsumerGroup) else None

    def _note_step(self) -> None:
        before, after = self._last_state, self._state()
        self._last_state = after
        step = before or GROUP_TRANSITIONS.initial, after or ConsumerGroupState.DEAD
        if before is not after and step[0] is not step[1]:
            GROUP_TRANSITIONS.check(*step)
            self.steps.add(step)

    def _check_still_there(self, there: StillThere, outcome: PackedOutcome) -> None:
        """The shortest way answers a heartbeat that says nothing new as all the rules do, and they change nothing."""
        [(_, answer)] = outcome.replies
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.member_id is not None
        assert outcome.changes == ()
        assert outcome.timers == (Timer(there.session, self.now_ms + there.session_timeout_ms),)
        assert pack_still_there(7, answer.member_id, answer.member_epoch, there.interval_ms) == pack(7, 1, answer)

    def _check_step(self, step: OneRecord, client: Client, outcome: PackedOutcome) -> None:
        """The shortest way decides what all the rules do about a member that only steps into another epoch."""
        [(_, answer)] = outcome.replies
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert answer.member_id is not None
        assert isinstance(step.response, Stepped)
        decided = step.outcome(client)
        assert (decided.changes, decided.timers) == (outcome.changes, outcome.timers)
        assert step.pair == self.rules.encode(step.change)
        assert pack_still_there(7, answer.member_id, *step.response) == pack(7, 1, answer)
        self.stepped += 1

    def _store_packed(self, record: PackedRecord) -> None:
        """Apply a record that was packed when it was decided; its replay from the log comes to the same."""
        read = decode(*record.pair)
        assert read is not None
        before, owners = dict(self.group.members), deepcopy(self.group._owners)
        self.rules.replay(record)
        decided, self.group.members = self.group.members, before
        self._store(read)
        assert (self.group.members, self.group._owners) == (decided, owners)

    def _store(self, record: CoordinatorRecord) -> None:
        self.log.append(record)
        assert decode(*encode(record)) == record
        self.rules.replay(record)


def _refused(answer: Any) -> Any:
    return replace(answer, error_code=ErrorCode.unknown_server_error)


def request(
    *,
    member_id: str = "m1",
    epoch: int = 0,
    topics: Iterable[str] | None = None,
    owned: Mapping[UUID, Iterable[int]] | None = None,
    rebalance_timeout_ms: int | None = None,
    **fields: Any,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat; one that joins has what it must have unless it is given."""
    if epoch == 0:
        rebalance_timeout_ms = 60_000 if rebalance_timeout_ms is None else rebalance_timeout_ms
        owned = {} if owned is None else owned
        if topics is None and "subscribed_topic_regex" not in fields:
            topics = ["orders"]
    timeout = timedelta(milliseconds=-1 if rebalance_timeout_ms is None else rebalance_timeout_ms)
    return ConsumerGroupHeartbeatRequest(
        group_id=GroupId(fields.pop("group_id", GROUP)),
        member_id=member_id,
        member_epoch=i32(epoch),
        rebalance_timeout=i32Timedelta.parse(timeout),
        subscribed_topic_names=None if topics is None else tuple(TopicName(name) for name in topics),
        topic_partitions=None
        if owned is None
        else tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(i32(partition) for partition in sorted(partitions)))
            for topic, partitions in owned.items()
        ),
        **fields,
    )


@dataclass(slots=True)
class Consumer:
    """A client of the new protocol as it should be: it has what it was told to have, and says so."""

    coordinator: Coordinator
    member_id: str
    topics: tuple[str, ...] | None = ("orders",)
    fields: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    owned: dict[UUID, frozenset[int]] = field(default_factory=dict)
    keeps: bool = False
    """Whether it is slow: it goes on reading what it was asked to give back."""
    missed: bool = False
    """Whether its last answer was lost, so it says everything and wants to be told everything."""
    told: dict[UUID, frozenset[int]] = field(default_factory=dict)

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat, and do as the answer says."""
        if self.epoch == 0:
            self.owned = {}
        if self.epoch == 0 or self.missed:
            fields = {"topics": self.topics, "rebalance_timeout_ms": 60_000, **self.fields, **fields}
        answer = self.coordinator.heartbeat(
            member_id=self.member_id, epoch=self.epoch, **{"owned": self.owned, **fields}
        )
        if answer.error_code in FENCED:
            self.epoch, self.owned, self.told = 0, {}, {}
        elif answer.error_code is ErrorCode.none:
            self.epoch = answer.member_epoch
            self.missed = False
            if answer.assignment is not None:
                self.told = {
                    topic.topic_id: frozenset(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                    if topic.topic_id is not None
                }
            self.obey()
        return answer

    def obey(self) -> None:
        """Give back what was asked back, unless it is slow, and take what it was given."""
        kept = self.owned if self.keeps else {}
        topics = self.told.keys() | kept.keys()
        self.owned = {topic: self.told.get(topic, frozenset()) | kept.get(topic, frozenset()) for topic in topics}

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        """Leave the group, for good or (-2) for a while."""
        answer = self.coordinator.heartbeat(member_id=self.member_id, epoch=epoch, **self._identity())
        self.epoch, self.owned, self.told = 0, {}, {}
        return answer

    def partitions(self) -> set[tuple[str, int]]:
        """What it has, by name."""
        names = self.coordinator.table.image.topic_names
        return {(names[topic], index) for topic, indexes in self.owned.items() if topic in names for index in indexes}

    def _identity(self) -> dict[str, Any]:
        return {name: value for name, value in self.fields.items() if name == "instance_id"}


def settle(consumers: Iterable[Consumer], rounds: int = 20) -> None:
    """Let everybody send heartbeats until nothing changes."""
    consumers = list(consumers)
    for _ in range(rounds):
        before = [(consumer.epoch, dict(consumer.owned)) for consumer in consumers]
        for consumer in consumers:
            consumer.beat()
            consumer.coordinator.advance(1)
        if before == [(consumer.epoch, consumer.owned) for consumer in consumers]:
            return
    raise AssertionError("the group does not come to rest")
