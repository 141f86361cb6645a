"""Command lines of the performance tools that mean nothing, or lead nowhere."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run

PRODUCE = "producer-perf --topic t --num-records 10 --throughput -1"
CONSUME = "consumer-perf --topic t --num-records 10"
LATENCY = "latency --topic t --num-records 10"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("producer-perf --num-records 1 --throughput -1 --record-size 1", "Say which topic: --topic TOPIC."),
        ("producer-perf --topic t --throughput -1 --record-size 1", "Missing option '--num-records'"),
        ("producer-perf --topic t --num-records 1 --record-size 1", "Missing option '--throughput'"),
        (PRODUCE, "Give one of --record-size, --payload-file and --payload-monotonic."),
        (f"{PRODUCE} --record-size 1 --payload-monotonic", "Give one of --record-size"),
        (f"{PRODUCE} --record-size 0", "0 is not from"),
        (f"{PRODUCE} --record-size 1 --warmup-records 10", "leaves nothing of --num-records 10"),
        (f"{PRODUCE} --record-size 1 --command-property acks", "--command-property acks is not of the form NAME=VALUE"),
        (f"{PRODUCE} --record-size 1 acks=1", "A property goes behind --command-property."),
        (f"{PRODUCE} --record-size 1 --producer-props acks=1 --command-property acks=1", "not both"),
        (f"{CONSUME} --include x", "Give one of --topic and --include."),
        ("consumer-perf --num-records 1", "Give one of --topic and --include."),
        ("consumer-perf --topic t", "Say how many records to read: --num-records N."),
        ("consumer-perf --num-records 1 --include (", "--include ( is not a pattern for topics"),
        (f"{CONSUME} --messages 10", "Give --num-records or --messages, not both."),
        (f"{CONSUME} --date-format Q", "the letter Q is not known here"),
        (f"{PRODUCE} --record-size 1 --processes 0", "0 is not from"),
        (f"{PRODUCE} --record-size 1 --processes 11", "--processes 11 is more than --num-records 10."),
        (f"{PRODUCE} --record-size 1 --processes 2 --warmup-records 1", "--warmup-records is for one process"),
        (f"{PRODUCE} --record-size 1 --processes 2 --print-metrics", "--print-metrics is for one process"),
        (f"{CONSUME} --processes 11", "--processes 11 is more than --num-records 10."),
        (f"{CONSUME} --processes 2 --print-metrics", "--print-metrics is for one process"),
        ("share-consumer-perf --topic t", "Say how many messages to take: --num-records N."),
        ("share-consumer-perf --topic t --num-records 1 --group ''", "--group is empty"),
        ("latency --topic t", "Missing option '--num-records'"),
        (f"{LATENCY} --producer-acks 0", "'0' is not one of '1', 'all'"),
    ],
)
def test_wrong_usage(run: Run, line: str, complaint: str) -> None:
    result = run(*shlex.split(line))
    assert result.exit_code == 2
    assert complaint in result.stderr


@pytest.mark.parametrize("line", [f"{PRODUCE} --record-size 1", CONSUME, LATENCY])
def test_a_broker_that_is_not_there_is_found_at_once(run: Run, line: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    result = run(*shlex.split(line), "--bootstrap-server", address)
    assert result.exit_code == 1
    assert f"Error: no broker answers at {address} (connection refused)." in result.stderr


@pytest.mark.parametrize("line", [f"{PRODUCE} --record-size 1", CONSUME])
def test_properties_that_nobody_knows_are_named(run: Run, line: str) -> None:
    result = run(*shlex.split(line), "--command-property", "no.such.property=1")
    assert result.exit_code == 1
    assert 'No such configuration property: "no.such.property"' in result.stderr


def test_old_flags_warn(run: Run, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    file = tmp_path / "old.properties"
    file.write_text("")
    old = f"consumer-perf --topic t --messages 1 --broker-list {address} --consumer.config {file}"
    assert run(*shlex.split(old)).stderr.splitlines()[:3] == [
        "--messages is deprecated in Kafka: use --num-records.",
        "--broker-list is deprecated in Kafka: use --bootstrap-server.",
        "--consumer.config is deprecated in Kafka: use --command-config.",
    ]
    props = run(*shlex.split(f"{PRODUCE} --record-size 1 --producer-props bootstrap.servers={address} acks=1"))
    assert props.stderr.startswith("--producer-props is deprecated in Kafka: use --command-property.\n")
    assert f"no broker answers at {address}" in props.stderr
