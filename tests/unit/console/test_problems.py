"""What is wrong with a cluster, worst first."""

from __future__ import annotations

import json
from typing import Any

from barnabas.clients.admin.log_dirs import LogDir
from barnabas.console.cluster.group_lags import GroupState, GroupStates
from barnabas.console.cluster.metrics import Totals, metrics_address, read_cleaner, read_totals
from barnabas.console.cluster.pipelines import parse_report
from barnabas.console.cluster.problems import Observations, find_problems
from barnabas.console.cluster.snapshot import BrokerSnapshot, ClusterSnapshot, Disks, PartitionSnapshot, TopicSnapshot
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition


def snapshot(*partitions: PartitionSnapshot, **changes: Any) -> ClusterSnapshot:
    brokers = {number: BrokerSnapshot(number, "host", 9092 + number, None, True) for number in range(3)}
    given: dict[str, Any] = {"controller": 0, "brokers": brokers, "silent": {}, **changes}
    return ClusterSnapshot(
        at=0.0, cluster_id="c", topics={"t": TopicSnapshot("t", "id", False, partitions)}, ends={}, **given
    )


def partition(number: int, leader: int | None, isr: tuple[int, ...]) -> PartitionSnapshot:
    return PartitionSnapshot(number, leader, 0, (0, 1, 2), isr)


def found(observed: Observations) -> list[tuple[str, str]]:
    return [(problem.level, problem.title) for problem in find_problems(observed)]


def test_a_healthy_cluster_has_no_problems() -> None:
    assert not find_problems(Observations(snapshot=snapshot(partition(0, 0, (0, 1, 2)))))


def test_what_nobody_can_use_comes_before_what_is_at_risk_and_causes_before_both() -> None:
    """That partitions are under-replicated stood above the broker that was down."""
    seen = snapshot(partition(0, None, ()), partition(1, 0, (0,)), partition(2, 0, (0, 1)), silent={1: "it is late"})
    assert found(Observations(snapshot=seen, least_isr={"t": 2}, moving=1)) == [
        ("error", "Broker 1 does not answer"),
        ("error", "1 partition without a leader"),
        ("error", "1 partition below min.insync.replicas"),
        ("warning", "1 partition under-replicated"),
        ("note", "1 partition is being reassigned"),
    ]
    behind = snapshot(partition(0, 0, (0, 1)), silent={2: "it is late"})
    assert found(Observations(snapshot=behind)) == [
        ("warning", "Broker 2 does not answer"),
        ("warning", "1 partition under-replicated"),
    ]


def test_what_starts_a_broker_again_is_said_where_it_is_known() -> None:
    brokers = {number: BrokerSnapshot(number, "host-a", 9092 + number, None, False) for number in (1, 2)}
    seen = Observations(
        snapshot=snapshot(brokers=brokers), start_again={1: "barnabas restart --brokers 2 --data '/a b'"}
    )
    one, other = find_problems(seen)
    assert one.command == "barnabas restart --brokers 2 --data '/a b'"
    assert "Start it again by the command below" in one.to_do
    assert other.command == "barnabas cluster unregister --id 2"
    assert "Start it again on host-a" in other.to_do


def test_brokers_directories_and_groups_in_trouble_are_named() -> None:
    brokers = {0: BrokerSnapshot(0, "h", 1, None, True), 1: BrokerSnapshot(1, "h", 2, None, False)}
    broken = LogDir(path="/a", error=ErrorCode.kafka_storage_error, total_bytes=100, usable_bytes=50, replicas=())
    full = LogDir(path="/b", error=ErrorCode.none, total_bytes=100, usable_bytes=5, replicas=())
    group = GroupState("g", "Classic", "Empty", {}, {TopicPartition("t", 0): 5000})
    observed = Observations(
        snapshot=snapshot(controller=None, brokers=brokers),
        disks=Disks(0.0, {0: [broken, full]}, {}),
        groups=GroupStates(0.0, {"g": group}),
        growing={"g": 4000, "unseen": 1},
    )
    assert found(observed) == [
        ("error", "No controller"),
        ("error", "A log directory of broker 0 is offline"),
        ("warning", "Broker 1 is down"),
        ("warning", "A disk of broker 0 is filling up"),
        ("warning", "The lag of group g grows"),
    ]


def test_bytes_are_read_from_metrics_without_counting_twice() -> None:
    text = """# HELP x
kafka_server_brokertopicmetrics_bytesin_total 100.0
kafka_server_brokertopicmetrics_bytesin_total{topic="a"} 60
kafka_server_brokertopicmetrics_bytesin_total{topic="b"} 40
kafka_server_brokertopicmetrics_bytesout_total{topic=""} 1.5e3
"""
    assert read_totals(text, 1.0) == Totals(1.0, 100.0, 1500.0)
    assert read_totals('kafka_server_brokertopicmetrics_bytesin_total{topic="a"} 60\n', 1.0) == Totals(1.0, 60.0, 0.0)
    assert read_totals("something_else 1\n", 1.0) is None


def test_metrics_are_looked_for_where_a_broker_says() -> None:
    assert metrics_address("9404", "localhost") == "http://localhost:9404/metrics"
    assert metrics_address("9404", "broker1") is None, "it is on the loopback of another machine"
    assert metrics_address("0.0.0.0:9404", "broker1") == "http://broker1:9404/metrics"
    assert metrics_address("inside:9404", "broker1") == "http://inside:9404/metrics"
    assert metrics_address("0.0.0.0:9404", "broker1", "https") == "https://broker1:9404/metrics"
    assert metrics_address("0", "localhost") is metrics_address("nonsense", "localhost") is None


def test_only_what_is_a_report_is_taken_for_one() -> None:
    assert parse_report(b'{"query": "q", "rows": 5, "topics": ["a", 7], "sink": 3, "evil": "x"}') == {
        "query": "q",
        "rows": 5,
        "topics": ["a"],
    }
    for junk in (None, b"", b"[]", b"[" * 100_000, b'{"query": 1}', b"\xff", b'{"query": "' + b"x" * 100_000 + b'"}'):
        assert parse_report(junk) is None


def test_places_of_dead_letters_are_taken_only_if_they_are_some() -> None:
    places = [["t", 0, 5], ["t", -1, 5], ["t", 0], [5, 0, 5], "t", None, *(["u", 1, n] for n in range(100))]
    report = parse_report(json.dumps({"query": "q", "letters": places}).encode())
    assert report is not None
    assert report["letters"][:2] == [["t", 0, 5], ["u", 1, 0]]
    assert len(report["letters"]) <= 20
    assert parse_report(b'{"query": "q", "letters": "none"}') == {"query": "q"}


def test_what_a_cleaner_has_done_is_read_of_its_series() -> None:
    text = (
        "# TYPE barnabas_cleaner_cleanings_total counter\n"
        "barnabas_cleaner_cleanings_total 3\n"
        'kafka_log_logcleanermanager_uncleanable_partitions_count{logDirectory="/a"} 1\n'
        'kafka_log_logcleanermanager_uncleanable_partitions_count{logDirectory="/b}"} 9\n'
        'kafka_log_logcleanermanager_uncleanable_partitions_count{logDirectory="/c"} 2\n'
        "kafka_log_logcleanermanager_time_since_last_run_ms -1\n"
        "barnabas_cleaner_seconds_total 1e-3\n"
        "barnabas_cleaner_other 5\n"
    )
    found = read_cleaner(text)
    assert found["cleanings"] == 3
    assert found["since_ms"] == -1
    assert found["seconds"] == 0.001
    assert found["uncleanable"] == 12
