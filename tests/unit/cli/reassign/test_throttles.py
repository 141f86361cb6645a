from __future__ import annotations

from barnabas.cli.reassign.throttles import Move, moves, throttled_replicas
from barnabas.clients.admin.replicas import Reassignment
from barnabas.model.ids import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_a_new_move_goes_from_where_it_is() -> None:
    assert moves({}, {T0: (2, 3)}, {T0: (1, 2)}) == {T0: Move(frozenset({1, 2}), frozenset({3}))}


def test_a_move_that_is_changed_keeps_its_sources() -> None:
    ongoing = {T0: Reassignment((2, 1), (2,), (1,)), U0: Reassignment((1, 2, 3), (3,), (1,))}
    assert moves(ongoing, {T0: (3,)}, {T0: (2, 1)}) == {
        T0: Move(frozenset({1}), frozenset({3})),
        U0: Move(frozenset({1, 2}), frozenset({3})),
    }


def test_the_settings_of_topics() -> None:
    """Sorted as text, as Kafka's tool has it."""
    moving = {
        T0: Move(frozenset({1, 10, 2}), frozenset({3})),
        T1: Move(frozenset({2}), frozenset()),
        U0: Move(frozenset({4}), frozenset()),
    }
    assert throttled_replicas(moving) == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:10,0:2,1:2",
            "follower.replication.throttled.replicas": "0:3",
        },
        "u": {"leader.replication.throttled.replicas": "0:4", "follower.replication.throttled.replicas": ""},
    }
