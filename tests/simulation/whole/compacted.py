"""A compacted topic: whatever the cleaner removes, the last value of a key stays, and an older one never comes back.

A producer writes values and tombstones for a few keys to one partition, one batch at a time. At the end the log is read
from its start: it holds nothing that was not sent, and for each key nothing older than the last that was acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record
from tests.simulation.whole.clock import BEGAN_MS
from tests.simulation.whole.consumers import Consumer
from tests.simulation.whole.producers import Producer

if TYPE_CHECKING:
    from tests.history.checker import Record as Read
    from tests.simulation.whole.history import Log

TOPIC: Final = "k"
KEYS: Final = 5
SETTINGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "2000"}


class Update(NamedTuple):
    """A key got a value; a tombstone if it is empty."""

    key: str
    value: str
    offset: int


class KeyedProducer(Producer):
    """Writes values for keys."""

    def _next_values(self, partition: int, sequence: int) -> list[str]:
        chance = self._client.chance
        values = []
        for number in range(chance.choice((1, 1, 2, 4))):
            key = f"{self._client.name}-{chance.randrange(KEYS)}"
            values.append(f"{key}={'' if chance.random() < 0.15 else sequence + number}")
        self._log.keyed_sent.update(values)
        return values

    def _stored(self, partition: int, values: list[str], base_offset: int) -> None:
        for number, each in enumerate(values):
            key, _, value = each.partition("=")
            if base_offset >= 0:
                self._log.keyed[key] = Update(key, value, base_offset + number)
            else:  # it is stored, and nobody knows where: what is known of the key before it says nothing any more
                self._log.keyed.pop(key, None)

    def _batch(self, sequence: int, values: list[str]) -> bytes:
        pairs = [each.partition("=") for each in values]
        return build_batch(
            [Record(number, 0, key.encode(), value.encode() or None) for number, (key, _, value) in enumerate(pairs)],
            base_timestamp=BEGAN_MS,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
        )


class KeyedReader(Consumer):
    """Reads keys with their values."""

    def _text(self, key: bytes | None, value: bytes | None) -> str | None:
        return f"{(key or b'').decode()}={(value or b'').decode()}"


def judge_keys(log: Log, final: list[Read]) -> list[str]:
    """What the compacted topic has lost or made up."""
    found: dict[str, Update] = {}
    wrong: list[str] = []
    for record in final:
        key, _, value = record.value.partition("=")
        if record.value not in log.keyed_sent:
            wrong.append(f"{record.value!r} at {record.offset} of the compacted topic was never sent")
        if key in found and found[key].offset >= record.offset:
            wrong.append(f"{record.value!r} at {record.offset} of the compacted topic comes after {found[key]}")
        found[key] = Update(key, value, record.offset)
    for key, last in log.keyed.items():
        there = found.get(key)
        if there is None and last.value:
            wrong.append(f"the last value of {key} is lost: {last}")
        elif there is not None and there.offset < last.offset and (there.value or last.value):
            wrong.append(f"the last value of {key} was {last}, and is {there}")
        elif there is not None and there.offset == last.offset and there.value != last.value:
            wrong.append(f"the last value of {key} was {last}, and is {there} now")
    return wrong
