"""Each rule of the checker against a history that breaks it, and against the good one it was made from."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.history.checker import Fate, History, Kind, Placed, Poll, Record, Reset, Send, check

LOG: Final = tuple(Record(0, offset, f"a{offset}") for offset in range(4))
SENDS: Final = tuple(Send("a", 0, f"a{offset}", Fate.ACKNOWLEDGED, offset) for offset in range(4))
GOOD: Final = History(SENDS, (Poll("c", LOG[:2]), Poll("c", LOG[2:])), LOG)


def kinds(history: History) -> set[Kind]:
    return {violation.kind for violation in check(history)}


def test_a_good_history_has_no_violations() -> None:
    assert check(GOOD) == []


def test_an_empty_history_has_no_violations() -> None:
    assert check(History((), (), ())) == []


def test_an_acknowledged_record_that_is_not_in_the_log_is_lost() -> None:
    assert kinds(replace(GOOD, final=LOG[:3], reads=())) == {Kind.LOST}


def test_one_in_the_middle_is_lost_too() -> None:
    assert kinds(replace(GOOD, final=(*LOG[:1], *LOG[2:]), reads=())) == {Kind.LOST}


def test_a_record_of_unknown_fate_may_be_there_or_not() -> None:
    sends = (*SENDS[:3], SENDS[3]._replace(fate=Fate.UNKNOWN, offset=-1))
    assert check(replace(GOOD, sends=sends)) == []
    assert check(replace(GOOD, sends=sends, final=LOG[:3], reads=())) == []


def test_what_was_read_may_not_vanish_even_if_it_was_never_acknowledged() -> None:
    sends = (*SENDS[:3], SENDS[3]._replace(fate=Fate.UNKNOWN, offset=-1))
    assert kinds(replace(GOOD, sends=sends, final=LOG[:3])) == {Kind.VANISHED}


def test_a_value_at_two_offsets_is_a_duplicate() -> None:
    assert kinds(replace(GOOD, final=(*LOG, Record(0, 4, "a3")))) == {Kind.DUPLICATE}


def test_what_its_client_may_have_sent_twice_is_none() -> None:
    sends = (*SENDS[:3], SENDS[3]._replace(is_repeatable=True))
    assert not kinds(replace(GOOD, sends=sends, final=(*LOG, Record(0, 4, "a3"))))
    assert kinds(replace(GOOD, sends=sends, final=(*LOG, Record(0, 4, "a2")))) == {Kind.DUPLICATE}
    assert Kind.DUPLICATE in kinds(replace(GOOD, sends=sends, final=(*LOG, Record(1, 0, "a3"))))


def test_a_value_in_two_partitions_is_a_duplicate() -> None:
    assert Kind.DUPLICATE in kinds(replace(GOOD, final=(*LOG, Record(1, 0, "a3"))))


def test_an_acknowledgement_for_another_offset_is_a_duplicate() -> None:
    assert Kind.DUPLICATE in kinds(replace(GOOD, sends=(*SENDS[:3], SENDS[3]._replace(offset=9))))


def test_two_consumers_that_see_different_values_at_one_offset() -> None:
    found = kinds(replace(GOOD, reads=(*GOOD.reads, Poll("d", (Record(0, 1, "a2"),)))))
    assert Kind.INCONSISTENT in found


def test_a_refused_record_may_not_be_read() -> None:
    assert kinds(replace(GOOD, sends=(*SENDS[:3], SENDS[3]._replace(fate=Fate.REFUSED, offset=-1)))) == {Kind.ABORTED}


@pytest.mark.parametrize("fate", [Fate.ACKNOWLEDGED, Fate.UNKNOWN])
def test_a_transaction_is_there_as_a_whole_or_not_at_all(fate: Fate) -> None:
    sends = (*SENDS[:2], *(send._replace(fate=fate, offset=-1, transaction="t") for send in SENDS[2:]))
    assert check(replace(GOOD, sends=sends)) == []
    assert Kind.TORN in kinds(replace(GOOD, sends=sends, final=LOG[:3], reads=()))
    assert Kind.TORN not in kinds(replace(GOOD, sends=sends, final=LOG[:2], reads=()))


def test_a_record_that_nobody_sent_is_invented() -> None:
    assert kinds(replace(GOOD, final=(*LOG, Record(0, 4, "b0")))) == {Kind.INVENTED}


def test_a_producers_records_keep_their_order() -> None:
    swapped = (SENDS[0], SENDS[2], SENDS[1], SENDS[3])
    assert kinds(replace(GOOD, sends=swapped)) == {Kind.SEND_ORDER}


def test_records_of_two_producers_have_no_order() -> None:
    sends = (*SENDS[2:], *(send._replace(producer="b") for send in SENDS[:2]))
    assert check(replace(GOOD, sends=sends)) == []


def test_a_poll_that_goes_back() -> None:
    assert kinds(replace(GOOD, reads=(Poll("c", LOG), Poll("c", LOG[2:])))) == {Kind.POLL_ORDER}


def test_records_out_of_order_in_one_poll() -> None:
    assert Kind.POLL_ORDER in kinds(replace(GOOD, reads=(Poll("c", LOG[::-1]),)))


def test_a_poll_that_skips_a_record() -> None:
    assert kinds(replace(GOOD, reads=(Poll("c", LOG[:1]), Poll("c", LOG[2:])))) == {Kind.POLL_SKIP}


def test_an_offset_that_holds_nothing_is_not_skipped() -> None:
    gap = (*SENDS[:1], *SENDS[2:])
    log = (*LOG[:1], *LOG[2:])
    assert check(History(gap, (Poll("c", log),), log)) == []


def test_a_consumer_that_was_placed_anew_may_go_back_or_forth() -> None:
    assert check(replace(GOOD, reads=(Poll("c", LOG[2:]), Placed("c"), Poll("c", LOG[:1])))) == []
    assert check(replace(GOOD, reads=(Poll("c", LOG[:1]), Placed("c"), Poll("c", LOG[3:])))) == []


def test_a_group_may_read_twice_but_not_skip() -> None:
    first, second = Poll("c", LOG[:2], "g"), Poll("d", LOG[1:], "g")
    assert check(replace(GOOD, reads=(first, second))) == []
    assert kinds(replace(GOOD, reads=(first, Poll("d", LOG[3:], "g")))) == {Kind.GROUP_SKIP}


def test_a_position_that_was_reached_may_not_be_gone() -> None:
    assert kinds(replace(GOOD, reads=(*GOOD.reads, Reset("c", "out of range")))) == {Kind.RESET}


def test_a_history_that_sends_a_value_twice_proves_nothing() -> None:
    with pytest.raises(ValueError, match="sent twice"):
        check(replace(GOOD, sends=(*SENDS, SENDS[0])))


def test_a_violation_shows_its_evidence() -> None:
    [lost] = check(replace(GOOD, final=LOG[:3], reads=()))
    assert str(lost) == "lost write: a3 was acknowledged at 0@3"
