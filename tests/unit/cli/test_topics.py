from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from tests.unit.cli.conftest import FakeAdmin, Run


class TestCreate:
    def test_prints_what_kafka_topics_prints(self, run: Run, cluster: FakeAdmin) -> None:
        result = run("topics", "--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=5")
        assert (result.exit_code, result.stdout) == (0, "Created topic orders.\n")
        assert len(cluster.cluster["orders"].partitions) == 3
        assert cluster.configs["orders"] == {"retention.ms": "5"}

    def test_values_may_hold_equals_signs_and_blanks_around_them(self, run: Run, cluster: FakeAdmin) -> None:
        run("topics", "--create", "--topic", "t", "--config", "a = b=c ", "--config", "d=")
        assert cluster.configs["t"] == {"a": "b=c", "d": ""}

    def test_takes_an_assignment(self, run: Run, cluster: FakeAdmin) -> None:
        assert run("topics", "--create", "--topic", "t", "--replica-assignment", "0:1,1:2").exit_code == 0
        assert [partition.replicas for partition in cluster.cluster["t"].partitions] == [(0, 1), (1, 2)]

    def test_an_existing_topic_is_an_error_of_one_line(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("t")
        result = run("topics", "--create", "--topic", "t")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "Error: Topic 't' already exists.\n"

    def test_an_existing_topic_is_fine_if_not_exists_was_said(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("t")
        result = run("topics", "--create", "--topic", "t", "--if-not-exists")
        assert (result.exit_code, result.output) == (0, "")

    def test_brokers_that_will_not_make_so_many_at_once(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("t", partitions=2)
        for line in ("--create --topic new --partitions 10001", "--alter --topic t --partitions 10003"):
            result = run("topics", *line.split())
            assert result.exit_code == 1
            assert result.stderr == (
                "Error: Excessively large number of partitions per request. Brokers make at most 10000 at once: begin "
                "with fewer, and add more with --alter.\n"
            )
        assert run("topics", "--alter", "--topic", "t", "--partitions", "10002").exit_code == 0

    def test_warns_of_names_that_collide_in_metrics(self, run: Run, cluster: FakeAdmin) -> None:
        result = run("topics", "--create", "--topic", "a.b")
        assert result.stdout == "Created topic a.b.\n"
        assert result.stderr.startswith("WARNING: Due to limitations in metric names")

    def test_json(self, run: Run, cluster: FakeAdmin) -> None:
        assert json.loads(run("topics", "--create", "--topic", "t", "--json").stdout) == {"created": ["t"]}


class TestList:
    def test_one_name_per_line_sorted(self, run: Run, cluster: FakeAdmin) -> None:
        for name in ("b", "a", "__consumer_offsets"):
            cluster.add(name)
        assert run("topics", "--list").stdout == "__consumer_offsets\na\nb\n"
        assert run("topics", "--list", "--exclude-internal").stdout == "a\nb\n"
        assert json.loads(run("topics", "--list", "--json").stdout) == ["__consumer_offsets", "a", "b"]

    def test_the_topic_is_an_expression_for_the_whole_name(self, run: Run, cluster: FakeAdmin) -> None:
        for name in ("cat", "cats", "concat", "dog"):
            cluster.add(name)
        assert run("topics", "--list", "--topic", "cat").stdout == "cat\n"
        assert run("topics", "--list", "--topic", "cat.*").stdout == "cat\ncats\n"
        assert run("topics", "--list", "--topic", "'cat, dog'").stdout == "cat\ndog\n"

    def test_a_bad_expression_is_named(self, run: Run, cluster: FakeAdmin) -> None:
        result = run("topics", "--list", "--topic", "(")
        assert result.exit_code == 2
        assert "--topic ( is not a regular expression" in result.stderr

    @pytest.mark.usefixtures("terminal")
    def test_a_person_gets_a_table(self, run: Run, cluster: FakeAdmin) -> None:
        assert run("topics", "--list").stderr == "No topics.\n"
        cluster.add("orders", 12)
        lines = [line.split() for line in run("topics", "--list").stdout.splitlines()]
        assert ["Topic", "Partitions", "Replicas"] in lines
        assert ["orders", "12", "1"] in lines


class TestDescribe:
    def test_prints_the_lines_of_kafka_topics(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("orders", 2, retention_ms="5", cleanup_policy="compact,delete")
        assert run("topics", "--describe").stdout == (
            "Topic: orders\tTopicId: id-of-orders\tPartitionCount: 2\tReplicationFactor: 1"
            "\tConfigs: retention.ms=5,cleanup.policy=compact,delete\n"
            "\tTopic: orders\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: \tLastKnownElr: \n"
            "\tTopic: orders\tPartition: 1\tLeader: 0\tReplicas: 0\tIsr: 0\tElr: \tLastKnownElr: \n"
        )

    def test_a_missing_topic_is_an_error_unless_if_exists_was_said(self, run: Run, cluster: FakeAdmin) -> None:
        result = run("topics", "--describe", "--topic", "nix")
        assert result.exit_code == 1
        assert result.stderr.startswith("Error: Topic 'nix' does not exist as expected.")
        assert run("topics", "--describe", "--topic", "nix", "--if-exists").exit_code == 0

    def test_by_id(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("a")
        cluster.add("b")
        described = json.loads(run("topics", "--describe", "--topic-id", "id-of-b", "--json").stdout)
        assert [topic["topic"] for topic in described] == ["b"]
        missing = run("topics", "--describe", "--topic-id", "id-of-c")
        assert (missing.exit_code, missing.stderr) == (1, "Error: TopicId 'id-of-c' does not exist as expected\n")

    def test_only_topics_with_overrides(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("plain")
        cluster.add("tuned", retention_ms="1")
        assert run("topics", "--describe", "--topics-with-overrides").stdout == (
            "Topic: tuned\tTopicId: id-of-tuned\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: retention.ms=1\n"
        )

    @pytest.mark.parametrize(
        ("report", "partitions"),
        [
            ("--under-replicated-partitions", [1, 2]),
            ("--unavailable-partitions", [2]),
            ("--under-min-isr-partitions", [1, 2]),
            ("--at-min-isr-partitions", [0]),
        ],
    )
    def test_reports(self, run: Run, cluster: FakeAdmin, report: str, partitions: list[int]) -> None:
        cluster.add("t", 3, min_insync_replicas="2")
        cluster.brokers = frozenset({0, 1})
        cluster.change("t", 0, leader=0, replicas=[0, 1], isr=[0, 1])
        cluster.change("t", 1, leader=0, replicas=[0, 1], isr=[0])
        cluster.change("t", 2, leader=None, replicas=[0, 1], isr=[])
        lines = run("topics", "--describe", report).stdout.splitlines()
        assert [int(line.split("\t")[2].removeprefix("Partition: ")) for line in lines] == partitions

    def test_a_partition_without_leader(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("t")
        cluster.change("t", 0, leader=None, replicas=[3, 4], isr=[4])
        assert "\tLeader: none\tReplicas: 3,4\tIsr: 4\t" in run("topics", "--describe").stdout

    @pytest.mark.usefixtures("terminal")
    def test_a_person_gets_a_table(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("orders", 2, retention_ms="5")
        shown = run("topics", "--describe").stdout
        assert "orders" in shown
        assert "retention.ms=5" in shown
        assert ["1", "0", "0", "0"] in [line.split() for line in shown.splitlines()]


class TestAlter:
    def test_grows_and_sets_and_unsets(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("t", 1, retention_ms="5")
        words = ("--partitions", "3", "--config", "segment.ms=9", "--delete-config", "retention.ms")
        result = run("topics", "--alter", "--topic", "t", *words)
        assert (result.exit_code, result.output) == (0, "")
        assert len(cluster.cluster["t"].partitions) == 3
        assert cluster.configs["t"] == {"segment.ms": "9"}

    def test_an_assignment_speaks_of_all_partitions_and_holds_for_new_ones(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("t", 1)
        run("topics", "--alter", "--topic", "t", "--partitions", "3", "--replica-assignment", "0,1,2")
        assert [partition.replicas for partition in cluster.cluster["t"].partitions] == [(0,), (1,), (2,)]


class TestDelete:
    def test_deletes_what_matches(self, run: Run, cluster: FakeAdmin) -> None:
        for name in ("a1", "a2", "b"):
            cluster.add(name)
        assert json.loads(run("topics", "--delete", "--topic", "a.", "--json").stdout) == {"deleted": ["a1", "a2"]}
        assert cluster.topic_names() == ["b"]

    def test_a_missing_topic_is_an_error_unless_if_exists_was_said(self, run: Run, cluster: FakeAdmin) -> None:
        assert run("topics", "--delete", "--topic", "nix").exit_code == 1
        assert run("topics", "--delete", "--topic", "nix", "--if-exists").exit_code == 0

    @pytest.mark.usefixtures("terminal")
    def test_a_person_is_told(self, run: Run, cluster: FakeAdmin) -> None:
        cluster.add("t")
        assert run("topics", "--delete", "--topic", "t").stdout == "Deleted topic t.\n"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "Give exactly one action"),
        ("--list --create --topic t", "Give exactly one action"),
        ("--create", "--create needs --topic."),
        ("--delete", "--delete needs --topic."),
        (
            "--create --topic t --if-exists",
            "--if-exists goes with --alter, --delete or --describe, not with --create.",
        ),
        ("--list --if-not-exists", "--if-not-exists goes with --create, not with --list."),
        ("--delete --topic t --partitions 3", "--partitions goes with --create or --alter, not with --delete."),
        ("--alter --topic t --partitions 3 --replication-factor 2", "--replication-factor goes with --create"),
        ("--describe --config a=b", "--config goes with --create or --alter"),
        ("--create --topic t --delete-config a", "--delete-config goes with --alter"),
        ("--list --under-replicated-partitions", "--under-replicated-partitions goes with --describe"),
        ("--describe --topics-with-overrides --unavailable-partitions", "does not go with a report"),
        ("--describe --if-exists", "--if-exists needs --topic or --topic-id."),
        ("--alter --topic t", "--alter needs --partitions, --config or --delete-config."),
        ("--alter --topic t --config a=b --replica-assignment 0", "needs --partitions"),
        ("--create --topic t --replica-assignment 0 --partitions 1", "leave out --partitions"),
        ("--create --topic t --partitions 0", "0 is not from 1 to 100000"),
        ("--create --topic t --config retention.ms", "not of the form KEY=VALUE"),
        ("--create --topic t --replica-assignment 0:x", "broker ids are numbers"),
        ("--create --topic t --replica-assignment 0:0", "partition 0 names a broker twice"),
        ("--create --topic t --replica-assignment 0:1,2", "partition 1 has 1 replicas, partition 0 has 2"),
    ],
)
@pytest.mark.usefixtures("cluster")
def test_command_lines_that_mean_nothing_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run("topics", *line.split())
    assert result.exit_code == 2
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("typed", "hint"), [("retention.m", ". Did you mean retention.ms?"), ("colour", "")], ids=["near", "far"]
)
def test_a_setting_that_is_not_there_may_be_near_to_one(
    run: Run, cluster: FakeAdmin, monkeypatch: pytest.MonkeyPatch, typed: str, hint: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RequestRefused(ErrorCode.invalid_config, f"Unknown topic config name: {typed}")

    monkeypatch.setattr(cluster, "create_topic", refuse)
    result = run("topics", "--create", "--topic", "t", "--config", f"{typed}=1")
    assert (result.exit_code, result.stderr) == (1, f"Error: Unknown topic config name: {typed}{hint}\n")


@pytest.mark.parametrize("action", ["--create", "--alter", "--delete"])
def test_an_empty_name_does_not_mean_all_topics(run: Run, cluster: FakeAdmin, action: str) -> None:
    cluster.add("orders")
    result = run("topics", action, "--topic", "")
    assert (result.exit_code, cluster.topic_names()) == (2, ["orders"])
    assert f"{action} needs --topic." in result.stderr
