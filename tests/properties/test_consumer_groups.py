"""Whatever members and topics do, a partition has one owner at most, epochs rise, and a group comes to rest.

The coordinator of these tests holds every step of a group's state to the table that docs/group-states.md draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.members import ClassicMember
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.states import ConsumerGroupState
from barnabas.protocol.coordinator_records import GroupMetadataValue
from tests.support.classic_consumers import ClassicConsumer
from tests.support.consumer_groups import GROUP, Consumer, Coordinator, settle

if TYPE_CHECKING:
    from barnabas.machines.groups.consumer.member import Member

SLOTS = range(5)
NAMES = ("orders", "payments", "parcels")
SUBSCRIPTIONS: tuple[dict[str, Any], ...] = (
    {"topics": ("orders",)},
    {"topics": ("orders", "payments")},
    {"topics": ("parcels",)},
    {"topics": None, "subscribed_topic_regex": "p.*"},
    {"topics": (), "subscribed_topic_regex": "orders|parcels"},
)
PROTOCOLS = (("sticky", "range"), ("range", "sticky"), ("range",))
NOISE = (None, b"", b"\xff\xff", b"\0\1\xff")
slots = st.sampled_from(SLOTS)


def hard_state(group: object) -> object:
    """Everything that the log holds."""
    assert isinstance(group, ConsumerGroup)
    soft = ("metadata_current", "stale_regexes", "asked_to_rejoin")
    return {name: value for name, value in vars(group).items() if name not in soft}


class Groups(RuleBasedStateMachine):
    """Members that come, go, die and change their minds, some of them slow to give back."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"orders": 3, "payments": 2}
        self.generation = 0
        self.coordinator = Coordinator(
            self.topics, consumer_assignment_interval_ms=500, consumer_session_timeout_ms=5_000
        )
        self.consumers: dict[int, Consumer] = {}
        self.joined = 0
        self.epochs = (0, 0, 0)

    def alive(self) -> list[Consumer]:
        return list(self.consumers.values())

    @rule(slot=slots, subscription=st.sampled_from(SUBSCRIPTIONS), static=st.booleans(), assignor=st.booleans())
    def join(self, slot: int, subscription: dict[str, Any], static: bool, assignor: bool) -> None:
        if slot in self.consumers:
            return
        self.joined += 1
        fields = {key: value for key, value in subscription.items() if key != "topics"}
        if static:
            fields["instance_id"] = f"instance-{slot}"
        if assignor:
            fields["server_assignor"] = "range"
        fields["rebalance_timeout_ms"] = 3_000
        consumer = Consumer(self.coordinator, f"m{self.joined}", subscription["topics"], fields)
        consumer.beat()
        self.consumers[slot] = consumer

    @rule(slot=slots, slow=st.booleans(), full=st.booleans())
    def beat(self, slot: int, slow: bool, full: bool) -> None:
        if (consumer := self.consumers.get(slot)) is not None:
            consumer.keeps = slow
            fields = {"topics": consumer.topics, **consumer.fields} if full else self._identity(consumer)
            consumer.beat(**fields)

    @rule(slot=slots)
    def beat_with_nothing_new(self, slot: int) -> None:
        if (consumer := self.consumers.get(slot)) is not None and consumer.epoch and consumer.told == consumer.owned:
            consumer.beat(owned=None, **self._identity(consumer))

    @rule(slot=slots, subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, slot: int, subscription: dict[str, Any]) -> None:
        if (consumer := self.consumers.get(slot)) is not None:
            consumer.topics = subscription["topics"] or ()
            consumer.fields["subscribed_topic_regex"] = subscription.get("subscribed_topic_regex", "")
            consumer.beat(topics=consumer.topics, **consumer.fields)

    @rule(slot=slots)
    def beat_in_vain(self, slot: int) -> None:
        """What it comes to is too large to be stored, and leaves no trace."""
        if (consumer := self.consumers.get(slot)) is not None:
            before = len(self.coordinator.log)
            self.coordinator.is_full = True
            consumer.beat(**self._identity(consumer))
            self.coordinator.is_full = False
            assert len(self.coordinator.log) == before

    @rule(slot=slots)
    def lose_answer(self, slot: int) -> None:
        if (consumer := self.consumers.get(slot)) is not None and consumer.epoch:
            consumer.missed = True
            self.coordinator.heartbeat(
                member_id=consumer.member_id, epoch=consumer.epoch, owned=consumer.owned, **self._identity(consumer)
            )

    @rule(slot=slots)
    def leave(self, slot: int) -> None:
        if (consumer := self.consumers.pop(slot, None)) is not None:
            static = "instance_id" in consumer.fields
            consumer.leave(-2 if static else -1)

    @rule(slot=slots)
    def die(self, slot: int) -> None:
        self.consumers.pop(slot, None)

    @rule(ms=st.sampled_from([1, 100, 700, 2_000, 11_000]))
    def wait(self, ms: int) -> None:
        self.coordinator.advance(ms)

    @rule(topics=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 4)))
    def change_topics(self, topics: dict[str, int]) -> None:
        self.generation += any(topics.get(name, 0) < count for name, count in self.topics.items())
        self.topics = topics
        self.coordinator.set_topics(topics, self.generation)

    @rule()
    def reload(self) -> None:
        self.coordinator = self.coordinator.reloaded()
        for consumer in self.consumers.values():
            consumer.coordinator = self.coordinator

    @rule()
    def rest(self) -> None:
        for slot in [slot for slot, consumer in self.consumers.items() if self._is_barred(consumer)]:
            del self.consumers[slot]
        for consumer in self.alive():
            consumer.keeps = False
        for _ in range(8):
            for consumer in self.alive():
                consumer.beat(**self._identity(consumer))
            self.coordinator.advance(1_600)
        self._settle()
        group = self.coordinator.table.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup) or not self.consumers:
            return
        assert group.state is ConsumerGroupState.STABLE
        assert set(group.members) == {consumer.member_id for consumer in self.alive()}
        had = [partition for consumer in self.alive() for partition in consumer.partitions()]
        assert len(had) == len(set(had))
        subscribed = [name for name in self.topics if group.is_subscribed_to(name)]
        assert set(had) == {(name, index) for name in subscribed for index in range(self.topics[name])}

    @invariant()
    def one_owner(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[object, str] = {}
        for member in group.members.values():
            for assignment in (member.assigned, member.pending_revocation):
                for topic, partitions in assignment.items():
                    for partition in partitions:
                        assert owners.setdefault((topic, partition), member.member_id) == member.member_id
                        assert group.owners_of(topic)[partition] == member.member_id

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        read: dict[object, str] = {}
        for consumer in self.alive():
            if isinstance(group, ConsumerGroup) and consumer.member_id in group.members:
                for partition in consumer.partitions():
                    assert read.setdefault(partition, consumer.member_id) == consumer.member_id

    @invariant()
    def epochs_rise(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            epochs = (group.epoch, group.assignment_epoch, max((m.epoch for m in group.members.values()), default=0))
            assert group.epoch >= self.epochs[0]
            assert group.assignment_epoch >= self.epochs[1]
            assert epochs[0] >= epochs[1] >= epochs[2]
            self.epochs = epochs

    def teardown(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            assert hard_state(Coordinator(log=self.coordinator.log).table.groups[GROUP]) == hard_state(group)

    def _settle(self) -> None:
        for consumer in self.alive():
            consumer.fields.pop("server_assignor", None)
        settle(self.alive())

    def _is_barred(self, consumer: Consumer) -> bool:
        """Whether a member that lives and has its instance id keeps this one out."""
        instance_id = consumer.fields.get("instance_id")
        group = self.coordinator.table.groups.get(GROUP)
        if instance_id is None or not isinstance(group, ConsumerGroup):
            return False
        holder = group.static_member(instance_id)
        return holder is not None and holder.member_id != consumer.member_id

    @staticmethod
    def _identity(consumer: Consumer) -> dict[str, Any]:
        return {name: value for name, value in consumer.fields.items() if name == "instance_id"}


class MixedGroups(RuleBasedStateMachine):
    """Members of both protocols in one group, which changes its own with them.

    What classic members say in the protocol that they like less may be noise. It keeps members of the new protocol out
    of a classic group that speaks it, and harms nobody else.

    Of the protocols of a classic member the log holds the one that the group speaks, as Kafka's does. Who does not
    speak that one is kept out of a group that was read from the log, until its members have joined again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator({"orders": 4}, initial_rebalance_delay_ms=0, consumer_session_timeout_ms=10_000)
        self.members: dict[int, Consumer | ClassicConsumer] = {}
        self.joined = 0
        self.generation = 0

    @rule(slot=slots)
    def join(self, slot: int) -> None:
        if slot not in self.members:
            self.joined += 1
            fields = {"rebalance_timeout_ms": 3_000}
            self.members[slot] = Consumer(self.coordinator, f"m{self.joined}", fields=fields)
            self.members[slot].beat()

    @rule(slot=slots, protocols=st.sampled_from(PROTOCOLS), noise=st.sampled_from(NOISE))
    def join_classic(self, slot: int, protocols: tuple[str, ...], noise: bytes | None) -> None:
        if slot not in self.members:
            noisy = {} if noise is None else dict.fromkeys(protocols[1:], noise)
            self.members[slot] = ClassicConsumer(self.coordinator, protocols=protocols, noise=noisy)
            self.members[slot].beat()

    @initialize(mixed=st.booleans())
    def begin(self, mixed: bool) -> None:
        """With nobody, or with both kinds: the classic ones alone would choose what is noise of one of them."""
        if mixed:
            self.join(0)
            for slot, protocols in enumerate(PROTOCOLS[:2], 1):
                self.join_classic(slot, protocols, b"")
                self.beat(slot, 1)

    @rule(slot=slots, times=st.integers(1, 3))
    def beat(self, slot: int, times: int) -> None:
        for _ in range(times):
            if (member := self.members.get(slot)) is not None:
                member.beat()

    @rule(slot=slots)
    def beat_in_vain(self, slot: int) -> None:
        """What it comes to is too large to be stored, and leaves no trace but a classic group that nobody is in yet."""
        if (member := self.members.get(slot)) is not None:
            before = len(self.coordinator.log)
            self.coordinator.is_full = True
            member.beat()
            self.coordinator.is_full = False
            for _, value in self.coordinator.log[before:]:
                assert value is None or (isinstance(value, GroupMetadataValue) and not value.members)

    @rule()
    def all_beat(self) -> None:
        for member in self.members.values():
            member.beat()

    @rule(slot=slots)
    def leave(self, slot: int) -> None:
        if (member := self.members.pop(slot, None)) is not None:
            member.leave()

    @rule(slot=slots)
    def die(self, slot: int) -> None:
        self.members.pop(slot, None)

    @rule(ms=st.sampled_from([1, 100, 1_000, 3_000]))
    def wait(self, ms: int) -> None:
        self.coordinator.advance(ms)

    @rule()
    def reload(self) -> None:
        self.generation = 0
        self.coordinator = self.coordinator.reloaded()
        for member in self.members.values():
            member.coordinator = self.coordinator
            if isinstance(member, ClassicConsumer):
                member.asked = None

    @rule()
    def rest(self) -> None:
        for _ in range(150):  # two sessions and more: a group that changes its protocol gives the dead another one
            for member in self.members.values():
                member.beat()
            self.coordinator.advance(200)
            self.generations_rise()  # a group that nobody was left in begins anew
        for slot in [slot for slot, member in self.members.items() if self._is_barred(member)]:
            del self.members[slot]
        if self.members:
            had = sorted(partition for member in self.members.values() for partition in member.partitions())
            assert had == [("orders", index) for index in range(4)]
            ids = {member.member_id for member in self.members.values()}
            assert ids == set(self._group_members())
            if not any(isinstance(member, Consumer) for member in self.members.values()):
                assert isinstance(self.coordinator.table.groups[GROUP], ClassicGroup)
            else:
                assert self.coordinator.state() is ConsumerGroupState.STABLE

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        read: dict[object, str] = {}
        known = self._group_members()
        for member in self.members.values():
            if member.member_id in known:
                for partition in member.partitions():
                    assert read.setdefault(partition, member.member_id) == member.member_id

    @invariant()
    def generations_rise(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        generation = 0
        if isinstance(group, ConsumerGroup) and group.members:
            generation = group.epoch
            assert generation >= self.generation
        elif isinstance(group, ClassicGroup) and group.members:
            generation = group.generation
            assert generation >= self.generation
        self.generation = generation

    def teardown(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        again = Coordinator(log=self.coordinator.log).table.groups.get(GROUP)
        assert type(again) is type(group)
        if isinstance(group, ConsumerGroup):
            assert hard_state(again) == hard_state(group)

    def _is_barred(self, member: Consumer | ClassicConsumer) -> bool:
        """Whether what the coordinator knows of the group's classic members keeps this one out."""
        group = self.coordinator.table.groups.get(GROUP)
        assert isinstance(group, ConsumerGroup | ClassicGroup)
        classic = [other for other in self.members.values() if isinstance(other, ClassicConsumer)]
        if isinstance(member, Consumer):
            return isinstance(group, ClassicGroup) and any(group.protocol in other.noise for other in classic)
        spoken = [(_protocols(group.members.get(other.member_id)), set(other.protocols)) for other in classic]
        known = [names for names, _ in spoken if names]
        is_forgotten = any(names and names != protocols for names, protocols in spoken)
        is_shared = any(all(name in names for names in known) for name in member.protocols)
        return member.member_id not in group.members and is_forgotten and not is_shared

    def _group_members(self) -> set[str]:
        group = self.coordinator.table.groups.get(GROUP)
        return set(group.members) if isinstance(group, ConsumerGroup | ClassicGroup) else set()


def _protocols(member: Member | ClassicMember | None) -> set[str]:
    """The classic protocols that the coordinator knows a member by."""
    if isinstance(member, ClassicMember):
        return {protocol.name for protocol in member.protocols}
    if member is None or member.classic is None:
        return set()
    return {protocol.name for protocol in member.classic.supported_protocols}


Groups.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestGroups = Groups.TestCase
MixedGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMixedGroups = MixedGroups.TestCase
