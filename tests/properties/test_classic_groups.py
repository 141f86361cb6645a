"""Whatever members do, in whichever order, and whichever timers fire: a classic group keeps its promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kio.schema.leave_group.v5.request import MemberIdentity

from barnabas.machines.groups.classic import replies as replies
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.settings import GroupSettings
from barnabas.machines.groups.table import TimerKey
from barnabas.model.errors import ErrorCode
from tests.support.classic_groups import GROUP, Caller, Groups, subscription

INSTANCES = st.sampled_from([None, None, "i", "j"])
METADATA = st.sampled_from([subscription("t"), subscription("u"), b"?"])
PROTOCOLS = st.lists(st.tuples(st.sampled_from(["range", "range", "sticky", "odd"]), METADATA), max_size=3)
WAITING_STATES = (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE)
SETTINGS = GroupSettings(min_session_timeout_ms=1_000, initial_rebalance_delay_ms=500, max_size=4)


class Members(RuleBasedStateMachine):
    """Clients that remember ids and generations that they were told, and use any of them at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups(SETTINGS)
        self.callers: list[Caller] = []
        self.ids: list[str] = []
        self.highest = 0
        """The highest generation since the last reload."""
        self.stored_generation = 0

    def ask(self, caller: Caller) -> None:
        self.callers.append(caller)
        self.listen()

    def listen(self) -> None:
        for caller in self.callers:
            told = getattr(caller.answer, "member_id", "")
            if told and told not in self.ids:
                self.ids.append(told)
        self.callers = [caller for caller in self.callers if caller.answer is None]

    def some_id(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*self.ids[-6:], "stranger"]))

    def generation(self, data: st.DataObject) -> int:
        current = self.group.generation if self.group else 0
        return data.draw(st.sampled_from([current, current, current, current - 1, current + 1]))

    @property
    def group(self) -> ClassicGroup | None:
        group = self.groups.table.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    @initialize(instances=st.lists(st.sampled_from([None, "i", "j"]), unique=True))
    def begin(self, instances: list[str | None]) -> None:
        if instances:
            self.ids += self.groups.stable(*instances, session_ms=2_000)

    @rule(instance=INSTANCES, protocols=PROTOCOLS, version=st.sampled_from([3, 8, 9]))
    def join_unknown(self, instance: str | None, protocols: list[tuple[str, bytes]], version: int) -> None:
        self.ask(self.groups.join(instance_id=instance, protocols=protocols, version=version, session_ms=2_000))

    @rule(data=st.data(), protocols=PROTOCOLS, rebalance_ms=st.sampled_from([0, 1_000, 5_000]))
    def join(self, data: st.DataObject, protocols: list[tuple[str, bytes]], rebalance_ms: int) -> None:
        member_id = self.some_id(data)
        instance = member_id[0] if data.draw(st.booleans()) and member_id[0] in "ij" else None
        self.ask(
            self.groups.join(
                member_id, instance_id=instance, protocols=protocols, session_ms=2_000, rebalance_ms=rebalance_ms
            )
        )

    @precondition(lambda self: self.group is not None and self.group.members)
    @rule(data=st.data())
    def join_as_before(self, data: st.DataObject) -> None:
        assert self.group is not None
        member = self.group.members[data.draw(st.sampled_from(list(self.group.members)))]
        protocols = [(protocol.name, protocol.metadata) for protocol in member.protocols]
        self.ask(self.groups.join(member.member_id, instance_id=member.instance_id, protocols=protocols))

    @precondition(lambda self: self.group is not None)
    @rule(data=st.data(), too_large=st.booleans())
    def sync(self, data: st.DataObject, too_large: bool) -> None:
        assert self.group is not None
        self.groups.is_full = too_large
        member_id = self.some_id(data)
        assignments = {name: b"some" for name in self.group.members if data.draw(st.booleans())}
        self.ask(
            self.groups.sync(member_id, self.generation(data), assignments, protocol_name=None, protocol_type=None)
        )
        self.groups.is_full = False

    @precondition(lambda self: self.group is not None and self.group.state in WAITING_STATES)
    @rule()
    def everybody_joins_and_syncs(self) -> None:
        assert self.group is not None
        if self.group.state is ClassicGroupState.PREPARING_REBALANCE:
            for member in list(self.group.members.values()):
                if member.join_asker is None:
                    spoken = [(protocol.name, protocol.metadata) for protocol in member.protocols]
                    self.ask(self.groups.join(member.member_id, instance_id=member.instance_id, protocols=spoken))
        if self.group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self.everybody_syncs()

    def everybody_syncs(self) -> None:
        assert self.group is not None
        for member_id in list(self.group.members):
            self.ask(self.groups.sync(member_id, protocol_name=None, protocol_type=None))
        assert self.group.state is ClassicGroupState.STABLE

    @precondition(lambda self: self.group is not None)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        self.groups.heartbeat(self.some_id(data), self.generation(data))

    @rule(data=st.data(), instances=st.lists(st.sampled_from("ij"), max_size=1))
    def leave(self, data: st.DataObject, instances: list[str]) -> None:
        leaving: list[str | MemberIdentity] = [self.some_id(data)]
        leaving += [MemberIdentity(member_id="", group_instance_id=instance) for instance in instances]
        self.ask(self.groups.leave(*leaving))

    @precondition(lambda self: self.groups.timers)
    @rule(data=st.data())
    def a_timer_fires(self, data: st.DataObject) -> None:
        self.groups.fire(data.draw(st.sampled_from(sorted(self.groups.timers))))
        self.listen()

    @rule(ms=st.sampled_from([1, 500, 1_999, 30_000]))
    def time_passes(self, ms: int) -> None:
        self.groups.advance(ms)
        self.listen()

    @precondition(lambda self: self.group is not None and self.group.members)
    @rule()
    def the_broker_restarts(self) -> None:
        self.groups.take(self.groups.rules.abandon(ErrorCode.not_coordinator))
        self.listen()
        assert not self.callers
        self.groups = self.groups.reload()
        self.highest = 0

    @precondition(lambda self: self.group is not None and self.group.is_empty and self.group.generation)
    @rule()
    def the_group_is_deleted(self) -> None:
        self.groups.delete()
        self.highest = self.stored_generation = 0

    @invariant()
    def generations_never_go_back(self) -> None:
        if self.group is not None:
            assert self.group.generation >= self.highest
            self.highest = self.group.generation
            assert self.group.stored is not None
            assert self.group.stored.generation >= self.stored_generation
            self.stored_generation = self.group.stored.generation

    @invariant()
    def members_and_leader_agree(self) -> None:
        if (group := self.group) is None:
            return
        assert group.leader in group.members if group.members else group.leader is None
        assert set(group.instances.values()) <= set(group.members)
        assert group.pending_syncs <= set(group.members)
        assert not group.pending_joins & set(group.members)
        assert bool(group.members) or group.state not in (
            ClassicGroupState.STABLE,
            ClassicGroupState.COMPLETING_REBALANCE,
        )
        assert not group.members or not group.is_empty
        if group.members:
            assert group.choose_protocol()
        waiting = [caller for m in group.members.values() for caller in (m.join_asker, m.sync_asker) if caller]
        assert len(waiting) == len(set(map(id, waiting)))
        assert set(map(id, waiting)) == set(map(id, self.callers)), "somebody is forgotten, or was answered and waits"
        assert group.joined == sum(m.join_asker is not None for m in group.members.values())
        if group.state is not ClassicGroupState.PREPARING_REBALANCE:
            assert group.joined == 0

    @invariant()
    def a_stable_group_is_what_its_record_says(self) -> None:
        group = self.group
        if group is not None and group.state is ClassicGroupState.STABLE:
            assert group.stored is not None
            assert [m.stored(group.protocol or "", m.assignment) for m in group.members.values()] == list(
                group.stored.members
            )

    @invariant()
    def somebody_watches_over_every_member(self) -> None:
        if (group := self.group) is None:
            return
        for member in group.members.values():
            if member.is_new or not member.is_waiting:
                assert TimerKey("classic.session", GROUP, member.member_id) in self.groups.timers
        for member_id in group.pending_joins:
            assert TimerKey("classic.session", GROUP, member_id) in self.groups.timers
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            assert TimerKey("classic.join", GROUP) in self.groups.timers
        if group.pending_syncs:
            assert TimerKey("classic.sync", GROUP) in self.groups.timers

    @invariant()
    def a_reload_gives_what_the_log_says(self) -> None:
        fresh = Groups(GroupSettings(), self.groups.log, self.groups.now_ms).table.groups.get(GROUP)
        assert (fresh is None) == (self.group is None)
        if self.group is None:
            return
        assert isinstance(fresh, ClassicGroup)
        assert fresh.stored == self.group.stored
        if self.group.state not in WAITING_STATES:
            assert replies.describe(fresh) == replies.describe(self.group)
            assert (fresh.generation, fresh.leader) == (self.group.generation, self.group.leader)

    def teardown(self) -> None:
        """Silence ends everything: whoever waits is answered, and nobody is left."""
        self.groups.advance(10 * 60_000)
        self.groups.advance(10 * 60_000)
        self.listen()
        assert not self.callers
        assert self.group is None or self.group.is_empty
        assert not self.groups.timers


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=60, stateful_step_count=40)
