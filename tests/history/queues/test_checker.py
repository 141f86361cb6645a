"""The rules of queues: an honest history breaks none, and each way to break one is found by its rule alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tests.history.queues.checker import Rule, check, excused
from tests.history.queues.events import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    Acknowledgement,
    Delivery,
    Fate,
    Kind,
    Observation,
    Place,
    QueueHistory,
    StateRun,
    Unheard,
)

A, B, C = (Place(0, offset) for offset in range(3))
END: Final = 100.0
LOCK: Final = 5.0


def came(member: str, place: Place, at: float, count: int = 1, **other: Any) -> Delivery:
    """A delivery by the leader, of a fetch that took a tenth of a second."""
    known = {"session": member, "epoch": 1, "is_current": True}
    return Delivery(member, place, f"v{place.offset}", count, at - 0.1, at, **{**known, **other})


def said(
    member: str, place: Place, at: float, kind: Kind = Kind.ACCEPT, count: int = 1, fate: Fate = Fate.STORED
) -> Acknowledgement:
    return Acknowledgement(member, place, kind, count, fate, at - 0.1, at, member)


def seen(at: float, start: int, *runs: tuple[int, int, int, int], **other: Any) -> Observation:
    return Observation(0, start, tuple(StateRun(*run) for run in runs), at - 0.1, at, **other)


HONEST: Final = QueueHistory(
    messages={A: "v0", B: "v1", C: "v2"},
    deliveries=[
        came("m", A, 1),
        came("m", B, 1),
        came("m", C, 1),
        came("n", B, 3, 2),
        came("n", C, 8, 2),
    ],
    acknowledgements=[
        said("m", A, 2),
        said("m", B, 2, Kind.RELEASE),
        said("n", B, 4, Kind.REJECT, 2),
        said("m", C, 7, fate=Fate.REFUSED),
        said("n", C, 9, count=2),
    ],
    observations=[
        seen(2.5, 1, (1, 1, AVAILABLE, 1)),
        seen(5, 1, (1, 1, ARCHIVED, 2)),
        seen(END, 3),
    ],
    sessions={"m": 50.0, "n": 50.0},
    lock_seconds=LOCK,
    delivery_limit=5,
)
"""One message is accepted, one released and rejected, and one comes to another worker when its lock is over."""


def broken(**changes: Any) -> set[Rule]:
    return {violation.rule for violation in check(replace(HONEST, **changes))}


def test_an_honest_history_breaks_no_rule() -> None:
    assert check(HONEST) == []


def test_what_is_delivered_is_in_the_topic() -> None:
    invented = came("m", A, 1)._replace(value="x")
    assert broken(deliveries=[*HONEST.deliveries, invented]) == {Rule.INVENTED}
    assert broken(deliveries=[*HONEST.deliveries, invented], others={"x"}) == set()


def test_nothing_is_delivered_more_often_than_the_limit() -> None:
    assert broken(delivery_limit=1) == {Rule.USED_UP}


def test_a_message_that_is_not_done_in_the_end_is_stuck() -> None:
    assert broken(observations=[*HONEST.observations[:2], seen(END, 2)]) >= {Rule.STUCK}
    waiting = [*HONEST.acknowledgements[:-1]]
    assert broken(acknowledgements=waiting, observations=[seen(END, 2, (2, 2, AVAILABLE, 2))]) == {Rule.STUCK}
    assert broken(acknowledgements=waiting, observations=[seen(END, 2, (2, 2, ARCHIVING, 2))]) == {Rule.STUCK}
    assert broken(messages={**HONEST.messages, Place(1, 0): "other"}) == {Rule.STUCK}


def test_a_message_that_nobody_acknowledged_and_that_is_done_is_lost() -> None:
    without = HONEST.acknowledgements[:-1]
    assert broken(acknowledgements=without) == {Rule.LOST}
    assert broken(acknowledgements=[*without, said("n", C, 9, fate=Fate.REFUSED)]) == {Rule.LOST}
    assert broken(acknowledgements=[*without, said("n", C, 9, Kind.RELEASE, 2)]) == {Rule.LOST}


def test_an_answer_that_was_lost_may_have_been_yes() -> None:
    without = HONEST.acknowledgements[:-1]
    assert broken(acknowledgements=[*without, said("n", C, 9, count=2, fate=Fate.UNKNOWN)]) == set()


def test_deliveries_that_nobody_heard_of_count() -> None:
    without = HONEST.acknowledgements[:-1]
    assert broken(acknowledgements=without, unheard=[Unheard(0, 8.5)] * 2) == {Rule.LOST}
    assert broken(acknowledgements=without, unheard=[Unheard(0, 8.5)] * 3) == set()
    assert broken(acknowledgements=without, unheard=[Unheard(1, 8.5)] * 3) == {Rule.LOST}


def test_only_fetches_that_may_have_had_a_message_count_as_its_deliveries() -> None:
    without = {"acknowledgements": HONEST.acknowledgements[:-1]}
    assert broken(**without, unheard=[Unheard(0, END + 1)] * 3) == {Rule.LOST}, "it was done before"
    assert broken(**without, unheard=[Unheard(0, 8.5)] * 3, sent_at={C: 50.0}) == {Rule.LOST}, "it came after them"
    assert broken(**without, unheard=[Unheard(0, 8.5)] * 3, sent_at={C: 9.0}) == set(), "they may have waited for it"
    assert broken(**without, unheard=[Unheard(0, 8.5), *[Unheard(0, END + 1)] * 2]) == {Rule.LOST}


def test_messages_that_only_unheard_fetches_explain_are_counted() -> None:
    assert excused(HONEST) == 0
    assert excused(replace(HONEST, unheard=[Unheard(0, 8.5)] * 3)) == 0, "there was a word for each"
    without = replace(HONEST, acknowledgements=HONEST.acknowledgements[:-1], unheard=[Unheard(0, 8.5)] * 3)
    assert excused(without) == 1


def test_two_workers_whose_word_counts() -> None:
    late = said("m", C, 10)
    assert broken(acknowledgements=[*HONEST.acknowledgements, late]) == set(), "the start may have passed it"
    first = [*HONEST.acknowledgements[:2], said("n", C, 9, count=2), late, said("n", B, 11, Kind.REJECT, 2)]
    observations = [HONEST.observations[0], seen(END, 3)]
    assert broken(acknowledgements=first, observations=observations) == {Rule.TWICE}


def test_a_worker_that_asks_again_is_no_second_worker() -> None:
    again = said("n", C, 10, count=2)
    first = [*HONEST.acknowledgements[:2], said("n", C, 9, count=2), again, said("n", B, 11, Kind.REJECT, 2)]
    assert broken(acknowledgements=first, observations=[seen(END, 3)]) == set()


def test_a_leader_does_not_deliver_what_is_done() -> None:
    again = came("n", A, 20, 2, epoch=2)
    assert broken(deliveries=[*HONEST.deliveries, again]) == {Rule.AGAIN}
    assert broken(deliveries=[*HONEST.deliveries, again._replace(is_current=False)]) == set()
    assert broken(deliveries=[*HONEST.deliveries, again._replace(asked_at=1.95)]) == set(), "it was asked before"


def test_what_was_answered_is_stored() -> None:
    assert broken(observations=[seen(2.5, 0, (1, 1, AVAILABLE, 1)), seen(END, 3)]) == {Rule.UNSTORED}
    early = [said("m", C, 1.9), *HONEST.acknowledgements[:-2]]
    wrong = [seen(5, 1, (1, 1, ARCHIVED, 2), (2, 2, ARCHIVED, 1)), seen(END, 3)]
    deliveries = HONEST.deliveries[:-1]
    assert broken(acknowledgements=early, observations=wrong, deliveries=deliveries) == {Rule.UNSTORED}, "another word"
    passed = {"acknowledgements": [*HONEST.acknowledgements[:-2], said("m", C, 9)], "deliveries": deliveries}
    assert broken(observations=wrong, **passed) == set(), "the start may have passed it"
    assert broken(observations=[seen(2.5, 1), seen(END, 3)]) == {Rule.UNSTORED}, "the count of a release"
    assert broken(observations=[seen(2.05, 0), seen(END, 3)]) == set(), "it was asked for before the answer came"
    assert broken(observations=[seen(2.5, 0, is_current=False), seen(END, 3)]) == set()


def test_what_is_stored_does_not_go_back() -> None:
    done, last = HONEST.observations[1:]
    assert broken(observations=[done, seen(6, 0, (0, 0, ACKNOWLEDGED, 1), (1, 1, ARCHIVED, 2)), last]) == {Rule.SHRUNK}
    counts = [seen(1.5, 0, (2, 2, AVAILABLE, 3)), seen(1.8, 0, (2, 2, AVAILABLE, 2)), last]
    deliveries = [*HONEST.deliveries[:-1], came("n", C, 8, 4)]
    assert broken(observations=counts, deliveries=deliveries) == {Rule.SHRUNK}
    alive = [seen(6, 1, (1, 1, ARCHIVED, 2)), seen(6.5, 1, (1, 1, AVAILABLE, 2)), last]
    assert broken(observations=alive) == {Rule.SHRUNK, Rule.UNSTORED}


def test_a_message_that_is_given_up_waits_for_its_dead_letter_and_for_nothing_else() -> None:
    last = HONEST.observations[-1]
    waiting, done = seen(5, 1, (1, 1, ARCHIVING, 2)), seen(6, 1, (1, 1, ARCHIVED, 2))
    assert broken(observations=[waiting, done, last]) == set()
    assert broken(observations=[done, waiting._replace(asked_at=7, came_at=7.1), last]) == {Rule.SHRUNK}
    again = seen(6, 1, (1, 1, AVAILABLE, 2))
    assert broken(observations=[waiting, again, last]) == {Rule.SHRUNK, Rule.UNSTORED}


def test_a_leader_counts_on_from_what_is_stored() -> None:
    less = [*HONEST.deliveries[:3], came("n", B, 3, 1), HONEST.deliveries[-1]]
    assert broken(deliveries=less) == {Rule.SHRUNK}
    assert broken(deliveries=less, observations=HONEST.observations[1:]) == {Rule.SHRUNK}, "of the release alone"
    stored = [seen(2.5, 1, (1, 1, AVAILABLE, 1), (2, 2, AVAILABLE, 2)), *HONEST.observations[1:]]
    assert broken(observations=stored) >= {Rule.SHRUNK}


def test_nobody_gets_what_another_worker_holds() -> None:
    early = [*HONEST.deliveries[:-1], came("n", C, 3, 2)]
    assert broken(deliveries=early) == {Rule.SHARED}
    assert broken(deliveries=early, sessions={"m": 2.0}) == set(), "the connection may have ended"
    other_leader = [*HONEST.deliveries[:-1], came("n", C, 3, 2, epoch=2)]
    assert broken(deliveries=other_leader) == set()
    unheard = said("m", C, 2.9, Kind.RELEASE, fate=Fate.UNKNOWN)
    assert broken(deliveries=early, acknowledgements=[*HONEST.acknowledgements, unheard]) == set()


def test_what_is_given_up_has_a_dead_letter() -> None:
    assert broken(dead_letters=[B]) == set()
    assert broken(dead_letters=[]) == {Rule.NO_LETTER}
    assert broken(dead_letters=[A, B]) == {Rule.WRONG_LETTER}
    given_up = {"acknowledgements": HONEST.acknowledgements[:-1], "unheard": [Unheard(0, 8.5)] * 3}
    assert broken(dead_letters=[B, C], **given_up) == set()
    assert broken(dead_letters=[B], **given_up) == {Rule.NO_LETTER}
