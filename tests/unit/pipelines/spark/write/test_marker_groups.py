"""How the notes of an exactly-once sink are found, over groups that the test makes up."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import KafkaError

from barnabas.clients.admin.groups import Committed
from barnabas.clients.errors import BrokerSilent, RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.pipelines.spark.write import marker_groups
from barnabas.pipelines.spark.write.marker_groups import task_notes
from barnabas.pipelines.spark.write.markers import TaskNote
from barnabas.pipelines.spark.write.rows import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from barnabas.model.ids import TopicPartition

CLIENT = {"bootstrap.servers": "any"}
TEXT = "rows=2 hash=00000000000000ff run=r"
NOTE = TaskNote(3, "r", Fingerprint(2, 0xFF))
NAMES = ["barnabas-sink-q-0", "barnabas-sink-q-1", "barnabas-sink-other-0", "barnabas-sink-q"]


class Lists:
    """An admin client of librdkafka; each answer is a list of groups, and what went wrong at other brokers."""

    def __init__(self, *answers: tuple[Sequence[str], Iterable[int]]) -> None:
        self._answers = deque(answers)

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        names, errors = self._answers.popleft() if len(self._answers) > 1 else self._answers[0]
        future = Future[Any]()
        valid = [SimpleNamespace(group_id=name) for name in names]
        future.set_result(SimpleNamespace(valid=valid, errors=list(map(KafkaError, errors))))
        return future


class OneByOne:
    """A consumer of librdkafka, which reads the note of its own group."""

    def __init__(self, name: str, _: object) -> None:
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def read(self) -> tuple[int, str] | None:
        return (4, TEXT) if self._name.endswith("-1") else None


class Together:
    """Groups over the wire."""

    asked: list[list[str]]
    refusals: list[ErrorCode]

    def __init__(self, _: object) -> None:
        """Any cluster will do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def settled(self, names: Collection[str], _: TopicPartition) -> dict[str, Committed]:
        self.asked.append(list(names))
        if self.refusals:
            raise RequestRefused(self.refusals.pop(0), "not now")
        return {name: Committed(4, metadata=TEXT + "\0") for name in names if name.endswith("-0")}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> type[Together]:
    """A cluster that takes any connection, asked without a pause."""
    Together.asked, Together.refusals = [], []
    monkeypatch.setattr(marker_groups, "RETRY_SECONDS", 0)
    monkeypatch.setattr(marker_groups, "WireClient", lambda *_, **__: None)
    monkeypatch.setattr(marker_groups, "Groups", Together)
    monkeypatch.setattr(marker_groups, "MarkerGroup", OneByOne)
    return Together


def listed(monkeypatch: pytest.MonkeyPatch, *answers: tuple[Sequence[str], Iterable[int]]) -> None:
    monkeypatch.setattr(marker_groups, "open_client", lambda *_: Lists(*answers))


def test_notes_of_all_tasks_are_read_at_once(monkeypatch: pytest.MonkeyPatch, cluster: type[Together]) -> None:
    listed(monkeypatch, (NAMES, ()))
    assert task_notes("q", CLIENT) == {0: NOTE}
    assert cluster.asked == [["barnabas-sink-q-0", "barnabas-sink-q-1"]]


def test_a_login_that_only_librdkafka_knows_reads_them_one_by_one(
    monkeypatch: pytest.MonkeyPatch, cluster: type[Together]
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(marker_groups, "MarkerGroup", OneByOne)
    listed(monkeypatch, (NAMES, ()))
    kerberos = CLIENT | {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
    assert task_notes("q", kerberos) == {1: NOTE}
    assert not cluster.asked


def test_a_broker_that_cannot_tell_of_many_groups_is_asked_one_by_one(
    monkeypatch: pytest.MonkeyPatch, cluster: type[Together]
) -> None:
    listed(monkeypatch, (NAMES, ()))
    cluster.refusals = [ErrorCode.unsupported_version]
    assert task_notes("q", CLIENT) == {1: NOTE}


def test_a_coordinator_that_is_coming_is_waited_for(monkeypatch: pytest.MonkeyPatch, cluster: type[Together]) -> None:
    listed(monkeypatch, (NAMES, ()))
    cluster.refusals = [
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.unstable_offset_commit,
    ]
    assert task_notes("q", CLIENT) == {0: NOTE}
    cluster.refusals = [ErrorCode.group_authorization_failed]
    with pytest.raises(RequestRefused, match="not now"):
        task_notes("q", CLIENT)


def test_a_list_that_lacks_the_groups_of_a_broker_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    listed(monkeypatch, ([], [KafkaError._TIMED_OUT]), ([], [KafkaError.COORDINATOR_LOAD_IN_PROGRESS]), (NAMES, ()))
    assert task_notes("q", CLIENT) == {0: NOTE}
    listed(monkeypatch, (NAMES, [KafkaError.CLUSTER_AUTHORIZATION_FAILED]))
    with pytest.raises(RequestRefused, match="list the groups"):
        task_notes("q", CLIENT)
    monkeypatch.setattr(marker_groups, "TIMEOUT_SECONDS", 0)
    listed(monkeypatch, (NAMES, [KafkaError._TIMED_OUT]))
    with pytest.raises(BrokerSilent, match="list the groups"):
        task_notes("q", CLIENT)
