"""Metrics of a real cluster, read by a real Prometheus: public dashboards, our own, alerts, and figures that add up."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from barnabas import Producer
from barnabas.testing.broker import Broker
from barnabas.testing.cluster import Cluster
from tests.support import dashboard_queries
from tests.support.documented_series import DocumentedSeries, documented_series
from tests.support.prometheus import Prometheus, promtool
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTRIB = Path(__file__).parents[2] / "contrib"
ALERTS = CONTRIB / "prometheus" / "alerts.yml"
DASHBOARD = CONTRIB / "grafana" / "barnabas.json"
HOSTILE = 'gr"oup\\with} 1\n# EOF\u2028{'
MESSAGES = 300
READ = 120
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def url(broker: Broker, path: str = "/metrics") -> str:
    found = re.findall(r"Metrics are at (http://\S+)/metrics", broker.log())
    return f"{found[-1]}{path}"


def scrape(broker: Broker, accept: str = "text/plain") -> str:
    request = urllib.request.Request(url(broker), headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def samples(broker: Broker) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in parse_prometheus(scrape(broker))
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster({"metrics.listener": "127.0.0.1:0", "auto.leader.rebalance.enable": "false"}) as found:
        admin = AdminClient({"bootstrap.servers": found.bootstrap_servers})
        for future in admin.create_topics([NewTopic("orders", 6, 3)]).values():
            future.result(60)
        with Producer(found.bootstrap_servers) as producer:
            for number in range(MESSAGES):
                producer.send("orders", str(number), partition=number % 6)
        for group in ("readers", HOSTILE):
            commit(found, group, READ // 6)
        yield found


def commit(cluster: Cluster | Broker, group: str, offset: int) -> None:
    """Commit an offset in every partition, by a group that has no members."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    offsets = [TopicPartition("orders", each, offset) for each in range(6)]

    def try_to_commit() -> bool | None:
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:  # the coordinator is still being loaded
            return None
        return True

    try:
        wait_until(try_to_commit, "offsets to be committed")
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    targets = {
        url(broker, "").removeprefix("http://"): {
            **dashboard_queries.TARGET_LABELS,
            "kubernetes_pod_name": dashboard_queries.POD.format(number),
        }
        for number, broker in enumerate(cluster.brokers)
    }
    with Prometheus(tmp_path_factory.mktemp("prometheus"), targets, [ALERTS]) as found:
        wait_until(
            lambda: found.query('count(count_over_time(up{job="barnabas"}[1m]) >= 3) == 3') or None,
            "three scrapes of each broker",
            every=0.1,
        )
        yield found


@pytest.mark.parametrize("query", dashboard_queries.ALL)
def test_public_dashboards_find_their_series(prometheus: Prometheus, query: str) -> None:
    assert prometheus.query(query), query


def test_our_dashboard_finds_its_series(prometheus: Prometheus) -> None:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 20
    variables = {"$job": "barnabas", "$instance": ".+", "$__rate_interval": "1m"}
    empty = []
    for expression in expressions:
        for name, value in variables.items():
            expression = expression.replace(name, value)
        if not prometheus.query(expression) and "sharegroup" not in expression:  # there is no queue
            empty.append(expression)
    assert empty == []


def test_figures_add_up_over_all_brokers(prometheus: Prometheus) -> None:
    beans = "kafka_server_brokertopicmetrics_"
    for expression, value in {
        f'sum({beans}messagesin_total{{topic="orders"}})': MESSAGES,
        'sum(kafka_topic_partition_current_offset{topic="orders"})': MESSAGES,
        'kafka_topic_partitions{topic="orders"}': 6,
        'count(kafka_log_log_size{topic="orders"})': 18,
        'sum(kafka_cluster_partition_insyncreplicascount{topic="orders"})': 18,
        "sum(kafka_controller_kafkacontroller_activecontrollercount)": 1,
        "kafka_brokers": 3,
        "count(kafka_broker_info)": 3,
        'sum(kafka_consumergroup_lag{consumergroup="readers"})': MESSAGES - READ,
        'kafka_consumergroup_lag_sum{consumergroup="readers"}': MESSAGES - READ,
        'sum(kafka_consumergroup_current_offset{consumergroup="readers"})': READ,
        "count(kafka_consumergroup_lag_sum)": 2,
        "count(kafka_consumergroup_lag < 0) or vector(0)": 0,
        "sum(barnabas_metrics_failed_sources)": 0,
    }.items():
        prometheus.wait_for(expression, value)


def test_a_commit_beyond_the_end_is_no_negative_lag(cluster: Cluster, prometheus: Prometheus) -> None:
    commit(cluster, "ahead", MESSAGES)
    prometheus.wait_for('kafka_consumergroup_lag_sum{consumergroup="ahead"}', 0)


def test_pages_are_what_both_formats_want_whatever_groups_are_called(cluster: Cluster) -> None:
    seen = set()
    for broker in cluster.brokers:
        promtool("check", "metrics", stdin=scrape(broker))
        for family in parse_openmetrics(scrape(broker, OPENMETRICS)):
            seen |= {sample.labels["consumergroup"] for sample in family.samples if "consumergroup" in sample.labels}
    assert {"readers", HOSTILE} <= seen


def test_our_own_series_are_as_the_manual_says(cluster: Cluster) -> None:
    documented, seen = documented_series(), set()
    for broker in cluster.brokers:
        for family in parse_prometheus(scrape(broker)):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            if name.startswith("barnabas_"):
                labels = frozenset(label for sample in family.samples for label in sample.labels)
                assert DocumentedSeries(family.type, labels) == documented[name], name
                seen.add(name)
    assert len(seen) > 30


def test_the_alerts_do_what_they_say() -> None:
    promtool("check", "rules", ALERTS)
    promtool("check", "config", CONTRIB / "prometheus" / "prometheus.yml")
    promtool("test", "rules", Path(__file__).with_name("alert_cases.yml"))


def test_every_alert_was_seen_to_fire() -> None:
    cases = Path(__file__).with_name("alert_cases.yml").read_text()
    fired = set(re.findall(r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:", cases))
    assert set(re.findall(r"- alert: (\w+)", ALERTS.read_text())) == fired


def test_a_page_has_no_more_series_than_it_may_and_counts_the_rest() -> None:
    limits = {"metrics.listener": "127.0.0.1:0", "metrics.max.partitions": 4, "metrics.max.groups": 2}
    with Broker({**limits, "offsets.topic.num.partitions": 1}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for future in admin.create_topics([NewTopic("orders", 6, 1)]).values():
            future.result(60)
        for number in range(5):
            commit(broker, f"group-{number}", 0)
        found = samples(broker)
    counted = Counter(name for name, _ in found)
    assert (counted["kafka_log_log_size"], counted["kafka_topic_partition_current_offset"]) == (4, 4)
    assert len({dict(labels)["consumergroup"] for name, labels in found if name == "kafka_consumergroup_lag"}) == 2
    alone: frozenset[tuple[str, str]] = frozenset()
    assert found["barnabas_metrics_omitted_partitions", alone] == 3  # of seven, with that of offsets
    assert found["barnabas_metrics_omitted_groups", alone] == 3
    assert found["kafka_server_replicamanager_partitioncount", alone] == 7
    assert found["kafka_coordinator_group_groupmetadatamanager_numoffsets", alone] == 30


def test_brokers_are_ready_and_well(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        for path in ("/v1/ready", "/health"):
            with urllib.request.urlopen(url(broker, path), timeout=30) as answer:
                assert all(check["ok"] for check in json.load(answer)["checks"])
        with urllib.request.urlopen(url(broker, "/v1/broker-state"), timeout=30) as answer:
            assert json.load(answer)["brokerState"] == 3


def test_scrapes_go_on_while_topics_come_and_go(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    stop = threading.Event()
    failures: list[object] = []

    def keep_scraping(broker: Broker) -> None:
        while not stop.is_set():
            try:
                found = samples(broker)
                failed = [key for key, value in found.items() if key[0] == "barnabas_metrics_failed_sources" and value]
                failures.extend(failed)
            except Exception as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=keep_scraping, args=(broker,)) for broker in cluster.brokers]
    for thread in threads:
        thread.start()
    for turn in range(3):
        names = [f"passing-{turn}-{number}" for number in range(20)]
        for future in admin.create_topics([NewTopic(name, 2, 3) for name in names]).values():
            future.result(60)
        for future in admin.delete_topics(names).values():
            future.result(60)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert failures == []


def test_a_broker_that_dies_is_seen(cluster: Cluster, prometheus: Prometheus) -> None:
    cluster.brokers[2].kill()
    prometheus.wait_for('sum(kafka_topic_partition_under_replicated_partition{topic="orders"})', 6)
    prometheus.wait_for('sum(kafka_topic_partition_current_offset{topic="orders"})', MESSAGES)
    prometheus.wait_for("sum(kafka_controller_kafkacontroller_activecontrollercount)", 1)
