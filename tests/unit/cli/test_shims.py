from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas import __version__
from barnabas.cli.common.failures import Failed
from barnabas.cli.main import COMMANDS
from barnabas.cli.shims import running, servers
from barnabas.cli.shims.command import SAMPLES
from barnabas.cli.shims.run import words_for
from barnabas.cli.shims.scripts import ALL, CLASSES, SCRIPTS
from barnabas.cli.shims.translation import translate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


def test_every_script_and_class_leads_to_a_command() -> None:
    commands = {name for section in COMMANDS.values() for name in section}
    assert {script.command[0] for script in SCRIPTS.values()} <= commands
    assert set(CLASSES.values()) <= SCRIPTS.keys()


@pytest.mark.parametrize(
    ("line", "expected", "warnings"),
    [
        (
            "kafka-topics --create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 --topic test",
            "topics --create --replication-factor 1 --partitions 1 --topic test",
            ["--zookeeper is ignored: tools talk to brokers, and no longer to ZooKeeper."],
        ),
        ("kafka-topics --list --zookeeper=localhost:2181", "topics --list", ["--zookeeper is ignored: tools talk"]),
        ("kafka-topics --delete --topic t --force", "topics --delete --topic t", ["--force is ignored: nothing asks"]),
        (
            "kafka-create-topic --zookeeper localhost:2181 --replica 1 --partition 2 --topic test",
            "topics --create --replication-factor 1 --partitions 2 --topic test",
            ["--zookeeper is", "--replica is --replication-factor now.", "--partition is --partitions now."],
        ),
        (
            "kafka-run-class kafka.tools.ConsumerOffsetChecker --zkconnect localhost:2181 --group g --topic t",
            "groups --describe --group g",
            ["--zkconnect is ignored", "--topic is ignored: all topics of the group are shown."],
        ),
        (
            "kafka-configs --zookeeper localhost:2181 --describe --entity-type topics --force",
            "configs --describe --entity-type topics",
            ["--zookeeper is ignored", "--force is ignored: nothing asks back."],
        ),
        (
            "kafka-console-producer --broker-list localhost:9092 --topic test",
            "produce --bootstrap-server localhost:9092 --topic test",
            ["--broker-list is --bootstrap-server now."],
        ),
        (
            "kafka-console-producer --broker-list=a:1,b:2 --topic test",
            "produce --bootstrap-server=a:1,b:2 --topic test",
            ["--broker-list is --bootstrap-server now."],
        ),
        (
            "kafka-console-consumer --zookeeper localhost:2181 --new-consumer --topic test --from-beginning",
            "consume --topic test --from-beginning",
            ["--zookeeper is ignored", "--new-consumer is ignored: there is no other."],
        ),
        (
            "kafka-producer-perf-test --broker-list a:1 --messages 9 --topic t --message-size 100 --threads 1",
            "producer-perf --bootstrap-server a:1 --num-records 9 --topic t --record-size 100 --throughput -1",
            ["--broker-list", "--messages is", "--message-size is --record-size now.", "--threads is ignored"],
        ),
        (
            "kafka-producer-perf-test --topic t --num-records 9 --record-size 1 --throughput 5 --producer-props acks=1",
            "producer-perf --topic t --num-records 9 --record-size 1 --throughput 5 --producer-props acks=1",
            [],
        ),
        (
            "kafka-run-class kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic test --time -1",
            "get-offsets --bootstrap-server localhost:9092 --topic test --time -1",
            ["--broker-list is --bootstrap-server now."],
        ),
        (
            "kafka-run-class org.apache.kafka.clients.tools.ProducerPerformance t 50 100 -1 acks=1 batch.size=8196",
            "producer-perf --topic t --num-records 50 --record-size 100 --throughput -1 "
            "--command-property acks=1 batch.size=8196",
            [],
        ),
        (
            "kafka-preferred-replica-election --zookeeper localhost:2181",
            "leader-election --election-type preferred --all-topic-partitions",
            ["--zookeeper is ignored"],
        ),
        (
            "kafka-e2e-latency localhost:9092 test 10 all 100",
            "latency --bootstrap-server localhost:9092 --topic test --num-records 10 --producer-acks all "
            "--record-size 100",
            [],
        ),
        ("kafka-e2e-latency --topic t --num-records 10", "latency --topic t --num-records 10", []),
        (
            "kafka-consumer-perf-test --broker-list a:1 --topic t --messages 9",
            "consumer-perf --bootstrap-server a:1 --topic t --messages 9",
            ["--broker-list is --bootstrap-server now."],
        ),
        ("kafka-log-dirs --describe --broker-list 0,1", "log-dirs --describe --broker-list 0,1", []),
        ("kafka-dump-log --files 0.log --print-data-log", "log dump --files 0.log --print-data-log", []),
    ],
)
def test_translation(line: str, expected: str, warnings: list[str]) -> None:
    name, *given = shlex.split(line)
    translated = translate(name, given)
    assert translated.words == shlex.split(expected)
    assert len(translated.warnings) == len(warnings)
    assert all(told.startswith(start) for told, start in zip(translated.warnings, warnings, strict=True))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kafka-topics --list", "topics --bootstrap-server b:1 --list"),
        ("kafka-topics --list --bootstrap-server a:1", "topics --list --bootstrap-server a:1"),
        ("kafka-topics --list --bootstrap-server=a:1", "topics --list --bootstrap-server=a:1"),
        ("kafka-features describe", "features --bootstrap-server b:1 describe"),
        ("kafka-features --bootstrap-controller c:1 describe", "features --bootstrap-controller c:1 describe"),
        ("kafka-dump-log --files x", "log dump --files x"),
        ("kafka-topics --help", "topics --help"),
    ],
)
def test_an_address_for_all_scripts(line: str, expected: str) -> None:
    name, *given = shlex.split(line)
    assert translate(name, given, "b:1").words == shlex.split(expected)


def test_an_address_among_properties_is_left_alone() -> None:
    words = ["--topic", "t", "--throughput", "-1", "--producer-props", "bootstrap.servers=a:1"]
    assert translate("kafka-producer-perf-test", words, "b:1").words == ["producer-perf", *words]


def test_classes_that_are_not_known_are_refused() -> None:
    with pytest.raises(Failed, match="WordCountDemo cannot be run, because there is no Java here"):
        translate("kafka-run-class", ["org.apache.kafka.streams.examples.wordcount.WordCountDemo"])


def test_start_scripts(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path / 'data'}\n")
    given = ["-daemon", "-name", "kafka", "-loggc", str(file), "--override", "num.partitions=3"]
    expected = ["start", "--config", str(file), "--set", "num.partitions=3", "--daemon"]
    assert words_for(tmp_path, "kafka-server-start", given) == expected
    assert words_for(tmp_path, "kafka-server-start", [str(file)]) == expected[:3]
    assert running.started(tmp_path, servers.BROKER) == [tmp_path / "data"]
    zookeeper = tmp_path / "zookeeper.properties"
    zookeeper.write_text(f"dataDir={tmp_path / 'zk'}\nclientPort=2181\n")
    assert words_for(tmp_path, "zookeeper-server-start", [str(zookeeper)]) == ["zookeeper", "start", str(zookeeper)]
    assert running.started(tmp_path, servers.ZOOKEEPER) == [tmp_path / "zk"]


@pytest.mark.parametrize("given", [[], ["-daemon"], ["a", "b"], ["--frobnicate", "a"]])
def test_start_scripts_with_other_words(tmp_path: Path, given: list[str]) -> None:
    with pytest.raises(Failed, match=r"kafka-server-start \[-daemon\] FILE"):
        words_for(tmp_path, "kafka-server-start", given)


def test_nothing_to_stop(tmp_path: Path) -> None:
    running.remember(tmp_path, servers.BROKER, tmp_path / "data")
    running.remember(tmp_path, servers.ZOOKEEPER, tmp_path / "data")
    with pytest.raises(Failed, match="No kafka server to stop"):
        words_for(tmp_path, "kafka-server-stop", [])
    with pytest.raises(Failed, match="No zookeeper server to stop"):
        words_for(tmp_path, "zookeeper-server-stop", [])


def test_a_folder_that_cannot_be_written_is_no_reason_not_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=data\n")
    assert words_for(tmp_path / "nowhere", "kafka-server-start", [str(file)]) == ["start", "--config", str(file)]
    assert "The stop script will not find this server" in capsys.readouterr().err


def test_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words_for(tmp_path, "kafka-storage", ["random-uuid"])
    assert len(capsys.readouterr().out) == 23
    words_for(tmp_path, "kafka-storage", ["format", "--standalone", "-t", "x", "-c", "server.properties"])
    assert "Nothing to format" in capsys.readouterr().out
    with pytest.raises(Failed, match="random-uuid, format and info"):
        words_for(tmp_path, "kafka-storage", [])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("connect-standalone config/a config/b", "barnabas produce --topic NAME FILE"),
        ("kafka-mirror-maker --consumer.config c", "Barnabas has no MirrorMaker"),
        ("zookeeper-shell", "needs an address"),
    ],
)
def test_what_is_not_there_says_what_to_do(tmp_path: Path, line: str, told: str) -> None:
    script, *given = line.split()
    with pytest.raises(Failed, match=told):
        words_for(tmp_path, script, given)


def test_the_version_says_whose_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words_for(tmp_path, "kafka-topics", ["--version"]) is None
    assert capsys.readouterr().out == f"{__version__} (Barnabas, with the protocol of Apache Kafka 4.3.0)\n"


def test_the_programs(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "with space" / "bin"
    result = run("shims", folder, "--samples", tmp_path / "config")
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in folder.iterdir()} == {name + suffix for name in ALL for suffix in ("", ".sh")}
    config = tmp_path / "config"
    assert {str(path.relative_to(config)) for path in config.rglob("*.properties")} == set(SAMPLES)
    assert all(os.access(path, os.X_OK) for path in folder.iterdir())
    for name in ("kafka-topics", "kafka-storage.sh"):
        done = subprocess.run([folder / name, "frobnicate"], capture_output=True, text=True)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
    assert sys.executable in (folder / "kafka-topics.sh").read_text()


def test_a_script_loads_no_client_before_it_needs_one() -> None:
    code = "import sys, barnabas.cli.shims.run; print([name for name in ('kio', 'asyncio') if sys.modules.get(name)])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_again_is_no_error_and_other_files_are_kept(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "config"
    assert run("shims", tmp_path / "bin", "--samples", config).exit_code == 0
    (config / "server.properties").write_text("mine")
    again = run("shims", tmp_path / "bin", "--samples", config)
    assert again.exit_code == 0
    assert f"Kept {config / 'server.properties'}." in again.stderr
    assert (config / "server.properties").read_text() == "mine"
    (tmp_path / "bin" / "kafka-topics.sh").write_text("#!/bin/bash\n")
    refused = run("shims", tmp_path / "bin")
    assert refused.exit_code == 1
    assert "kafka-topics.sh is there already and was not written by Barnabas" in refused.stderr


def test_a_password_of_kafka_configs_comes_as_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)
    user = ["--alter", "--bootstrap-server", "b:1", "--entity-type", "users", "--entity-name", "alice"]
    added = "SCRAM-SHA-256=[iterations=8192,password=a,b=c]"
    assert words_for(tmp_path, "kafka-configs", [*user, "--add-config", added]) == (
        ["users", "--add", "alice", "--mechanism", "SCRAM-SHA-256", "--iterations", "8192", "--bootstrap-server", "b:1"]
    )
    assert sys.stdin.readline() == "a,b=c\n"
    assert words_for(tmp_path, "kafka-configs", [*user, "--delete-config", "SCRAM-SHA-512"]) == (
        ["users", "--delete", "alice", "--mechanism", "SCRAM-SHA-512", "--bootstrap-server", "b:1"]
    )
    with pytest.raises(Failed, match="one mechanism of a user at a time"):
        words_for(tmp_path, "kafka-configs", [*user, "--delete-config", "SCRAM-SHA-512,SCRAM-SHA-256"])
    with pytest.raises(Failed, match="is of the form SCRAM-SHA-512="):
        words_for(tmp_path, "kafka-configs", [*user, "--add-config", "SCRAM-SHA-512=[pass=x]"])
    quota = [*user, "--add-config", "producer_byte_rate=1"]
    assert words_for(tmp_path, "kafka-configs", quota) == ["configs", *quota], "quotas are for configs"
