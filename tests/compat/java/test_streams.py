"""Kafka Streams' word count, at least once and exactly once.

It has its own assignor, internal topics, and state that is kept in one of them. Exactly once means that a program that
is killed in the middle of its work, and started anew without its local state, ends with the counts of a dictionary.
"""

from __future__ import annotations

import uuid
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support import jars, java
from tests.support.group_scenarios import create
from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

INPUT: Final = "streams-plaintext-input"
OUTPUT: Final = "streams-wordcount-output"
"""Kafka's example has no say in the names."""


class WordCount(Process):
    """Kafka's example; its local state is in a folder of its own, so that a later one begins with the topic's."""

    def __init__(self, bootstrap: str, application: str, folder: Path, number: int, guarantee: str) -> None:
        settings = {
            "bootstrap.servers": bootstrap,
            "application.id": application,
            "state.dir": str(folder / f"state-{number}"),
            "processing.guarantee": guarantee,
            "commit.interval.ms": "200",
            "num.stream.threads": "2",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "300",
        }
        properties = folder / f"streams-{number}.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
        flags = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={folder}")
        words = java.command(jars.STREAMS, main, *flags, classpath=f"{jars.streams()}/*")
        super().__init__("word count", [*words, str(properties)], folder / f"streams-{number}.log")


class Counts:
    """What the output topic says of each word, from its beginning on."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "counts", "enable.auto.commit": False}
        self.consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
        self.consumer.assign([TopicPartition(OUTPUT, 0, 0)])
        self._found: dict[str, list[int]] = {}
        self._at_end = False
        """Whether the end has been seen, wherever it was."""

    def total(self) -> int:
        """All last counts that came so far, added up."""
        self._read()
        return sum(counts[-1] for counts in self._found.values())

    def reach(self, wanted: Counter[str]) -> bool:
        """Whether all words have these counts by now."""
        self._read()
        return {word: self._found[word][-1] for word in wanted if word in self._found} == dict(wanted)

    def to_the_end(self, run: str) -> dict[str, list[int]]:
        """Everything that was committed of the words of a run; to be asked of new ones, which have seen no end yet."""
        assert not self._at_end
        wait_until(self._read, "the end of the output", 60)
        return {word: counts for word, counts in self._found.items() if word.endswith(run)}

    def _read(self) -> bool:
        for message in self.consumer.consume(1_000, timeout=0.1):
            if (error := message.error()) is None:
                count = int.from_bytes(message.value() or b"", "big")
                self._found.setdefault((message.key() or b"").decode(), []).append(count)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end = True
        return self._at_end


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_words_are_counted_and_counting_goes_on_after_a_restart(
    bootstrap: str, admin: AdminClient, tmp_path: Path, guarantee: str
) -> None:
    run = uuid.uuid4().hex[:8]
    topics = admin.list_topics(timeout=30).topics
    for topic, partitions in ((INPUT, 2), (OUTPUT, 1)):
        if topic not in topics:
            create(admin, topic, partitions)
    producer = Producer({"bootstrap.servers": bootstrap})
    counted: Counter[str] = Counter()

    def say(count: int) -> None:
        for number in range(count):
            words = [f"all{run}", f"some{number % 7}x{run}", f"word{number % 3}x{run}"]
            counted.update(words)
            producer.produce(INPUT, " ".join(words).title(), str(number))
        assert producer.flush(30) == 0

    counts = Counts(bootstrap)
    with closing(counts.consumer):
        say(100)
        with WordCount(bootstrap, f"words-{run}", tmp_path, 1, guarantee) as first:
            wait_until(lambda: counts.reach(counted), "the first counts", 120)
            say(100)
            wait_until(lambda: counts.reach(counted), "counts of what came meanwhile", 60)
            if guarantee == "exactly_once_v2":
                before = counts.total()
                say(1000)
                wait_until(lambda: counts.total() > before, "the first counts of many more", 60)
                first.kill()
            else:
                first.stop()
        say(100)
        with WordCount(bootstrap, f"words-{run}", tmp_path, 2, guarantee) as second:
            wait_until(lambda: counts.reach(counted), "counts of what came in between", 120)
            second.stop()
    counts = Counts(bootstrap)
    with closing(counts.consumer):
        said = counts.to_the_end(run)
    assert {word: numbers[-1] for word, numbers in said.items()} == dict(counted)
    if guarantee == "exactly_once_v2":
        repeated = {word: numbers for word, numbers in said.items() if numbers != sorted(set(numbers))}
        assert not repeated, "a count was committed twice, or went back"
    made = {topic for topic in admin.list_topics(timeout=30).topics if topic.startswith(f"words-{run}-")}
    assert {name.rpartition("-")[2] for name in made} == {"changelog", "repartition"}
