"""What becomes of a message: the first word counts, and a block says it by how it ends."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

import pytest

from barnabas.clients.errors import ClientClosed, DeserializationFailed, InvalidClientConfig
from barnabas.clients.queue.message import Decoders, QueueMessage
from barnabas.clients.queue.queue import Queue
from barnabas.clients.records import ConsumerRecord
from barnabas.clients.serializers import JSON, from_bytes
from barnabas.protocol.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from barnabas.clients.queue.leader import HeldRecord


class Held:
    """An acquired record that remembers what was said of it."""

    def __init__(self, value: bytes | None) -> None:
        self.record = ConsumerRecord("orders", 0, 5, 0, 1, b"k", value, delivery_count=2)
        self.said: list[Acknowledgement] = []

    def settle(self, acknowledgement: Acknowledgement) -> Future[None]:
        self.said.append(acknowledgement)
        return Future()


def message(held: Held) -> QueueMessage[bytes, object]:
    return QueueMessage(cast("HeldRecord", held), Decoders(None, from_bytes(JSON)))


def test_a_block_that_ends_well_is_done() -> None:
    held = Held(b"[1]")
    with message(held) as one:
        assert (one.value, one.key, one.deliveries, one.settled) == ([1], b"k", 2, False)
    assert held.said == [Acknowledgement.ACCEPT]


def test_a_block_that_raises_sends_the_message_back() -> None:
    held = Held(b"no json")
    with (
        pytest.raises(DeserializationFailed, match=r"the value of <QueueMessage orders-0@5, delivery 2> cannot"),
        message(held) as one,
    ):
        assert one.value
    assert held.said == [Acknowledgement.RELEASE]


def test_the_first_word_counts() -> None:
    held = Held(None)
    with message(held) as one:
        stored = one.reject()
        assert one.value is None
        assert one.done() is stored is one.retry()
    assert held.said == [Acknowledgement.REJECT]


async def test_asyncio_has_the_same_blocks() -> None:
    held = Held(None)
    async with message(held):
        pass
    assert held.said == [Acknowledgement.ACCEPT]


def test_what_makes_no_queue_is_refused() -> None:
    with pytest.raises(InvalidClientConfig, match="needs a topic"):
        Queue("localhost:1")
    with pytest.raises(InvalidClientConfig, match="prefetch is 0"):
        Queue("localhost:1", "orders", "workers", prefetch=0)
    with Queue("localhost:1", "orders") as queue, pytest.raises(InvalidClientConfig, match="needs a group"):
        queue.get()
    with pytest.raises(ClientClosed):
        queue.send(b"late")
    assert list(queue) == []
