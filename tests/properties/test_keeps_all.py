"""A member that keeps what it has takes a short way to the next epoch: the one that reconciliation would take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.machines.groups.consumer.member import NOTHING, Member, StoredAssignment
from barnabas.machines.groups.consumer.rebalance import ConsumerRebalance
from barnabas.machines.groups.consumer.reconciliation import Reconciliation
from barnabas.machines.groups.consumer.states import MemberState
from barnabas.machines.groups.consumer.target import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: Final = {UUID(int=number): f"topic {number}" for number in (1, 2)}
EPOCH: Final = 5
ASSIGNED: Final = st.dictionaries(
    st.sampled_from(list(NAMES)), st.dictionaries(st.sampled_from((0, 1)), st.integers(1, 3), min_size=1)
)
TARGET: Final = st.dictionaries(st.sampled_from(list(NAMES)), st.frozensets(st.sampled_from((0, 1))))
"""Also with topics of which there are no partitions: a record of another broker may have them."""


@example(
    assigned={UUID(int=1): {0: 1}},
    changed={UUID(int=2): frozenset()},
    same=set(),
    state=MemberState.STABLE,
    subscribed=frozenset(NAMES.values()),
    there=set(NAMES),
)
@given(
    assigned=ASSIGNED,
    changed=TARGET,
    same=st.sets(st.sampled_from(list(NAMES))),
    state=st.sampled_from((MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS)),
    subscribed=st.frozensets(st.sampled_from(list(NAMES.values()))),
    there=st.sets(st.sampled_from(list(NAMES)), min_size=1),
)
def test_the_short_way_ends_where_the_long_one_does(
    assigned: dict[UUID, dict[int, int]],
    changed: dict[UUID, frozenset[int]],
    same: set[UUID],
    state: MemberState,
    subscribed: frozenset[str],
    there: set[UUID],
) -> None:
    target: Mapping[UUID, frozenset[int]] = {
        **changed,
        **{topic: frozenset(assigned[topic]) for topic in same if topic in assigned},
    }
    stored = StoredAssignment()
    stored.update(assigned)
    member = Member(
        "m",
        epoch=EPOCH - 1,
        state=state,
        assigned=stored,
        topics=subscribed,
        pending_revocation=NOTHING,
    )
    image = cast("Any", SimpleNamespace(topic_names={topic: NAMES[topic] for topic in there}))
    subscriptions = Subscriptions(image, {})
    group = cast("Any", SimpleNamespace(resolved={}, assignment_epoch=EPOCH, target_of=lambda _: target))
    rules = cast("Any", SimpleNamespace(_table=SimpleNamespace(image=image)))
    short = ConsumerRebalance.keeps_all(rules, group, member)
    if short is None:
        return
    whole = Reconciliation(
        target_epoch=EPOCH,
        target=target,
        owners_of=lambda topic: dict.fromkeys(assigned.get(topic, ()), "m"),
        is_subscribed=lambda topic: subscriptions.includes(member, topic),
        subscription_changed=False,
        owned=None,
    ).step(member)
    assert short == whole
