"""What the controller's broker updaters send, and when they begin anew or give up."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.serial import entity_reader
from kio.static.primitive import i32

from barnabas.broker.controller import broker_updaters
from barnabas.broker.controller.broker_updaters import BrokerUpdaters
from barnabas.broker.settings import Settings
from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ErrorCode
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.messages import controller_updates
from barnabas.protocol.messages.inter_broker import (
    FULL,
    REQUESTS,
    RESPONSES,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicError,
    UpdateMetadataRequest,
)
from barnabas.protocol.wire.conversion import zero

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

OWN, OTHER = 1, 2


def broker(broker_id: int, epoch: int = 5) -> BrokerImage:
    return BrokerImage(broker_id=broker_id, epoch=epoch, endpoints={"PLAINTEXT": Endpoint("host", broker_id)})


def image(partition_epoch: int = 0, *brokers: BrokerImage) -> ClusterImage:
    partition = PartitionImage(0, OTHER, partition_epoch, (OWN, OTHER), (OTHER,), partition_epoch)
    topic = TopicImage("t", UUID(int=7), (partition,))
    found = brokers or (broker(OWN), broker(OTHER))
    return ClusterImage(
        controller_id=OWN,
        controller_epoch=1,
        brokers={each.broker_id: each for each in found},
        topics={"t": topic},
        topic_names={topic.topic_id: "t"},
    )


class Peers:
    """Notes what is asked; answers by turns with what it was given, and with success after that."""

    def __init__(self, *answers: ErrorCode | ChannelBroken) -> None:
        self.asked: list[tuple[int, Any]] = []
        self._answers = list(answers)

    async def ask_packed(
        self, broker_id: int, key: int, version: int, body: Sequence[bytes], response_class: type, **_: Any
    ) -> Any:
        await asyncio.sleep(0)  # as over a network: others are asked meanwhile
        request: Any
        request, size = entity_reader(REQUESTS[key])(written := b"".join(body), 0)
        assert (version, size) == (request.__version__, len(written)) and response_class is RESPONSES[key]
        return await self.ask(broker_id, request)

    async def ask(self, broker_id: int, request: Any) -> Any:
        self.asked.append((broker_id, request))
        answer = self._answers.pop(0) if self._answers else ErrorCode.none
        if isinstance(answer, ChannelBroken):
            raise answer
        return zero(RESPONSES[request.__api_key__], error_code=answer)

    def kinds(self) -> list[tuple[type, bool]]:
        """The messages, and whether each was full."""
        return [(type(request), request.type == FULL) for _, request in self.asked]


async def nothing_lost(broker_id: int, keys: object) -> None:
    raise AssertionError(f"broker {broker_id} lost {keys}")


SETTINGS = Settings(BrokerConfig.load({"log.dirs": "/nowhere"}), MetadataCache())


def updaters(peers: Any, lost: Any = nothing_lost) -> BrokerUpdaters:
    return BrokerUpdaters(OWN, peers, SETTINGS, lost)


EVERYTHING = [(LeaderAndIsrRequest, True), (UpdateMetadataRequest, True)]
DIFFERENCE = [(LeaderAndIsrRequest, False), (UpdateMetadataRequest, False)]


async def test_everything_is_sent_first_and_then_what_changed() -> None:
    sending = updaters(peers := Peers())
    sending.publish(image())
    await sending.delivered(5)
    assert peers.kinds() == EVERYTHING
    assert {broker_id for broker_id, _ in peers.asked} == {OTHER}
    sending.publish(image(1))
    await sending.delivered(5)
    assert peers.kinds() == EVERYTHING + DIFFERENCE
    sending.stop()


async def test_after_a_message_without_an_answer_everything_is_sent() -> None:
    sending = updaters(peers := Peers(ErrorCode.none, ErrorCode.none, ChannelBroken("gone")))
    sending.publish(image())
    await sending.delivered(5)
    sending.publish(image(1))
    await sending.delivered(5)
    assert peers.kinds() == [*EVERYTHING, DIFFERENCE[0], *EVERYTHING]
    sending.stop()


async def test_a_broker_that_registered_anew_gets_a_new_updater() -> None:
    sending = updaters(peers := Peers(ErrorCode.stale_broker_epoch))
    sending.publish(image())
    await sending.delivered(5)
    assert len(peers.asked) == 1
    sending.publish(image(1))
    await asyncio.wait_for(sending.delivered(60), 30)
    assert len(peers.asked) == 1
    sending.publish(image(1, broker(OWN), broker(OTHER, epoch=6)))
    await sending.delivered(5)
    assert [request.broker_epoch for _, request in peers.asked] == [5, 6, 6]
    sending.stop()


async def test_what_is_sent_later_has_a_higher_number() -> None:
    sending = updaters(peers := Peers(ErrorCode.none, ChannelBroken("gone")))
    sending.publish(image())
    await sending.delivered(5)
    sending.publish(image(1, broker(OWN), broker(OTHER, epoch=6)))
    await sending.delivered(5)
    numbers = [request.number for _, request in peers.asked]
    assert len(numbers) == 6
    assert numbers == sorted({number for number in numbers if number >= 0})
    sending.stop()


async def test_nobody_waits_for_a_broker_that_is_gone() -> None:
    broken = [ChannelBroken("refused")] * 1000
    sending = updaters(Peers(*broken))
    sending.publish(image())
    await sending.delivered(0.01)
    waiting = asyncio.create_task(sending.delivered(5))
    await asyncio.sleep(0)
    sending.publish(image(1, broker(OWN)))
    await waiting
    sending.stop()


async def test_replicas_that_a_broker_lost_with_a_disk_are_reported() -> None:
    lost: list[tuple[int, object]] = []

    async def note(broker_id: int, keys: object) -> None:
        lost.append((broker_id, keys))

    class LostDisk(Peers):
        async def ask(self, broker_id: int, request: Any) -> Any:
            response = await super().ask(broker_id, request)
            if not isinstance(request, LeaderAndIsrRequest):
                return response
            error = LeaderAndIsrPartitionError(partition_index=i32(0), error_code=ErrorCode.kafka_storage_error)
            topics = (LeaderAndIsrTopicError(topic_id=UUID(int=7), partition_errors=(error,)),)
            return replace(response, topics=topics)

    sending = updaters(peers := LostDisk(), note)
    sending.publish(image())
    await sending.delivered(5)
    assert lost == [(OTHER, [("t", 0)])]
    assert peers.kinds() == EVERYTHING
    sending.stop()


async def test_what_several_brokers_are_sent_is_packed_once_and_in_a_thread_if_it_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[str] = []
    shared = controller_updates.shared

    def noted(request: UpdateMetadataRequest) -> bytes:
        threads.append(threading.current_thread().name)
        return shared(request)

    monkeypatch.setattr(controller_updates, "shared", noted)
    others = [broker(number) for number in range(2, 6)]
    for large, prefix in ((False, "MainThread"), (True, "asyncio")):
        threads.clear()
        if large:
            monkeypatch.setattr(broker_updaters, "LARGE", 1)
        sending = BrokerUpdaters(OWN, peers := Peers(), SETTINGS, nothing_lost)  # type: ignore[arg-type]
        for epoch in range(3):
            sending.publish(image(epoch, broker(OWN), *others))
            await sending.delivered(5)
        assert len(threads) == 3, "for each image once, though there are four brokers"
        assert all(name.startswith(prefix) for name in threads)
        assert len(peers.asked) == 4 * 2 + 2 * (2 + 3), "everything to each, then who leads to the one that it concerns"
        by_broker = {each: [asked for to, asked in peers.asked if to == each] for each in range(2, 6)}
        assert [type(each) for each in by_broker[OTHER]] == [LeaderAndIsrRequest, UpdateMetadataRequest] * 3
        assert [each.broker_epoch for each in by_broker[5]] == [5] * 4
        sending.stop()
