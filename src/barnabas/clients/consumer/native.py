"""librdkafka's consumer: the calls that the engine makes, with their errors as ours.

Partitions and offsets go in and come out as `TopicPartition` and int. All calls that ask a broker wait for its answer,
at most TIMEOUT seconds. After `close` and in a forked child, every call raises ClientClosed.
"""

from __future__ import annotations

import re
import time
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.closed import Closed, left_in_parent
from barnabas.clients.config import log
from barnabas.clients.consumer.patterns import compile_prefix
from barnabas.clients.errors import InvalidClientConfig, RequestRefused, translated
from barnabas.clients.limits import within
from barnabas.clients.records import TopicPartition
from barnabas.model.errors import ErrorCode
from barnabas.model.numbers import MAX_INT64
from barnabas.model.permissions import read_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.model.base_error import BarnabasError

BEGINNING: Final = -2
END: Final = -1
"""Offsets that stand for the ends of a log, as librdkafka and Kafka have them."""
TIMEOUT: Final = 30.0
"""How long a broker may take to answer, in seconds."""
GIVE_BACK_SECONDS: Final = 5.0
"""How long `close` waits for a rebalance callback."""
_RETRY_SEEK_SECONDS: Final = 0.005
_RETRY_TOPIC_SECONDS: Final = 0.05


class NativeConsumer:
    """A consumer of confluent-kafka, and its group, if it has one."""

    def __init__(self, kafka: Any, client: Any, *, group_id: str | None) -> None:
        self.kafka = kafka
        """The module confluent_kafka."""
        self.client = client
        self.group_id = group_id
        self.closed = False

    def translated(self, error: Any, doing: str, topic: str | None = None) -> BarnabasError:
        """An error of librdkafka as one of ours; what this consumer needs is to read the topic, if one is meant."""
        return translated(error, doing, read_from(topic, self.group_id))

    def call(self, doing: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call of librdkafka's; `doing` is what its error begins with."""
        try:
            return call(*arguments)
        except self.kafka.KafkaException as error:
            raise self.translated(error.args[0], doing) from error

    def ask(self, kept: list[Any], doing: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """As `call`, for a question to brokers; its answer stays in `kept`, and is taken from there the next time.

        It is there without an instruction of Python's in between. So a signal handler that raises while brokers are
        asked costs nothing: a program with many signals would ask for ever.
        """
        if not kept:
            questions = [(argument,) for argument in arguments]
            self.call(doing, kept.extend, map(call, *questions))
        return kept[0]

    def place(self, partition: TopicPartition, offset: int) -> Any:
        """A partition and an offset as librdkafka takes them. Raises InvalidClientConfig if no log has the offset."""
        within(f"offset of {partition}", offset, BEGINNING, MAX_INT64)
        return self.kafka.TopicPartition(*partition, offset)

    def require_open(self) -> None:
        """Raise ClientClosed after `close` and in a forked child, where nothing else would ask librdkafka."""
        if isinstance(self.client, Closed):
            self.client.commit()

    def require_group(self, doing: str) -> None:
        """Raise InvalidClientConfig for what only members of a group can do."""
        if self.group_id is None:
            raise InvalidClientConfig(f"to {doing}, a consumer needs a group: give group_id=")

    # Partitions and where they are read

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are being read now."""
        return sorted(TopicPartition(p.topic, p.partition) for p in self.client.assignment())

    def positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last message that librdkafka gave of each partition; below 0 if it gave none."""
        found = self.call("position", self.client.position, self._plain(partitions))
        return {TopicPartition(p.topic, p.partition): p.offset for p in found}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Let librdkafka go on at an offset; waits for a partition that was only just assigned."""
        place = self.place(partition, offset)
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self.client.seek(place)
            except self.kafka.KafkaException as failure:
                error = failure.args[0]
                # For a moment after an assignment the partition is not read yet, and cannot be moved.
                starting = error.code() == error._STATE and partition in self.assignment()
                if not starting or time.monotonic() > deadline:
                    raise self.translated(error, f"seek {partition} to {offset}", partition.topic) from failure
                time.sleep(_RETRY_SEEK_SECONDS)
            else:
                return

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch nothing of these partitions for now."""
        self.call("pause", self.client.pause, self._plain(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these partitions again."""
        self.call("resume", self.client.resume, self._plain(partitions))

    # What brokers know

    def partitions(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic; waits a moment for one that is just being made."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self._list_topics(topic)[topic]
            if found.partitions:
                return [TopicPartition(topic, number) for number in sorted(found.partitions)]
            if found.error is not None and found.error.code() == self.kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self.translated(found.error, f"partitions of {topic}", topic)
            being_made = found.error is not None and found.error.code() == self.kafka.KafkaError.LEADER_NOT_AVAILABLE
            if not being_made or time.monotonic() > deadline:
                raise RequestRefused(ErrorCode.unknown_topic_or_partition, f"topic {topic} does not exist")
            time.sleep(_RETRY_TOPIC_SECONDS)

    def matching_partitions(self, topics: list[str | re.Pattern[str]]) -> list[TopicPartition]:
        """All partitions of topics that are named, or whose names match a pattern now."""
        names = {topic for topic in topics if isinstance(topic, str) and not topic.startswith("^")}
        matches = [
            topic.fullmatch if isinstance(topic, re.Pattern) else compile_prefix(topic).match
            for topic in topics
            if topic not in names
        ]
        if matches:
            names |= {name for name in self._list_topics() if any(match(name) for match in matches)}
        return [partition for name in sorted(names) for partition in self.partitions(name)]

    def committed(
        self, partitions: Iterable[TopicPartition], kept: list[Any] | None = None
    ) -> dict[TopicPartition, int | None]:
        """The committed offset of each partition; None where there is none. See `ask` for `kept`.

        Where a transaction that commits offsets is not decided yet, that is waited for.
        """
        self.require_group("ask for committed offsets")
        kept = [] if kept is None else kept
        found = self.ask(kept, "committed offsets", self.client.committed, self._plain(partitions), TIMEOUT)
        for place in found:
            if place.error is not None:
                kept.clear()  # the next time it may be another answer
                raise self.translated(place.error, f"committed offset of {place.topic}-{place.partition}", place.topic)
        return {TopicPartition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in found}

    def offsets_at(self, timestamp: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset at or after a time (milliseconds) in each partition; its end where nothing is that young."""
        found = self._list_offsets(timestamp, partitions)
        return {partition: offset if offset >= 0 else self.ends(partition)[1] for partition, offset in found.items()}

    def last_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record that may be read of each partition, asked for all together."""
        return self._list_offsets(END, partitions)

    def ends(self, partition: TopicPartition, kept: list[Any] | None = None) -> tuple[int, int]:
        """Where the partition's log begins, and the offset after its last record that may be read; see `ask`."""
        (place,) = self._plain([partition])
        kept = [] if kept is None else kept
        low, high = self.ask(kept, f"ends of {partition}", self.client.get_watermark_offsets, place, TIMEOUT)
        return low, high

    def group_metadata(self) -> Any:
        """What a transaction needs to know of the group."""
        self.require_group("take part in a transaction")
        return self.client.consumer_group_metadata()

    # Offsets to commit

    def store(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Store offsets for librdkafka's next automatic commit."""
        places = [self.kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            self.client.store_offsets(offsets=places)
        except self.kafka.KafkaException as error:
            # A partition that was revoked meanwhile: its new owner reads from the last commit.
            if error.args[0].code() != error.args[0]._STATE:
                raise self.translated(error.args[0], "store offsets") from error

    def commit(self, offsets: Mapping[Any, int], *, wait: bool) -> None:
        """Commit offsets. Raises the error of the first partition that has one."""
        places = [self.kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
        try:
            answer = self.client.commit(offsets=places, asynchronous=not wait)
        except self.kafka.KafkaException as error:
            raise self.translated(error.args[0], "commit") from error
        for partition in answer or ():
            if partition.error is not None:
                raise self.translated(
                    partition.error, f"commit {partition.topic}-{partition.partition}", partition.topic
                )

    # The end

    def close(self, timeout: float | None, *, subscribed: bool) -> None:
        """Leave the group; after `timeout` seconds without waiting for its answer.

        librdkafka waits for brokers that are away as long as for a session of the group. It does so in a thread that
        may be left behind; partitions are given back before, so that rebalance callbacks run here.
        """
        client = self.client
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            if subscribed:
                self._give_back()
            failed: list[BaseException] = []

            def close() -> None:
                try:
                    client.close()
                except BaseException as error:
                    failed.append(error)

            closing = Thread(target=close, name="barnabas-consumer-close", daemon=True)
            closing.start()
            closing.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if closing.is_alive():
                log.warning(
                    "The consumer could not leave its group within %g s and closes without the group's answer. Other "
                    "members take over its partitions after session.timeout.ms, from the last committed offsets.",
                    timeout,
                )
            for error in failed:
                raise self.translated(error.args[0], "close") if isinstance(error, self.kafka.KafkaException) else error
        finally:
            self.client = Closed("the consumer")

    def forked(self) -> None:
        """In a child of this process: the group has the parent for a member, not this one."""
        self.client = left_in_parent("the consumer", self.client)
        self.closed = True

    def _give_back(self) -> None:
        """Give the partitions back to the group; librdkafka needs no broker for this, but somebody who polls."""
        self.client.unsubscribe()
        deadline = time.monotonic() + GIVE_BACK_SECONDS
        while self.client.assignment() and time.monotonic() < deadline:
            self.client.poll(0.01)

    def _plain(self, partitions: Iterable[TopicPartition]) -> list[Any]:
        return [self.kafka.TopicPartition(*partition) for partition in partitions]

    def _list_topics(self, *topic: str) -> Any:
        return self.call("list topics", lambda: self.client.list_topics(*topic, timeout=TIMEOUT)).topics

    def _list_offsets(self, timestamp: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        places = [self.kafka.TopicPartition(*partition, timestamp) for partition in partitions]
        found = self.call("offsets by time", self.client.offsets_for_times, places, TIMEOUT)
        for place in found:
            if place.error is not None:
                raise self.translated(place.error, f"offsets by time of {place.topic}-{place.partition}", place.topic)
        return {TopicPartition(place.topic, place.partition): place.offset for place in found}
