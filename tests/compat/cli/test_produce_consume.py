"""`barnabas produce` and `barnabas consume`, alone and beside Kafka's console tools with the same words."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2

from tests.support import java
from tests.support.processes import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.compat.conftest import TopicMaker

    Run = Callable[..., subprocess.CompletedProcess[str]]

KAFKA = "4.3.0"
LINES = "h1:v1,h2:\tk1\tvalue one\nNIL\tk2\tgrüße\nh:NIL\tNIL\tNIL\n"
READ = [
    "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
    "--reader-property", "null.marker=NIL",
]  # fmt: skip
SHOW = [
    word
    for name in ("key", "headers", "offset", "partition")
    for word in ("--formatter-property", f"print.{name}=true")
]
SHOWN = (
    "Partition:0\tOffset:0\th1:v1,h2:\tk1\tvalue one\n"
    "Partition:0\tOffset:1\tNO_HEADERS\tk2\tgrüße\n"
    "Partition:0\tOffset:2\th:null\tnull\tnull\n"
)


@pytest.fixture
def run(bootstrap: str) -> Run:
    """`run("consume", "--topic", ...)`: the command at the broker under test; `stdin` is what it reads."""

    def ran(command: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "barnabas.cli.main", command, "--bootstrap-server", bootstrap, *words]
        return subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=120)

    return ran


def everything(run: Run, topic: str, *words: str) -> str:
    done = run("consume", "--topic", topic, "--from-beginning", "--until-end", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_same_words_do_the_same_as_kafkas_tools(bootstrap: str, new_topic: TopicMaker, run: Run) -> None:
    ours, theirs = new_topic(), new_topic()
    done = run("produce", "--topic", ours, *READ, stdin=LINES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    java.tool(KAFKA, "console-producer", "--bootstrap-server", bootstrap, "--topic", theirs, *READ, stdin=LINES)
    flags = ["--from-beginning", "--max-messages", "3", *SHOW]
    for topic in (ours, theirs):
        assert run("consume", "--topic", topic, *flags).stdout == SHOWN
        shown = java.tool(KAFKA, "console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, *flags)
        assert shown == SHOWN


def test_records_go_through_json_unchanged(new_topic: TopicMaker, run: Run) -> None:
    first, copy = new_topic(2), new_topic(2)
    records: list[dict[str, object]] = [
        {"key": "k", "value": "v", "headers": {"a": "1"}, "partition": 1, "timestamp": 1_700_000_000_000},
        {
            "key": None,
            "value": None,
            "headers": [["a", "1"], ["a", "2"]],
            "partition": 1,
            "timestamp": 1_700_000_000_001,
        },
        {"key": "\udcff", "value": "grüße\n", "headers": {}, "partition": 0, "timestamp": 1_700_000_000_002},
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    assert run("produce", "--topic", first, "--json", "--keep-partitions", stdin=lines).returncode == 0
    printed = everything(run, first, "--json")
    assert run("produce", "--topic", copy, "--json", "--keep-partitions", stdin=printed).returncode == 0
    for topic in (first, copy):
        found = [json.loads(line) for line in everything(run, topic, "--json").splitlines()]
        assert sorted(found, key=lambda record: record["timestamp"]) == [
            {"topic": topic, "offset": offset, **record} for offset, record in zip((0, 1, 0), records, strict=True)
        ]


def test_formats_and_filters(new_topic: TopicMaker, run: Run, tmp_path: Path) -> None:
    raw, orders = new_topic(), new_topic()
    assert run("produce", "--topic", raw, "--value-format", "hex", stdin="00ff\n7f\n").returncode == 0
    assert everything(run, raw, "--value-format", "hex") == "00ff\n7f\n"
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}')
    source = tmp_path / "orders.jsonl"
    source.write_text("".join(f'{{"id": {number}}}\n' for number in range(5)))
    assert run("produce", "--topic", orders, "--value-schema", str(schema), str(source)).returncode == 0
    assert everything(run, orders, "--value-schema", str(schema), "--filter", "value.id > 2") == '{"id":3}\n{"id":4}\n'
    assert everything(run, orders, "--value-format", "hex", "--max-messages", "2") == "00\n02\n"
    done = run("consume", "--topic", orders, "--from-beginning", "--value-format", "json", "--until-end")
    assert done.returncode == 1
    assert f"{orders}-0 at offset 0 is not of the format that was asked for" in done.stderr
    assert "--skip-message-on-error goes on after it" in done.stderr


def test_protobuf_there_and_back(new_topic: TopicMaker, run: Run, tmp_path: Path) -> None:
    described = descriptor_pb2.FileDescriptorSet()
    file = described.file.add(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    message.field.add(name="item", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    compiled = tmp_path / "order.desc"
    compiled.write_bytes(described.SerializeToString())
    topic, schema = new_topic(), f"{compiled}:shop.Order"
    lines = '{"id":1,"item":"tea"}\n{"id":2,"item":"grüße"}\n'
    assert run("produce", "--topic", topic, "--value-schema", schema, stdin=lines).returncode == 0
    assert everything(run, topic, "--value-format", "hex").splitlines()[0] == "08011203746561"
    assert everything(run, topic, "--value-schema", schema) == lines
    assert (
        everything(run, topic, "--value-schema", schema, "--filter", "value.item == 'tea'") == lines.splitlines(True)[0]
    )
    unknown = run("consume", "--topic", topic, "--value-schema", f"{compiled}:shop.Nothing")
    assert (unknown.returncode, "the file has no message shop.Nothing" in unknown.stderr) == (2, True)


def test_keys_by_the_old_name_of_the_property(new_topic: TopicMaker, run: Run) -> None:
    topic = new_topic()
    run("produce", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:", stdin="k:v\n")
    shown = everything(run, topic, "--property", "print.key=true", "--property", "key.separator= is ")
    assert shown == "k is v\n"


def test_topics_by_a_pattern(new_topic: TopicMaker, run: Run) -> None:
    first, second = new_topic(), new_topic()
    for topic in (first, second):
        assert run("produce", "--topic", topic, stdin=f"in {topic}\n").returncode == 0
    words = ["--include", rf"{first}|(?:{second})\d*", "--from-beginning"]
    for more in ([], ["--group", first]):
        done = run("consume", *words, *more, "--max-messages", "2")
        assert sorted(done.stdout.splitlines()) == sorted([f"in {first}", f"in {second}"])
    refused = run("consume", "--include", r"(a)\1", "--group", first)
    assert (refused.returncode, "cannot be used to look for topics" in refused.stderr) == (1, True)


def test_readers_of_committed_records_do_not_see_others(bootstrap: str, new_topic: TopicMaker, run: Run) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, ended in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        ended(30)
    assert everything(run, topic) == "kept\ndropped\n"
    assert everything(run, topic, "--isolation-level", "read_committed") == "kept\n"
    assert everything(run, topic, "--isolation-level", "read_uncommitted") == "kept\ndropped\n"


def test_places_and_ends(new_topic: TopicMaker, run: Run) -> None:
    topic = new_topic(2)
    lines = "".join(json.dumps({"value": str(number), "partition": number % 2}) + "\n" for number in range(10))
    assert run("produce", "--topic", topic, "--json", "--keep-partitions", "--sync", stdin=lines).returncode == 0
    done = run("consume", "--topic", topic, "--partition", "1", "--offset", "3", "--max-messages", "2")
    assert (done.stdout, done.stderr) == ("7\n9\n", "Processed a total of 2 messages\n")
    done = run("consume", "--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "4000")
    assert done.stdout == "0\n2\n4\n6\n8\n"
    assert run("consume", "--topic", topic, "--timeout-ms", "200").stdout == ""
    done = run("consume", "--topic", topic, "--partition", "7")
    assert (done.returncode, "has no partition 7: its last one is 1" in done.stderr) == (1, True)
    assert sorted(everything(run, topic)) == sorted("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n")


def test_a_topic_that_is_not_there_is_told(run: Run, unused_topic: str) -> None:
    for words in (["--until-end"], ["--partition", "0"]):
        done = run("consume", "--topic", unused_topic, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"There is no topic {unused_topic}. `barnabas topics --list` shows all topics." in done.stderr
    waited = run("consume", "--topic", unused_topic, "--timeout-ms", "100")
    assert waited.returncode == 0
    assert f"There is no topic {unused_topic} yet: waiting for it." in waited.stderr
    assert unused_topic not in run("topics", "--list").stdout.split(), "looking for it does not make it"


def test_a_topic_that_is_made_later_is_read_from_its_beginning(
    bootstrap: str, run: Run, unused_topic: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "barnabas.cli.main", "consume", "--topic", unused_topic, "--max-messages", "1"]
    with Process("consume", [*command, "--bootstrap-server", bootstrap], tmp_path / "consume.log") as consume:
        consume.wait_for_output("waiting for it")
        run("topics", "--create", "--topic", unused_topic)
        run("produce", "--topic", unused_topic, stdin="first\n")
        assert consume.wait() == 0
        assert "first" in consume.output().splitlines()


def test_a_group_goes_on_where_it_stopped(new_topic: TopicMaker, run: Run) -> None:
    topic = new_topic()
    run("produce", "--topic", topic, stdin="a\nb\nc\n")
    words = ["--topic", topic, "--group", topic, "--from-beginning"]
    assert run("consume", *words, "--max-messages", "2").stdout == "a\nb\n"
    assert run("consume", *words, "--max-messages", "1").stdout == "c\n"
    assert run("groups", "--describe", "--group", topic).stdout.split()[-7:-3] == ["0", "3", "3", "0"]


def test_following_ends_with_ctrl_c(bootstrap: str, new_topic: TopicMaker, run: Run, tmp_path: Path) -> None:
    topic = new_topic()
    words = [sys.executable, "-m", "barnabas.cli.main", "consume", "--bootstrap-server", bootstrap, "--topic", topic]
    with Process("consume", [*words, "--from-beginning"], tmp_path / "consume.log") as following:
        run("produce", "--topic", topic, stdin="first\n")
        following.wait_for_output("^first$")
        run("produce", "--topic", topic, stdin="second\n")
        following.wait_for_output("^second$")
        following.send(signal.SIGINT)
        assert following.wait() == 130
        assert following.output().splitlines()[-1] == "Processed a total of 2 messages"


def test_following_with_a_filter(bootstrap: str, new_topic: TopicMaker, run: Run, tmp_path: Path) -> None:
    topic = new_topic()
    words = [sys.executable, "-m", "barnabas.cli.main", "consume", "--bootstrap-server", bootstrap, "--topic", topic]
    words += ["--from-beginning", "--value-format", "json", "--filter", "value.total > 100"]
    with Process("consume", words, tmp_path / "consume.log") as following:
        for small, large in ((1, 101), (2, 102)):
            run("produce", "--topic", topic, stdin=f'{{"total":{small}}}\n{{"total":{large}}}\n')
            following.wait_for_output(f'^{{"total":{large}}}$')
        following.send(signal.SIGINT)
        assert following.wait() == 130
        assert following.output().splitlines() == ['{"total":101}', '{"total":102}', "Processed a total of 2 messages"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["produce"], "--topic"),
        (["produce", "--topic", "t", "--keep-partitions"], "--keep-partitions needs --json"),
        (["produce", "--topic", "t", "--json", "--reader-property", "parse.key=true"], "leave it out, or --json"),
        (["produce", "--topic", "t", "--line-reader", "com.example.Mine"], "a Java class cannot be loaded here"),
        (["produce", "--topic", "t", "--property", "x"], "not of the form NAME=VALUE"),
        (["consume"], "Give --topic or --include"),
        (["consume", "--topic", "t", "--offset", "5"], "--offset needs --partition"),
        (["consume", "--topic", "t", "--partition", "0", "--group", "g"], "--group does not go with --partition"),
        (["consume", "--topic", "t", "--filter", "nonsense"], "there is no 'nonsense'"),
        (["consume", "--topic", "t", "--formatter", "com.example.Mine"], "a Java class cannot be loaded here"),
        (
            ["consume", "--topic", "t", "--from-beginning", "--command-property", "auto.offset.reset=latest"],
            "not go with",
        ),
    ],
)
def test_words_that_mean_nothing_are_refused(run: Run, words: list[str], text: str) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_line_that_is_no_record_stops_with_its_number(new_topic: TopicMaker, run: Run) -> None:
    topic = new_topic()
    done = run("produce", "--topic", topic, "--reader-property", "parse.key=true", stdin="k\tv\nno key\n")
    assert (done.returncode, done.stderr) == (1, "Error: No key separator found on line number 2: 'no key'\n")
    assert everything(run, topic) == "v\n"
