"""The broker under attack: how it is asked, how its memory is watched."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.support.wire import Connection, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 18, 19
MEMORY: Final = 96_000_000
"""What a broker may take on top of what it had, however it is abused by one client."""
TOPIC: Final = "victim"
OPENED: Final = "opened"
"""A topic that keeps its records uncompressed: the broker has to open every compressed batch."""
THREE: Final = [b"one", b"two", b"three"]


class Victim(NamedTuple):
    """The broker under attack, and a client of it that minds its own business."""

    bootstrap: str
    bystander: Connection
    memory: Callable[[], int]


def produce(connection: Connection, records: bytes | None, acks: int = 1, topic: str = TOPIC) -> dict[str, Any]:
    """The answer for one partition."""
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    answer = connection.ask(PRODUCE, 9, {"acks": acks, "timeout": 10_000, "topic_data": topics})
    found: dict[str, Any] = plain(answer)["responses"][0]["partition_responses"][0]
    return found


def end_offset(connection: Connection, topic: str = TOPIC) -> int:
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    answer = plain(connection.ask(LIST_OFFSETS, 7, {"replica_id": -1, "topics": topics}))
    return int(answer["topics"][0]["partitions"][0]["offset"])


@contextlib.contextmanager
def watched(broker: Victim) -> Iterator[list[int]]:
    """What memory the broker has while the block runs, asked every few milliseconds."""
    seen = [broker.memory()]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.005):
            seen.append(broker.memory())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()
