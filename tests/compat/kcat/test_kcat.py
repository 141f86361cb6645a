"""kcat: listing, producing, consuming and querying, with an older librdkafka than confluent-kafka's."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.messages import CODECS
from tests.support import jars

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    command = [jars.program("kcat"), "-b", bootstrap, "-m", "30", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"kcat {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def read(bootstrap: str, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Read partition 0 up to its present end."""
    lines = kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", "-J", *arguments).splitlines()
    return [json.loads(line) for line in lines]


def test_the_cluster_is_listed(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(3)
    listed = json.loads(kcat(bootstrap, "-L", "-J"))
    [broker] = listed["brokers"]
    assert broker["name"].endswith(bootstrap.rpartition(":")[2])
    assert listed["controllerid"] == broker["id"]
    [found] = [entry for entry in listed["topics"] if entry["topic"] == topic]
    assert [(partition["partition"], partition["leader"]) for partition in found["partitions"]] == [
        (number, broker["id"]) for number in range(3)
    ]
    assert f'topic "{topic}" with 3 partitions' in kcat(bootstrap, "-L", "-t", topic)


@pytest.mark.parametrize("codec", CODECS)
def test_lines_are_produced_and_consumed(bootstrap: str, new_topic: TopicMaker, codec: str) -> None:
    topic = new_topic()
    lines = [f"key{number}:{'value ' * (number + 1)}" for number in range(100)]
    kcat(
        bootstrap, "-P", "-t", topic, "-p", "0", "-K", ":", "-H", "a=b", "-X", f"compression.codec={codec}",
        stdin="\n".join(lines),
    )  # fmt: skip
    found = read(bootstrap, topic)
    assert [f"{message['key']}:{message['payload']}" for message in found] == lines
    assert [message["offset"] for message in found] == list(range(100))
    assert all(message["headers"] == ["a", "b"] for message in found)


def test_consuming_starts_where_it_is_told(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", stdin="\n".join(map(str, range(50))))
    found = read(bootstrap, topic)
    assert [message["offset"] for message in read(bootstrap, topic, "-o", "45")] == [45, 46, 47, 48, 49]
    assert [message["offset"] for message in read(bootstrap, topic, "-o", "-2")] == [48, 49]
    since = found[20]["ts"]
    first = next(message["offset"] for message in found if message["ts"] >= since)
    assert read(bootstrap, topic, "-o", f"s@{since}")[0]["offset"] == first


def test_offsets_are_queried_by_time(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", stdin="a\nb\nc")
    found = read(bootstrap, topic)
    for asked, expected in [(found[0]["ts"], "0"), (-1, "3"), (-2, "0")]:
        assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:{asked}").split() == [topic, "[0]", "offset", expected]


def test_an_idempotent_producer_makes_its_topic(bootstrap: str, unused_topic: str) -> None:
    kcat(bootstrap, "-P", "-t", unused_topic, "-p", "0", "-X", "enable.idempotence=true", stdin="one\ntwo")
    assert [message["payload"] for message in read(bootstrap, unused_topic)] == ["one", "two"]
