"""No request costs more work than is written down: bytecodes and system calls, which no busy machine can change."""

from __future__ import annotations

import pytest
from bench import counts
from bench.clients.hot import REPLICATED, STORIES
from bench.counts import Cost, grown

ADVICE = "If that is what it has to cost, write it down: python -m bench.counts --write"


@pytest.mark.timeout(400)
def test_no_request_costs_more_than_is_written_down() -> None:
    known = counts.written()
    if known is None:
        pytest.skip(f"nothing is written down for Python {counts.version()}: python -m bench.counts --write")
    assert known.keys() == {*STORIES, *REPLICATED}, ADVICE
    more = grown(known, counts.measure())
    if more:  # a broker that looked after something else meanwhile does not do so twice
        more = grown(known, counts.measure(only=more))
    assert not more, f"{more}. {ADVICE}"


@pytest.mark.timeout(400)
def test_produce_and_fetch_cost_no_more_with_a_thousand_acls() -> None:
    known = counts.written()
    if known is None:
        pytest.skip(f"nothing is written down for Python {counts.version()}: python -m bench.counts --write")
    wanted = {"produce-record", "fetch-parked", "fetch-megabyte"}
    more = grown(known, counts.measure(only=wanted, acls=1000))
    if more:
        more = grown(known, counts.measure(only=more, acls=1000))
    assert not more, f"{more}, with 1,000 ACLs"


@pytest.mark.timeout(400)
def test_requests_that_are_watched_cost_four_percent_more_at_most() -> None:
    known = counts.written()
    if known is None:
        pytest.skip(f"nothing is written down for Python {counts.version()}: python -m bench.counts --write")
    wanted = {"produce-record", "fetch-parked", "offset-commit", "heartbeat-classic"}
    more = grown(known, counts.measure(only=wanted, metrics=True), counts.WATCHED)
    if more:
        more = grown(known, counts.measure(only=more, metrics=True), counts.WATCHED)
    assert not more, f"{more}, with a metrics listener"


def test_growth_is_found_in_both_counts_and_in_what_is_new() -> None:
    known = {"a": Cost(1000, 3.0), "b": Cost(1000, 3.0), "c": Cost(1000, 3.0)}
    assert grown(known, known) == {}
    assert grown(known, {"a": Cost(1030, 3.0), "b": Cost(900, 2.0)}) == {}
    megabyte = {"fetch-megabyte": Cost(2000, 10.0)}
    allowed = [Cost(2100, 10.0), Cost(2000 + counts.PIECE, 11.0), Cost(2000 - counts.PIECE, 9.0), Cost(2000, 11.5)]
    refused = [Cost(2101, 10.0), Cost(2200, 11.0), Cost(2020, 9.0), Cost(2000, 11.8)]
    assert [grown(megabyte, {"fetch-megabyte": cost}) for cost in allowed] == [{}] * 4
    assert all(grown(megabyte, {"fetch-megabyte": cost}) for cost in refused)
    assert grown(known, {"a": Cost(1031, 3.0), "b": Cost(1000, 3.4), "d": Cost(1, 1.0)}).keys() == {"a", "b", "d"}
