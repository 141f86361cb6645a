"""What `send` does when librdkafka's buffer is full: wait for room, raise, or discard the record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from barnabas.clients.config import log
from barnabas.clients.errors import BufferFull, InvalidClientConfig

if TYPE_CHECKING:
    from barnabas.clients.producer.native import NativeProducer

WhenFull: TypeAlias = Literal["block", "raise", "discard"]


class FullBuffer:
    """The policy of one producer for a buffer without room."""

    def __init__(self, native: NativeProducer, when_full: WhenFull, max_block: float) -> None:
        self._native = native
        self._warned = False
        self.discards = when_full == "discard"
        """Whether the new record is discarded."""
        self.timeout = max_block if when_full == "block" else 0.0
        """For how many seconds `send` waits for room."""

    def error(self, topic: str, waited: float) -> BufferFull:
        """A record found no room, after so many seconds."""
        after = f" after {waited:g} s" if waited else ""
        return BufferFull(
            f"record for {topic}: the buffer is full{after}, with {len(self._native.client)} records on their way. "
            "Records are sent faster than the broker takes them, or it is out of reach"
        )

    def discard(self, topic: str) -> BufferFull:
        """A record is discarded; the log says so once."""
        if not self._warned:
            self._warned = True
            log.warning('The producer\'s buffer is full: new records are discarded (when_full="discard").')
        return self.error(topic, 0)


def require_policy(when_full: str) -> None:
    """Raise InvalidClientConfig for what is none of the policies."""
    if when_full not in ("block", "raise", "discard"):
        raise InvalidClientConfig(f"when_full is {when_full!r}, and not block, raise or discard")
