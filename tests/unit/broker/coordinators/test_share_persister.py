"""States of share partitions at their coordinators: each is asked where it is, and again where it has gone to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kio.schema.delete_share_group_state.v0 import response as deleting
from kio.static.primitive import i32

from barnabas.broker.coordinators import share_persister
from barnabas.broker.coordinators.share_persister import CoordinatorPersister, StatePartition
from barnabas.machines.controller.image import ClusterImage, PartitionImage, TopicImage
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import SHARE_GROUP_STATE
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from kio.schema.delete_share_group_state.v0.request import DeleteShareGroupStateRequest

TOPIC: Final = UUID(int=7)
ALL: Final = frozenset(range(20))


class Cluster:
    """Two brokers that keep states, each on every other partition of their topic; what they answer is a test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code_of: Callable[[int, int], ErrorCode]) -> None:
        self.asked: list[tuple[int, set[int]]] = []
        self._code_of = code_of
        partitions = tuple(PartitionImage(index, 1 + index % 2, 0, (1, 2), (1, 2)) for index in range(4))
        topic = TopicImage(SHARE_GROUP_STATE, UUID(int=1), partitions)
        image = ClusterImage(topics={SHARE_GROUP_STATE: topic}, topic_names={topic.topic_id: topic.name})
        metadata = SimpleNamespace(topic=image.topic, partition=image.partition)
        self.persister = CoordinatorPersister(SimpleNamespace(metadata=metadata))  # type: ignore[arg-type]
        monkeypatch.setattr(share_persister, "ask", self._ask)
        monkeypatch.setattr(share_persister, "FIRST_PAUSE", 0)

    async def _ask(
        self, broker: Any, broker_id: int, request: DeleteShareGroupStateRequest, response_class: type, **how: Any
    ) -> Any:
        (topic,) = request.topics
        partitions = {int(part.partition) for part in topic.partitions}
        self.asked.append((broker_id, partitions))
        results = tuple(
            deleting.PartitionResult(partition=i32(index), error_code=self._code_of(broker_id, len(self.asked)))
            for index in partitions
        )
        return deleting.DeleteShareGroupStateResponse(
            results=(deleting.DeleteStateResult(topic_id=topic.topic_id, partitions=results),)
        )

    async def delete(self) -> set[ErrorCode]:
        codes = await self.persister.delete("g", {TOPIC: ALL})
        assert codes.keys() == {StatePartition(TOPIC, index) for index in ALL}
        return set(codes.values())


async def test_each_state_is_asked_for_at_its_own_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, lambda broker_id, times: ErrorCode.none)
    assert await cluster.delete() == {ErrorCode.none}
    (first, one), (second, other) = cluster.asked
    assert {first, second} == {1, 2}
    assert one | other == ALL
    assert one.isdisjoint(other)


async def test_a_coordinator_that_is_not_ready_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(
        monkeypatch,
        lambda broker_id, times: (
            ErrorCode.coordinator_load_in_progress if broker_id == 1 and times < 4 else ErrorCode.none
        ),
    )
    assert await cluster.delete() == {ErrorCode.none}
    assert sorted(broker_id for broker_id, _ in cluster.asked) == [1, 1, 1, 2]


async def test_a_coordinator_that_refuses_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, lambda broker_id, times: ErrorCode.fenced_state_epoch)
    assert await cluster.delete() == {ErrorCode.fenced_state_epoch}
    assert len(cluster.asked) == 2


async def test_a_coordinator_that_cannot_be_reached_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(broker_id: int, times: int) -> ErrorCode:
        raise ChannelBroken("gone")

    cluster = Cluster(monkeypatch, broken)
    assert await cluster.delete() == {ErrorCode.network_exception}
    assert len(cluster.asked) == 2 * share_persister.TRIES


async def test_a_failure_of_a_coordinator_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(broker_id: int, times: int) -> ErrorCode:
        raise ValueError("a bug")

    assert await Cluster(monkeypatch, fails).delete() == {ErrorCode.unknown_server_error}
