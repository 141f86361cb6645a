"""What a dead letter says of the message that a queue's group gave up (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.ids import TopicPartition
from barnabas.protocol import dead_letters as headers
from barnabas.protocol.dead_letters import GivenUp

if TYPE_CHECKING:
    from barnabas.clients.records import ConsumerRecord

__all__ = ["DeadLetter"]

LONGEST_NUMBER: Final = 20


class DeadLetter(NamedTuple):
    """Where a message is that was given up, who gave it up, and why. The message itself may be copied beside it."""

    topic: str
    partition: int
    offset: int
    group: str
    deliveries: int | None
    """How often it was delivered, if the broker knew."""
    reason: str
    """Why it was given up, in the broker's words."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that has the message, as long as retention leaves it there."""
        return TopicPartition(self.topic, self.partition)

    @property
    def rejected(self) -> bool:
        """Whether a worker rejected it; otherwise its deliveries were used up."""
        return self.reason.startswith(GivenUp.REJECTED.value)

    @staticmethod
    def of(record: ConsumerRecord[Any, Any]) -> DeadLetter | None:
        """What a record says as a dead letter; None if it is none."""
        topic, partition, offset = (_text(record, name) for name in (headers.TOPIC, headers.PARTITION, headers.OFFSET))
        if not (topic and _is_number(partition) and _is_number(offset)):
            return None
        deliveries = _text(record, headers.DELIVERY_COUNT)
        return DeadLetter(
            topic,
            int(partition),
            int(offset),
            _text(record, headers.GROUP),
            int(deliveries) if _is_number(deliveries) else None,
            _text(record, headers.MESSAGE),
        )


def _is_number(text: str) -> bool:
    """Whether it can be an offset: anybody can write such headers."""
    return text.isascii() and text.isdecimal() and len(text) < LONGEST_NUMBER


def _text(record: ConsumerRecord[Any, Any], name: str) -> str:
    return (record.header(name) or b"").decode(errors="replace")
