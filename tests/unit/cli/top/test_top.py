"""`barnabas top`: what two looks at brokers become, and what a terminal is given of hostile names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from barnabas.cli.top import command, reading
from barnabas.cli.top.figures import compare
from barnabas.cli.top.reading import Snapshot, parse, printable
from barnabas.cli.top.screen import lines
from barnabas.clients.scraping import MetricsAccess

if TYPE_CHECKING:
    import pytest

    from tests.unit.cli.conftest import Run

PAGE = """# HELP x y
kafka_server_brokertopicmetrics_messagesin_total{{topic="orders"}} {messages}
kafka_server_brokertopicmetrics_messagesin_total {messages}
kafka_server_brokertopicmetrics_bytesin_total{{topic="orders"}} {size}
kafka_server_brokertopicmetrics_bytesin_total {size}
kafka_consumergroup_lag_sum{{consumergroup="a\\"b\\n\\\\",topic="orders"}} {lag}
kafka_controller_kafkacontroller_activecontrollercount 1
kafka_server_replicamanager_underreplicatedpartitions 2
kafka_network_requestmetrics_totaltimems{{request="Produce",quantile="0.99"}} 1.5
kafka_network_socketserver_networkprocessoravgidle_percent 0.75
nonsense {{ 1
kafka_brokers many
"""


def look(at: float, messages: int, lag: int, target: str = "localhost:9404") -> Snapshot:
    slow = [{"at_ms": 1, "kind": "Produce", "client_id": "\x1b[31mred", "seconds": 2.0, "in_loop": 0.5}]
    return Snapshot(target, at, parse(PAGE.format(messages=messages, size=100 * messages, lag=lag)), slow)


def test_rates_lag_and_problems_of_two_looks() -> None:
    figures = compare([look(10.0, 100, 50)], [look(12.0, 300, 70)])
    (broker,) = figures.brokers
    assert (broker.messages, broker.bytes_in, broker.produce_p99_ms, broker.idle) == (100.0, 10_000.0, 1.5, 0.75)
    assert figures.topics[0][:3] == ("orders", 100.0, 10_000.0)
    assert figures.lags[0][2:] == (70, 10.0)
    assert figures.problems == ("2 partitions have replicas that are not in sync.",)
    assert figures.slow[0].ms == 2000.0


def test_a_counter_that_began_anew_counts_from_zero() -> None:
    (broker,) = compare([look(10.0, 1000, 0)], [look(12.0, 20, 0)]).brokers
    assert broker.messages == 10.0


def test_a_terminal_is_given_nothing_to_act_on() -> None:
    text = "\n".join(lines(compare([look(0.0, 0, 1)], [look(1.0, 0, 1)])))
    assert "\x1b" not in text
    assert 'a"b\ufffd\\' in text
    assert printable("x" * 100).endswith("…")


def test_a_broker_that_does_not_answer_is_a_problem() -> None:
    silent = Snapshot("localhost:1", 0.0, failure="connection refused")
    figures = compare([silent], [silent])
    assert figures.problems == ("localhost:1 does not answer: connection refused.",)
    assert reading.read("127.0.0.1:1", MetricsAccess()).failure is not None


def test_once_as_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def read_all(targets: list[str], token: str | None) -> list[Snapshot]:
        asked.append(targets)
        return [look(2.0 * len(asked), 100 * len(asked), 5, target) for target in targets]

    monkeypatch.setattr(reading, "read_all", read_all)
    monkeypatch.setattr(command.time, "sleep", lambda _: None)  # type: ignore[attr-defined]
    result = run("top", "--metrics", "9404,9405", "--metrics", "other:1", "--once", "--json")
    assert result.exit_code == 0
    assert asked[0] == ["localhost:9404", "localhost:9405", "other:1"]
    assert [row["messages"] for row in json.loads(result.stdout)["brokers"]] == [50.0, 50.0, 50.0]


def test_nobody_answers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.time, "sleep", lambda _: None)  # type: ignore[attr-defined]
    result = run("top", "--metrics", "127.0.0.1:1", "--once")
    assert result.exit_code == 1
    assert "does not answer" in result.stdout
