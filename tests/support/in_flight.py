"""Requests that are under way when a broker ends: streams that never wait for one answer before they send the next.

A stream lives on one connection until the broker closes it, in a thread of its own, and goes on with the next broker.
It knows what it has sent and what was acknowledged; what is in between may have come to pass or not.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from tests.support.group_wire import (
    CONSUMER_GROUP_HEARTBEAT,
    JOIN_GROUP,
    NEWEST,
    OFFSET_COMMIT,
    SYNC_GROUP,
    assignment,
    beating,
    committing,
    joining,
)
from tests.support.waiting import wait_until
from tests.support.wire import Connection, read_response, request

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW: Final = 64
"""Commits of one stream that wait for their answers."""
NOT_YET: Final = {14, 15, 16}
"""The coordinator is loading, is being made, or resigns."""


class Stream(ABC):
    """Something that is asked again and again."""

    def __init__(self) -> None:
        self.acknowledged = 0
        """The last number that a broker said is stored."""
        self.failure: BaseException | None = None
        self._thread = threading.Thread()

    @abstractmethod
    def work(self, connection: Connection) -> None:
        """Ask until the connection ends, which may raise an error of the socket or ConnectionEnded."""

    def begin(self, bootstrap: str) -> None:
        """Go on with this broker."""
        self._thread = threading.Thread(target=self._run, args=(bootstrap,), name=type(self).__name__, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until it knows that its broker is gone."""
        self._thread.join(30)
        assert not self._thread.is_alive(), f"{self} still waits for a broker that is gone"
        if self.failure is not None:
            raise AssertionError(f"{self} failed") from self.failure

    def _run(self, bootstrap: str) -> None:
        try:
            with Connection(bootstrap) as connection:
                self.work(connection)
        except (OSError, ConnectionEnded):
            return
        except BaseException as error:  # shown by `end`
            self.failure = error


class ConnectionEnded(Exception):
    """The broker closed the connection."""


class Commits(Stream):
    """Rising offsets for one partition of a topic, committed by nobody in particular."""

    def __init__(self, group: str, topic: str, partition: int) -> None:
        super().__init__()
        self.group = group
        self.sent = 0
        self._topic = topic
        self.partition = partition

    def __str__(self) -> str:
        return f"{self.group}: {self.acknowledged} of {self.sent} commits acknowledged"

    def work(self, connection: Connection) -> None:
        answered = self.sent
        while True:
            frames = b""
            while self.sent - answered < WINDOW:
                self.sent += 1
                frames += self._frame(self.sent)
            connection.socket.sendall(frames)
            for _ in range(WINDOW // 2):
                frame = connection.receive_frame()
                if frame is None:
                    raise ConnectionEnded
                answered += 1
                [topic] = read_response(OFFSET_COMMIT, 9, frame, answered).topics
                [place] = topic.partitions
                if place.error_code == 0:
                    self.acknowledged = answered
                elif place.error_code not in NOT_YET:
                    raise AssertionError(f"{self.group}: a commit was answered with {place.error_code}")

    def _frame(self, offset: int) -> bytes:
        body = request(
            OFFSET_COMMIT, 9, offset, committing(self.group, {"name": self._topic}, offset, index=self.partition)
        )
        return len(body).to_bytes(4, "big") + body


class Generations(Stream):
    """A classic member that joins again and again; `acknowledged` is the last generation it had an assignment in."""

    def __init__(self, group: str, topic: str) -> None:
        super().__init__()
        self.group = group
        self.joined = 0
        """The last generation that it was told of."""
        self._topic = topic
        self._member_id = ""

    def __str__(self) -> str:
        return f"{self.group}: in generation {self.acknowledged}"

    def work(self, connection: Connection) -> None:
        how = {"session_timeout": 60_000, "rebalance_timeout": 60_000}
        while True:
            joined = _ask(connection, JOIN_GROUP, joining(self.group, self._topic, self._member_id, **how))
            if joined.error_code == 79:  # MEMBER_ID_REQUIRED
                self._member_id = joined.member_id
                continue
            if joined.error_code in NOT_YET:
                continue
            assert joined.error_code == 0, joined
            assert joined.generation_id > self.acknowledged, f"generation {joined.generation_id} after {self}"
            self.joined = joined.generation_id
            body = {
                "group_id": self.group,
                "generation_id": joined.generation_id,
                "member_id": self._member_id,
                "protocol_type": "consumer",
                "protocol_name": "range",
                "assignments": [{"member_id": self._member_id, "assignment": assignment(self._topic, 0)}],
            }
            synced = _ask(connection, SYNC_GROUP, body)
            if synced.error_code == 0:
                self.acknowledged = joined.generation_id
            else:
                assert synced.error_code in NOT_YET, synced


class Epochs(Stream):
    """A member of the new protocol that changes its subscription with every heartbeat, and so the group's epoch."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self.group = group
        self._beats = 0

    def __str__(self) -> str:
        return f"{self.group}: in epoch {self.acknowledged}"

    def work(self, connection: Connection) -> None:
        while True:
            self._beats += 1
            how: dict[str, Any] = {"subscribed_topic_names": [f"nowhere-{self._beats % 7}"], "topic_partitions": []}
            if self.acknowledged == 0:
                how["rebalance_timeout"] = 60_000
            answer = _ask(
                connection, CONSUMER_GROUP_HEARTBEAT, beating(self.group, "by-hand", self.acknowledged, **how)
            )
            if answer.error_code in NOT_YET:
                continue
            assert answer.error_code == 0, answer
            assert answer.member_epoch >= self.acknowledged, f"epoch {answer.member_epoch} after {self}"
            self.acknowledged = answer.member_epoch


def wait_until_busy(streams: Sequence[Stream], more: int) -> None:
    """Wait until each stream is so far on with its present broker."""
    before = {stream: stream.acknowledged for stream in streams}

    def busy() -> bool:
        for stream in streams:
            if stream.failure is not None:
                stream.end()
        return all(stream.acknowledged >= before[stream] + more for stream in streams)

    wait_until(busy, f"{more} more answers of each stream: {', '.join(map(str, streams))}")


def _ask(connection: Connection, key: int, body: dict[str, Any]) -> Any:
    connection.send_frame(request(key, NEWEST[key], 1, body))
    frame = connection.receive_frame()
    if frame is None:
        raise ConnectionEnded
    return read_response(key, NEWEST[key], frame, 1)
