from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from barnabas.cli.perf import stats
from barnabas.cli.perf.stats import MB, PERCENTILES, SEND_MS, CountedRecords, ProducerStats, SentStats, percentiles


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stats, "time", clock)
    return clock


@pytest.mark.parametrize("count", [1, 2, 3, 10, 999, 1000, 1001])
def test_percentiles_are_those_of_the_sorted_values(count: int) -> None:
    """As in Kafka's tool: the value at place `share * count` of all values, sorted."""
    values = [random.Random(count + number).randrange(50) for number in range(count)]
    expected = [sorted(values)[min(int(share * count), count - 1)] for share in PERCENTILES]
    assert percentiles(Counter(values), PERCENTILES) == expected


def test_percentiles_of_nothing() -> None:
    assert percentiles(Counter(), (0.5, 0.99)) == [0, 0]


def test_lines_while_it_runs(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    counted = ProducerStats(5000)
    counted.record(MB // 100 * 1000, [3] * 1000)
    counted.record(MB // 100, [10])
    clock.now += 4.9
    counted.report_if_due()
    assert capsys.readouterr().out == ""
    clock.now += 0.1
    counted.report_if_due()
    counted.report_if_due()
    assert capsys.readouterr().out == (
        "1001 records sent, 200.2 records/sec (2.00 MB/sec), 3.0 ms avg latency, 10.0 ms max latency.\n"
    )
    clock.now += 20
    counted.report_if_due()
    assert capsys.readouterr().out == "", "a line about nothing"


def test_the_last_line_is_about_everything(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    counted = ProducerStats(1000)
    for latency in range(1, 101):
        counted.record(100, [latency])
    clock.now += 2
    counted.report_if_due()
    capsys.readouterr()
    counted.print_total()
    assert capsys.readouterr().out == (
        "100 records sent, 50.000000 records/sec (0.00 MB/sec), 50.50 ms avg latency, 100.00 ms max latency, "
        "51 ms 50th, 96 ms 95th, 100 ms 99th, 100 ms 99.9th.\n"
    )


def test_the_steady_state_is_announced_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    whole, steady = ProducerStats(1000), ProducerStats(1000, steady=True)
    whole.quiet = True
    for _ in range(2):
        for counted in (whole, steady):
            counted.record(10, [1])
        clock.now += 1
        whole.report_if_due()
        steady.report_if_due()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "In steady state."
    assert [line.split(",")[0] for line in lines[1:]] == ["1 records sent", "1 records sent"]
    steady.print_total()
    assert re.match(r"2 steady state records sent, 1\.0+ records/sec ", capsys.readouterr().out)


def test_nothing_sent_is_no_error(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    ProducerStats(1000).print_total()
    assert capsys.readouterr().out.startswith("0 records sent, 0.000000 records/sec (0.00 MB/sec), 0.00 ms avg")


def test_what_processes_have_counted_adds_up_to_what_one_would_have(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    one, sum_of_two = ProducerStats(1000), ProducerStats(1000)
    sent: list[CountedRecords] = []
    for seed in (1, 2):
        part, chance = SentStats(sent.append), random.Random(seed)
        for _ in range(5):
            latencies = [chance.randrange(30) for _ in range(chance.randrange(1, 9))]
            part.record(10 * len(latencies), latencies)
            one.record(10 * len(latencies), latencies)
            part.report_if_due()
            clock.now += SEND_MS / 1000 / 2
        part.send_rest()
        part.send_rest()
    assert 2 < len(sent) < 10, "it is sent now and then, and nothing twice"
    for counted in sent:
        sum_of_two.record_counted(counted)
    assert sum_of_two.summary() == one.summary()
    part.failed += 1
    part.send_rest()
    sum_of_two.record_counted(sent[-1])
    assert (sum_of_two.failed, sum_of_two.summary()) == (1, one.summary())
    one.report_if_due()
    line = capsys.readouterr().out
    sum_of_two.report_if_due()
    assert capsys.readouterr().out == line != ""
