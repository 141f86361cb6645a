"""Where the notes of an exactly-once sink lie: offsets of consumer groups that have no members.

A group offset belongs to a partition that exists; the notes take the first one of `__consumer_offsets`, which is there
as soon as there is a group. A note is read when the transactional id is ours already: no earlier task can change it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from barnabas.clients.config import open_client
from barnabas.clients.errors import translated
from barnabas.clients.library import load, load_kafka
from barnabas.pipelines.markers import EpochNote, TaskNote, task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")
Note = TypeVar("Note", EpochNote, TaskNote)

PLACE: Final = ("__consumer_offsets", 0)
ASK_SECONDS: Final = 10.0
PATIENCE: Final = 60.0
RETRY_SECONDS: Final = 0.2


class MarkerGroup:
    """One group, and the one offset that it has."""

    def __init__(self, name: str, client: Mapping[str, str]) -> None:
        self._kafka = load_kafka()
        self._name = name
        self._consumer = open_client(
            self._kafka, "Consumer", {**client, "group.id": name, "enable.auto.commit": False, "log_level": 0}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> tuple[int, str] | None:
        """Offset and metadata; None if there is no offset."""
        asked = [self._kafka.TopicPartition(*PLACE)]
        (found,) = self._asked("read", lambda: self._consumer.committed(asked, ASK_SECONDS))
        return (found.offset, found.metadata or "") if found.offset >= 0 else None

    def write(self, offset: int, text: str) -> None:
        """Commit it, outside of any transaction."""
        wanted = [self.place(offset, text)]
        self._asked("write", lambda: self._consumer.commit(offsets=wanted, asynchronous=False))

    def place(self, offset: int, text: str) -> Any:
        """The offset as confluent-kafka has it, to be sent with a transaction."""
        return self._kafka.TopicPartition(*PLACE, offset, text)

    def metadata(self) -> Any:
        """What a transaction needs to know of the group."""
        return self._consumer.consumer_group_metadata()

    def _asked(self, doing: str, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as failure:
                error = failure.args[0]
                if not _passes(error) or time.monotonic() > deadline:
                    raise translated(error, f"{doing} the offset of the group {self._name}") from failure
            time.sleep(RETRY_SECONDS)


def read_note(kind: type[Note], name: str, client: Mapping[str, str]) -> Note | None:
    """The note that a group has; None if it has none. Raises MarkerRefused."""
    with MarkerGroup(name, client) as group:
        found = group.read()
    return None if found is None else kind.of(*found)


def task_notes(query: str, client: Mapping[str, str]) -> dict[int, TaskNote]:
    """The notes of all tasks that a query ever had, by their number."""
    load("confluent_kafka.admin", "clients")
    kafka = load_kafka()
    admin = open_client(kafka.admin, "AdminClient", {**client, "log_level": 0})
    try:
        groups = [group.group_id for group in admin.list_consumer_groups(request_timeout=PATIENCE).result().valid]
    except kafka.KafkaException as failure:
        raise translated(failure.args[0], "list the groups") from failure
    found = {task: read_note(TaskNote, name, client) for name in groups if (task := task_of(name, query)) is not None}
    return {task: note for task, note in found.items() if note is not None}


def _passes(error: Any) -> bool:
    """Whether it may work in a moment: brokers come back, and coordinators move."""
    return error.retriable() or error.code() in (
        error._TRANSPORT,
        error._ALL_BROKERS_DOWN,
        error._TIMED_OUT,
        error._WAIT_COORD,
        error.COORDINATOR_LOAD_IN_PROGRESS,
        error.COORDINATOR_NOT_AVAILABLE,
        error.NOT_COORDINATOR,
        error.UNSTABLE_OFFSET_COMMIT,
    )
