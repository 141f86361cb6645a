"""What `barnabas broker-api-versions`, `log-dirs` and `features` work out by themselves; the rest needs a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.cli import features, log_dirs
from barnabas.cli.broker_api_versions.client_apis import usable
from barnabas.cli.broker_api_versions.command import print_lines
from barnabas.cli.common.values.sizes import size_text
from barnabas.clients.admin.brokers import RegisteredBroker
from barnabas.clients.admin.log_dirs import LogDir, ReplicaInfo
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.mark.parametrize(
    ("span", "version"), [((0, 13), 13), ((4, 20), 13), ((0, 5), 5), ((0, 2), None), ((14, 15), None)]
)
def test_the_newest_version_that_both_know(span: tuple[int, int], version: int | None) -> None:
    assert usable(0, span) == version


def test_brokers_that_are_too_old_too_new_or_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(RegisteredBroker(3, "h", 9092, "r1"), {0: (0, 2), 1: (19, 20), 999: (0, 0)})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "h:9092 (id: 3 rack: r1 isFenced: false) -> ("
    assert lines[1] == "\tProduce(0): 0 to 2 [unusable: node too old],"
    assert lines[2] == "\tFetch(1): 19 to 20 [unusable: node too new],"
    assert lines[3] == "\tListOffsets(2): UNSUPPORTED,"
    assert lines[-2:] == ["\tUNKNOWN(999): 0", ")"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (3 << 30, "3.0 GB"), (5 << 40, "5.0 TB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


def test_levels_have_the_names_that_kafka_gives_them() -> None:
    assert features.level_text("metadata.version", 7) == "3.3-IV3"
    assert features.level_text("metadata.version", 30) == "4.3-IV0"
    assert features.level_text("metadata.version", 99) == "UNKNOWN 99"
    assert features.level_text("group.version", 7) == "7"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("features upgrade", "Missing option '--feature'"),
        ("features upgrade --feature group.version", "--feature group.version is not of the form NAME=LEVEL."),
        ("features upgrade --feature a=1 --feature a=2", "--feature a is given twice."),
        ("features upgrade --feature group.version=99999", "--feature group.version=99999: a level is at most 32767."),
        ("log-dirs", "Missing option '--describe'"),
        ("log-dirs --describe --broker-list one", "--broker-list one is not a list of numbers."),
    ],
)
def test_command_lines_that_mean_nothing_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run(*line.split())
    assert result.exit_code == 2
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("features describe --node-id 3000000000", "'--node-id': 3000000000 is not from"),
        ("transactions describe-producers --topic t --partition 3000000000", "'--partition': 3000000000 is not from"),
        ("transactions find-hanging --topic t --partition 3000000000", "'--partition': 3000000000 is not from"),
        ("transactions abort --topic t --partition 0 --producer-epoch 99999", "'--producer-epoch': 99999 is not from"),
        ("transactions abort --topic t --partition 0 --start-offset 99999999999999999999", "'--start-offset': 9999"),
        ("transactions abort --topic t --partition 0 --coordinator-epoch 3000000000", "'--coordinator-epoch': 3000"),
        ("leader-election --topic t --partition 3000000000", "'--partition': 3000000000 is not from"),
        (
            "topics --create --topic t --partitions 999999999",
            "'--partitions': 999999999 is not from 1 to",
        ),
        ("topics --create --topic t --replication-factor 99999", "'--replication-factor': 99999 is not from"),
        ("reassign-partitions --list --timeout 99999999999", "'--timeout': 99999999999 is not from"),
        ("groups --list --timeout 99999999999999", "'--timeout': 99999999999999 is not from"),
        ("groups --reset-offsets --to-offset 99999999999999999999", "'--to-offset': 99999999999999999999 is not from"),
        ("consume --topic t --timeout-ms 99999999999999999999", "'--timeout-ms': 99999999999999999999 is not from"),
        ("latency --topic t --num-records 3000000000", "'--num-records': 3000000000 is not from"),
        ("consume --topic t --partition 3000000000", "'--partition': 3000000000 is not from"),
        ("consume --topic t --partition 0 --offset 99999999999999999999", "an offset is at most 9223372036854775807."),
    ],
)
def test_numbers_that_the_protocol_has_no_room_for_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run(*line.split())
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())


def test_the_help_does_not_speak_of_the_protocols_ranges(run: Run) -> None:
    help_text = run("transactions", "abort", "--help").stdout
    assert "--producer-epoch N" in help_text
    assert "32767" not in help_text


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 partitions, 0 B"), (1, "1 partition, 5 B"), (2, "2 partitions, 10 B")]
)
def test_how_many_partitions_a_directory_has(capsys: pytest.CaptureFixture[str], count: int, told: str) -> None:
    replicas = tuple(
        ReplicaInfo(partition=TopicPartition("t", number), size=5, offset_lag=0, is_future=False)
        for number in range(count)
    )
    found = LogDir(path="/data", error=ErrorCode.none, total_bytes=None, usable_bytes=None, replicas=replicas)
    log_dirs.print_tables({1: [found]}, frozenset())
    assert capsys.readouterr().out.startswith(f"broker 1  /data\n{told}\n")
