"""`barnabas producer-perf`, `consumer-perf` and `latency` beside Apache Kafka's own tools, on the same broker.

Rates differ from run to run; what is compared is the shape of each line, and every number that has one right value.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.support import java
from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker

    Ours = Callable[..., CompletedProcess[str]]

NUMBER: Final = re.compile(r"\d+(\.\d+)?")
STEADY: Final = "In steady state."


@pytest.fixture
def ours(cli: Cli, bootstrap: str) -> Ours:
    def run(tool: str, *words: object) -> CompletedProcess[str]:
        return cli(tool, "--bootstrap-server", bootstrap, *words)

    return run


@pytest.fixture
def theirs(bootstrap: str) -> Callable[..., str]:
    def run(tool: str, *words: object) -> str:
        return java.tool("4.3.0", tool, "--bootstrap-server", bootstrap, *map(str, words))

    return run


def shape(text: str) -> str:
    """The text with every number replaced by 9, or 9.99 with as many decimals as it has."""
    return NUMBER.sub(lambda match: "9" + (f".{'9' * (len(match[1]) - 1)}" if match[1] else ""), text)


def is_running(process: str) -> bool:
    """Whether there is this process, and it has not ended."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def end_of(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x"})
    end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)[1]
    consumer.close()
    return end


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes] = []
    while len(values) < count:
        for message in consumer.consume(count - len(values), 10):
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
    consumer.close()
    return values


class TestProducerPerf:
    def test_same_lines_and_counts_as_kafka(
        self, ours: Ours, theirs: Callable[..., str], bootstrap: str, new_topic: TopicMaker
    ) -> None:
        """Two seconds at a steady rate, with lines on the way and a steady state after a warm-up."""
        topic = new_topic()
        words: tuple[object, ...] = (
            "--topic",
            topic,
            "--num-records",
            2000,
            "--record-size",
            200,
            "--throughput",
            1000,
        )
        words += ("--reporting-interval", 600, "--warmup-records", 500, "--command-property", "acks=all", "linger.ms=1")
        kafka = theirs("producer-perf-test", *words).splitlines()
        done = ours("producer-perf", *words)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert (
            lines[0]
            == kafka[0]
            == ("Warmup first 500 records. Steady state results will print after the complete test summary.")
        )
        for last, count, label in ((-2, 2000, ""), (-1, 1500, "steady state ")):
            assert shape(lines[last]) == shape(kafka[last])
            assert lines[last].startswith(f"{count} {label}records sent, ")
        # Whoever is held up has no whole interval left of the steady state, and does not tell of it.
        ours_meanwhile, theirs_meanwhile = ({shape(line) for line in told[1:-2]} for told in (lines, kafka))
        assert ours_meanwhile - {STEADY} == theirs_meanwhile - {STEADY} != set()
        assert lines.count(STEADY) <= 1
        assert float(re.findall(r"([\d.]+) records/sec", lines[-2])[0]) < 1100
        assert end_of(bootstrap, topic) == 4000
        assert {len(value) for value in read(bootstrap, topic, 4000)} == {200}

    def test_payloads_of_a_file_and_numbers(
        self, ours: Ours, bootstrap: str, new_topic: TopicMaker, tmp_path: Path
    ) -> None:
        file = tmp_path / "payloads.txt"
        file.write_text("one\ntwo\n")
        topic = new_topic()
        shared = ("producer-perf", "--topic", topic, "--num-records", 100, "--throughput", -1)
        assert ours(*shared, "--payload-file", file).returncode == 0
        assert set(read(bootstrap, topic, 100)) == {b"one", b"two"}
        assert ours(*shared, "--payload-monotonic").returncode == 0
        assert read(bootstrap, topic, 200)[100:] == [str(number).encode() for number in range(100)]

    def test_old_flags_and_files_of_java_clients(
        self, cli: Cli, bootstrap: str, new_topic: TopicMaker, tmp_path: Path
    ) -> None:
        file = tmp_path / "producer.properties"
        file.write_text(
            f"bootstrap.servers={bootstrap}\ncompression.type=lz4\nbuffer.memory=33554432\n"
            "key.serializer=org.apache.kafka.common.serialization.ByteArraySerializer\n"
        )
        topic = new_topic()
        words = ("--topic", topic, "--num-records", 10, "--record-size", 10, "--throughput", -1)
        done = cli("producer-perf", *words, "--producer-props", "acks=1", "linger.ms=0", "--producer.config", file)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("deprecated") == 2
        assert end_of(bootstrap, topic) == 10

    def test_records_that_are_refused_make_it_fail(self, ours: Ours, new_topic: TopicMaker) -> None:
        topic = new_topic(1, {"max.message.bytes": "100"})
        words = ("--topic", topic, "--num-records", 3, "--record-size", 500, "--throughput", -1)
        done = ours("producer-perf", *words)
        assert done.returncode == 1
        assert done.stdout.startswith("0 records sent")
        assert done.stderr.startswith("Error: 3 records were not stored; the first: ")

    def test_a_document(self, ours: Ours, new_topic: TopicMaker) -> None:
        """What is said on the way goes to standard error, so that a script can read the rest."""
        words = ("--topic", new_topic(), "--num-records", 2000, "--record-size", 100, "--throughput", 4000)
        done = ours("producer-perf", *words, "--warmup-records", 500, "--reporting-interval", 200, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["records"], told["failed"]) == (2000, 0)
        assert 0 < told["recordsPerSec"] < 4100
        assert 0 < told["steadyState"]["records"] <= 1500
        shares = told["latencyPercentilesMs"]
        assert list(shares) == ["50", "95", "99", "99.9"]
        assert shares["50"] <= shares["99.9"] <= told["maxLatencyMs"]
        assert "Warmup first 500 records." in done.stderr
        assert " records sent, " in done.stderr

    def test_statistics_of_librdkafka(self, ours: Ours, new_topic: TopicMaker) -> None:
        words = ("--topic", new_topic(), "--num-records", 1500, "--payload-monotonic", "--throughput", 1000)
        assert '"client_id": "perf-producer-client"' in ours("producer-perf", *words, "--print-metrics").stdout

    def test_several_processes_share_the_records(self, ours: Ours, bootstrap: str, new_topic: TopicMaker) -> None:
        topic = new_topic()
        words = ("--topic", topic, "--num-records", 100, "--payload-monotonic", "--throughput", 1000)
        done = ours("producer-perf", *words, "--processes", 3, "--transaction-duration-ms", 10)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(r"100 records sent, [\d.]+ records/sec .* ms 99.9th.\n", done.stdout)
        assert sorted(map(int, read(bootstrap, topic, 100))) == list(range(100))

    def test_one_process_that_fails_makes_all_fail(self, ours: Ours, new_topic: TopicMaker) -> None:
        topic = new_topic(1, {"max.message.bytes": "100"})
        words = ("--topic", topic, "--num-records", 4, "--record-size", 500, "--throughput", -1)
        done = ours("producer-perf", *words, "--processes", 2)
        assert done.returncode == 1
        assert done.stdout.startswith("0 records sent")
        assert done.stderr.startswith("Error: 2 records were not stored; the first: ")
        assert done.stderr.count("\n") == 1
        told = json.loads(ours("producer-perf", *words, "--processes", 2, "--json").stdout)
        assert told["records"] == 0
        assert told["failed"] in {2, 4}, "the second process may be ended before it has counted"

    @pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
    @pytest.mark.parametrize("who", ["a process", "the command"])
    def test_whoever_is_killed_ends_the_others(
        self, bootstrap: str, new_topic: TopicMaker, tmp_path: Path, who: str
    ) -> None:
        words = [sys.executable, "-m", "barnabas.cli.main", "producer-perf", "--bootstrap-server", bootstrap]
        words += ["--topic", new_topic(), "--num-records", "1000000", "--payload-monotonic", "--throughput", "1000"]
        words += ["--processes", "2", "--reporting-interval", "100"]
        with Process("producer-perf", words, tmp_path / "log") as command:
            command.wait_for_output(r"\brecords sent\b", 60)
            children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
            clients = [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
            assert len(clients) == 2
            if who == "a process":
                os.kill(int(clients[0]), signal.SIGKILL)
                assert command.wait(60) == 1
                assert "A process of --processes was ended by somebody else." in command.tail()
            else:
                command.kill()
            wait_until(lambda: not any(map(is_running, clients)), "the processes are gone")


class TestConsumerPerf:
    @pytest.fixture
    def topic(self, ours: Ours, new_topic: TopicMaker) -> str:
        name = new_topic(2)
        words = ("--topic", name, "--num-records", 20_000, "--record-size", 100, "--throughput", -1)
        assert ours("producer-perf", *words).returncode == 0
        return name

    def test_same_lines_and_counts_as_kafka(self, ours: Ours, theirs: Callable[..., str], topic: str) -> None:
        words = ("--topic", topic, "--num-records", 20_000)
        kafka = theirs("consumer-perf-test", *words).splitlines()
        done = ours("consumer-perf", *words)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == kafka[0]
        assert len(lines) == len(kafka) == 2
        assert shape(lines[1]) == shape(kafka[1])
        columns, expected = (
            dict(zip(lines[0].split(", "), line.split(", "), strict=True)) for line in (lines[1], kafka[1])
        )
        for name in ("data.consumed.in.MB", "data.consumed.in.nMsg"):
            assert columns[name] == expected[name]
        assert int(columns["rebalance.time.ms"]) > 0

    def test_detailed_lines(self, ours: Ours, theirs: Callable[..., str], topic: str) -> None:
        words = ("--topic", topic, "--num-records", 20_000, "--show-detailed-stats", "--reporting-interval", 1)
        kafka = theirs("consumer-perf-test", *words).splitlines()
        done = ours("consumer-perf", *words)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == kafka[0]
        assert shape(lines[-1]) == shape(kafka[-1])
        assert lines[-1].split(", ")[4] == "20000"
        hidden = ours("consumer-perf", *words, "--hide-header", "--date-format", "HH'h'").stdout.splitlines()
        assert all(re.match(r"\d\dh, 0, ", line) for line in hidden)

    def test_a_pattern_and_too_few_records(self, ours: Ours, theirs: Callable[..., str], topic: str) -> None:
        words = ("--include", f"{topic[:-2]}.*", "--num-records", 20_001, "--timeout", 6000)
        kafka = theirs("consumer-perf-test", *words).splitlines()
        done = ours("consumer-perf", *words)
        lines = done.stdout.splitlines()
        assert lines[1] == kafka[1]
        assert lines[1].startswith("WARNING: Exiting before consuming the expected number of records")
        assert lines[2].split(", ")[4] == kafka[2].split(", ")[4] == "20000"

    def test_flags_are_stronger_than_properties_as_in_kafka(self, ours: Ours, topic: str, tmp_path: Path) -> None:
        """A file that names a group is for applications; each measurement is a group of its own."""
        file = tmp_path / "consumer.properties"
        file.write_text("group.id=test-consumer-group\nauto.offset.reset=latest\n")
        for _ in range(2):
            done = ours("consumer-perf", "--topic", topic, "--num-records", 20_000, "--command-config", file)
            assert done.stdout.splitlines()[1].split(", ")[4] == "20000"

    def test_a_document(self, ours: Ours, topic: str) -> None:
        words = ("--topic", topic, "--num-records", 20_001, "--timeout", 5000, "--show-detailed-stats")
        done = ours("consumer-perf", *words, "--reporting-interval", 500, "--json")
        assert done.returncode == 0
        assert done.stderr.startswith("WARNING: Exiting before consuming the expected number of records")
        told = json.loads(done.stdout)
        assert (told["records"], told["megabytes"]) == (20_000, 20_000 * 100 / (1 << 20))
        assert told["fetchRecordsPerSec"] >= told["recordsPerSec"] > 0
        assert told["startTime"] < told["endTime"]
        assert [each["records"] for each in told["intervals"]][-1] == 20_000

    def test_several_processes_share_the_partitions(self, ours: Ours, topic: str) -> None:
        words = ("--include", f"{topic[:-2]}.*", "--num-records", 20_000, "--processes", 3)
        done = ours("consumer-perf", *words)
        assert (done.returncode, done.stderr) == (0, "")
        line = done.stdout.splitlines()[1].split(", ")
        assert int(line[4]) == 20_000
        assert 0 < float(line[9]) < 20_000 * 1000, "no time that anybody was reading is taken off"
        detailed = ours("consumer-perf", *words, "--show-detailed-stats", "--hide-header")
        assert detailed.returncode == 0
        lines = [each.split(", ") for each in detailed.stdout.splitlines()]
        last = {each[1]: int(each[4]) for each in lines}
        assert sorted(last) == ["0", "1", "2"], "each process has lines of its own"
        assert sum(last.values()) == 20_000
        assert last["2"] == 0, "there are two partitions"

    def test_several_processes_go_on_where_the_group_was(self, ours: Ours, topic: str) -> None:
        words = ("--topic", topic, "--group", f"{topic}-readers", "--num-records", 20_000, "--processes", 2)
        assert ours("consumer-perf", *words).returncode == 0
        again = ours("consumer-perf", *words, "--timeout", 2000)
        assert "WARNING: Exiting before consuming the expected number of records" in again.stdout
        assert again.stdout.splitlines()[-1].split(", ")[4] == "0"

    def test_several_processes_and_a_topic_that_is_not_there(self, ours: Ours, unused_topic: str) -> None:
        done = ours("consumer-perf", "--topic", unused_topic, "--num-records", 2, "--processes", 2)
        assert done.returncode == 1
        assert "Unknown topic or partition" in done.stderr

    def test_from_the_end_nothing_is_read(self, ours: Ours, topic: str) -> None:
        done = ours("consumer-perf", "--topic", topic, "--messages", 1, "--from-latest", "--timeout", 2000)
        assert done.stdout.splitlines()[2].split(", ")[4] == "0"

    def test_a_topic_that_is_not_there(self, ours: Ours, unused_topic: str) -> None:
        done = ours("consumer-perf", "--topic", unused_topic, "--num-records", 1, "--timeout", 30_000)
        assert done.returncode == 1
        assert "Unknown topic or partition" in done.stderr


class TestLatency:
    def test_same_lines_as_kafka(self, ours: Ours, theirs: Callable[..., str], new_topic: TopicMaker) -> None:
        topic = new_topic(2)
        words: tuple[object, ...] = (
            "--topic",
            topic,
            "--num-records",
            1001,
            "--producer-acks",
            "all",
            "--record-size",
            512,
        )
        words += ("--record-key-size", 8, "--num-headers", 2, "--record-header-key-size", 5, "--record-header-size", 7)
        kafka = theirs("e2e-latency", *words).splitlines()
        done = ours("latency", *words)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert (
            [line.split("\t")[0] for line in lines[:2]] == [line.split("\t")[0] for line in kafka[:2]] == ["0", "1000"]
        )
        assert [shape(line) for line in lines[2:]] == [shape(line) for line in kafka[2:]]

    def test_a_topic_is_made(self, ours: Ours, unused_topic: str) -> None:
        done = ours(
            "latency", "--topic", unused_topic, "--num-records", 3, "--microseconds", "--record-header-size", -1
        )
        assert done.returncode == 0, done.stderr
        assert f"There is no topic {unused_topic}: creating it" in done.stderr
        average = float(re.findall(r"Avg latency: ([\d.]+) ms", done.stdout)[0])
        assert int(re.findall(r"99th = (\d+)", done.stdout)[0]) > average * 500, "that is in microseconds"

    def test_a_document(self, ours: Ours, new_topic: TopicMaker) -> None:
        done = ours("latency", "--topic", new_topic(), "--num-records", 3, "--json")
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["records"] == 3
        assert told["averageLatencyMs"] > 0
        assert list(told["latencyPercentilesMs"]) == ["50", "99", "99.9"]

    def test_someone_else_writes(self, ours: Ours, bootstrap: str, new_topic: TopicMaker, tmp_path: Path) -> None:
        topic = new_topic()
        words = [sys.executable, "-m", "barnabas.cli.main", "producer-perf", "--bootstrap-server", bootstrap]
        words += ["--topic", topic, "--num-records", "1000000", "--payload-monotonic", "--throughput", "1000"]
        with Process("producer-perf", words, tmp_path / "other.log"):
            done = ours("latency", "--topic", topic, "--num-records", 100_000)
        assert done.returncode == 1
        assert "Does another producer write to the topic?" in done.stderr
