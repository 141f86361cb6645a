"""Where the notes of an exactly-once sink lie: offsets of consumer groups that have no members.

A group offset belongs to a partition that exists; the notes take the first one of `__consumer_offsets`, which is there
as soon as there is a group. A note is read when the transactional id is ours already: no earlier task can change it.

A consumer of librdkafka reads the offsets of one group, and takes a moment to begin. A query has a group for each task,
so notes are read without it, those of many groups at once. They are read one by one only with a login that
`barnabas.clients.security` does not know (Kerberos, OAuth, key stores), and of brokers that are older than such a
question.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from barnabas.clients.admin.groups import Groups
from barnabas.clients.config import open_client
from barnabas.clients.errors import BrokerUnreachable, InvalidClientConfig, RequestRefused, translated
from barnabas.clients.library import load, load_kafka
from barnabas.clients.wire.connection import ANOTHER_COORDINATOR, WireClient
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import on_group
from barnabas.pipelines.spark.client_properties import without_api_timeout
from barnabas.pipelines.spark.write.markers import EpochNote, TaskNote, task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

T = TypeVar("T")
NoteKind = TypeVar("NoteKind", EpochNote, TaskNote)

PLACE: Final = ("__consumer_offsets", 0)
ASK_SECONDS: Final = 10.0
TIMEOUT_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 0.2
PASSING: Final = ANOTHER_COORDINATOR | {ErrorCode.unstable_offset_commit}
"""Refusals of a coordinator that is starting or moving, or waits for the end of a transaction."""


class MarkerGroup:
    """One group, and the one offset that it has."""

    def __init__(self, name: str, client: Mapping[str, str]) -> None:
        self._kafka = load_kafka()
        self._name = name
        own = {"group.id": name, "enable.auto.commit": False, "log_level": 0}
        self._consumer = open_client(self._kafka, "Consumer", {**without_api_timeout(client), **own})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self) -> tuple[int, str] | None:
        """Offset and metadata; None if there is no offset."""
        asked = [self._kafka.TopicPartition(*PLACE)]
        (found,) = self._request("read", lambda: self._consumer.committed(asked, ASK_SECONDS))
        return (found.offset, found.metadata or "") if found.offset >= 0 else None

    def write(self, offset: int, text: str) -> None:
        """Commit it, outside of any transaction."""
        wanted = [self.place(offset, text)]
        self._request("write", lambda: self._consumer.commit(offsets=wanted, asynchronous=False))

    def place(self, offset: int, text: str) -> Any:
        """The offset as confluent-kafka has it, to be sent with a transaction."""
        return self._kafka.TopicPartition(*PLACE, offset, text)

    def metadata(self) -> Any:
        """What a transaction needs to know of the group."""
        return self._consumer.consumer_group_metadata()

    def _request(self, doing: str, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                return ask()
            except self._kafka.KafkaException as failure:
                error = failure.args[0]
                if not _passes(error) or time.monotonic() > deadline:
                    action = on_group(f"{doing} the offset of", "Read", self._name)
                    raise translated(error, f"{doing} the offset of the group {self._name}", action) from failure
            time.sleep(RETRY_SECONDS)


def read_note(kind: type[NoteKind], name: str, client: Mapping[str, str]) -> NoteKind | None:
    """The note that a group has; None if it has none. Raises MarkerRefused."""
    found = _read([name], client).get(name)
    return None if found is None else kind.of(*found)


def task_notes(query: str, client: Mapping[str, str]) -> dict[int, TaskNote]:
    """The notes of all tasks that a query ever had, by their number. Raises MarkerRefused."""
    tasks = {name: task for name in _all_groups(client) if (task := task_of(name, query)) is not None}
    found = _read(tasks, client)
    return {tasks[name]: TaskNote.of(*note) for name, note in found.items()}


def _read(names: Collection[str], client: Mapping[str, str]) -> dict[str, tuple[int, str]]:
    """Offset and metadata of groups, without those that have none."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            with Groups(WireClient(client["bootstrap.servers"], properties=client)) as groups:
                found = groups.settled(names, TopicPartition(*PLACE))
            # librdkafka ends the text that it sends with a zero, as C does.
            return {name: (note.offset, note.metadata.rstrip("\0")) for name, note in found.items()}
        except InvalidClientConfig:
            break
        except RequestRefused as error:
            if error.code == ErrorCode.unsupported_version:
                break
            if error.code not in PASSING or time.monotonic() > deadline:
                raise
        except BrokerUnreachable:
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_SECONDS)
    one_by_one = {}
    for name in names:
        with MarkerGroup(name, client) as group:
            if (note := group.read()) is not None:
                one_by_one[name] = note
    return one_by_one


def _all_groups(client: Mapping[str, str]) -> list[str]:
    """All groups of the cluster. A broker that does not name its own is asked again: a replay depends on them all."""
    load("confluent_kafka.admin", "clients")
    kafka = load_kafka()
    admin = open_client(kafka.admin, "AdminClient", {**without_api_timeout(client), "log_level": 0})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            found = admin.list_consumer_groups(request_timeout=ASK_SECONDS).result()
            errors = list(found.errors)  # KafkaErrors, although they are said to be exceptions
        except kafka.KafkaException as failure:
            errors = [failure.args[0]]
        if not errors:
            return [group.group_id for group in found.valid]
        if not _passes(errors[0]) or time.monotonic() > deadline:
            raise translated(errors[0], "list the groups")
        time.sleep(RETRY_SECONDS)


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
