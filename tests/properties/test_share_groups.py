"""Whatever members, topics and share coordinators do, a share group settles, and its log says what it is."""

from __future__ import annotations

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.machines.groups.share.group import ShareGroup
from tests.support.consumer_groups import GROUP
from tests.support.share_groups import ShareCoordinator, Worker, work

SOFT: Final = ("metadata_current", "_not_assigned")
SUBSCRIPTIONS: Final = (("orders",), ("payments",), ("orders", "payments"), ("parcels",))
slots = st.integers(0, 4)


def hard_state(group: object) -> object:
    """Everything that the log holds."""
    assert isinstance(group, ShareGroup)
    return {name: value for name, value in vars(group).items() if name not in SOFT}


class ShareGroups(RuleBasedStateMachine):
    """Members that come, go and die; topics that come, grow and go; states that are made, not made, or forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = {"orders": 3, "payments": 2}
        self.generation = 0
        self.coordinator = ShareCoordinator(
            self.topics, share_session_timeout_ms=5_000, share_assignment_interval_ms=500
        )
        self.workers: dict[int, Worker] = {}
        self.joined = 0
        self.epoch = 0

    @rule(slot=slots, topics=st.sampled_from(SUBSCRIPTIONS))
    def join(self, slot: int, topics: tuple[str, ...]) -> None:
        if slot not in self.workers:
            self.joined += 1
            self.workers[slot] = Worker(self.coordinator, f"m{self.joined}", topics)
            self.workers[slot].beat()

    @rule(slot=slots)
    def beat(self, slot: int) -> None:
        if (worker := self.workers.get(slot)) is not None:
            worker.beat()

    @rule(slot=slots, topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, slot: int, topics: tuple[str, ...]) -> None:
        if (worker := self.workers.get(slot)) is not None:
            worker.topics = topics
            worker.beat(topics=topics)

    @rule(slot=slots, leaves=st.booleans())
    def go(self, slot: int, leaves: bool) -> None:
        worker = self.workers.pop(slot, None)
        if worker is not None and leaves:
            worker.leave()

    @rule(fails=st.booleans())
    def initialize(self, fails: bool) -> None:
        self.coordinator.initialize(fails=fails)

    @rule()
    def forget(self) -> None:
        """What the share coordinator was asked for gets lost."""
        self.coordinator.wanted.clear()

    @rule(ms=st.sampled_from([1, 600, 3_000, 31_000]))
    def wait(self, ms: int) -> None:
        self.coordinator.advance(ms)

    @rule(name=st.sampled_from(("orders", "payments", "parcels")), count=st.integers(0, 4))
    def change_topic(self, name: str, count: int) -> None:
        if count > self.topics.get(name, 0):
            self.topics[name] = count
        elif count == 0:
            self.topics.pop(name, None)
            if name == "parcels":
                self.generation += 1  # all topics were made again
        self.coordinator.change_topics(self.topics, self.generation)

    @rule()
    def delete_group(self) -> None:
        rules = self.coordinator.rules
        before = self.coordinator.table.groups.get(GROUP)
        self.coordinator.ask(lambda client, now_ms: rules.delete_group(GROUP, client, now_ms, states_deleted=True))
        if before is not None and before.is_empty:
            assert GROUP not in self.coordinator.table.groups
            self.epoch = 0

    @rule()
    def restart(self) -> None:
        self.coordinator = self.coordinator.restarted()
        for worker in self.workers.values():
            worker.coordinator = self.coordinator

    @rule()
    def rest(self) -> None:
        """Everybody has work, and every partition of a subscribed topic has somebody."""
        self.coordinator.advance(31_000)  # the dead are gone, and what was forgotten may be asked for again
        for worker in self.workers.values():
            worker.beat()
        for _ in range(3):
            work(self.workers.values(), 2)
            self.coordinator.advance(600)
        held = {place for worker in self.workers.values() for place in worker.partitions()}
        names = {name for worker in self.workers.values() for name in worker.topics}
        assert held == {(name, index) for name in names for index in range(self.topics.get(name, 0))}
        for worker in self.workers.values():
            assert {name for name, _ in worker.partitions()} <= set(worker.topics)
            assert worker.partitions() or not any(self.topics.get(name) for name in worker.topics)

    @invariant()
    def epochs_rise(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        if isinstance(group, ShareGroup):
            assert group.epoch >= self.epoch
            assert group.epoch >= group.assignment_epoch
            self.epoch = group.epoch

    def teardown(self) -> None:
        group = self.coordinator.table.groups.get(GROUP)
        again = self.coordinator.restarted().table.groups.get(GROUP)
        if group is None:
            assert again is None
        else:
            assert hard_state(again) == hard_state(group)


ShareGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestShareGroups = ShareGroups.TestCase
