"""Groups with members of both protocols, and what the tests of such groups do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kio.schema.leave_group.v5 import LeaveGroupRequest
from kio.schema.types import GroupId

from barnabas.machines.groups.classic.states import ClassicGroupState
from tests.support.classic_consumers import ClassicConsumer
from tests.support.consumer_groups import GROUP, Client, Consumer, Coordinator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.schema.errors import ErrorCode
    from kio.schema.leave_group.v5.request import MemberIdentity


def coordinator_of(**settings: Any) -> Coordinator:
    """One whose classic groups gather at once."""
    return Coordinator({"orders": 4}, initial_rebalance_delay_ms=0, **settings)


def rest(members: Sequence[Consumer | ClassicConsumer]) -> None:
    """Let everybody go on until nothing moves."""
    for _ in range(30):
        for member in members:
            member.beat()
            member.coordinator.advance(10)
    had = [partition for member in members for partition in member.partitions()]
    assert sorted(had) == [("orders", index) for index in range(4)]


def classic_group(count: int, **settings: Any) -> tuple[Coordinator, list[ClassicConsumer]]:
    """A classic group at work."""
    coordinator = coordinator_of(**settings)
    members = [ClassicConsumer(coordinator) for _ in range(count)]
    rest(members)
    assert coordinator.classic_group.state is ClassicGroupState.STABLE
    return coordinator, members


def leave_group(coordinator: Coordinator, *members: MemberIdentity) -> list[ErrorCode]:
    """What a request is answered that lets all of these leave."""
    client = Client(version=5)
    request = LeaveGroupRequest(group_id=GroupId(GROUP), members=members)
    coordinator.run(coordinator.rules.leave_group(request, client, coordinator.now_ms))
    return [member.error_code for member in client.answers[0].members]
