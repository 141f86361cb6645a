"""The table of a consumer group's states has no step too many.

That it lacks none, all tests with `Coordinator` see to.
"""

from __future__ import annotations

import random

from barnabas.machines.groups.consumer.states import GROUP_TRANSITIONS
from tests.support.classic_consumers import ClassicConsumer
from tests.support.consumer_groups import GROUP, Client, Consumer, Coordinator

MOST_TURNS = 3_000


def test_every_step_of_the_table_is_taken() -> None:
    chance = random.Random(4)
    drawn = {(before, after) for before, after, _ in GROUP_TRANSITIONS.rows}
    coordinator = Coordinator(
        {"orders": 4, "payments": 2},
        initial_rebalance_delay_ms=0,
        consumer_assignment_interval_ms=500,
        consumer_session_timeout_ms=5_000,
    )
    members: dict[int, Consumer | ClassicConsumer] = {}
    for turn in range(MOST_TURNS):
        slot = chance.randrange(3)
        member = members.get(slot)
        action = chance.choice(("join", "join", "beat", "beat", "subscribe", "leave", "wait", "delete"))
        if action == "join" and member is None:
            static = {"instance_id": f"instance-{slot}"} if chance.random() < 0.3 else {}
            classic = chance.random() < 0.4
            members[slot] = (
                ClassicConsumer(coordinator) if classic else Consumer(coordinator, f"m{turn}", fields=static)
            )
            members[slot].beat()
        elif action == "beat":
            for each in members.values():
                each.beat()
        elif action == "subscribe" and isinstance(member, Consumer):
            member.keeps = chance.random() < 0.5
            member.topics = chance.choice((("orders",), ("payments",), ("orders", "payments")))
            member.beat(topics=member.topics, **member.fields)
        elif action == "leave" and member is not None:
            del members[slot]
            if isinstance(member, Consumer) and member.fields and chance.random() < 0.5:
                member.leave(-2)
            else:
                member.leave()
        elif action == "wait":
            coordinator.advance(chance.choice((10, 600, 6_000)))
        elif action == "delete" and not members:
            coordinator.run(coordinator.rules.delete_group(GROUP, Client(), coordinator.now_ms))
        if coordinator.steps == drawn:
            return
    assert coordinator.steps == drawn
