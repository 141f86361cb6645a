"""A snapshot of producers is encoded in a thread, while they go on: it has what was known when it was taken."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from barnabas.storage.producers.state import FrozenProducers, ProducerStates
from tests.support.logs import NOW, append, batch, new_log

if TYPE_CHECKING:
    from pathlib import Path

PRODUCERS = 6


class Producers:
    """Producers that do something by chance, beside the same ones that are never frozen."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._offset = 0
        self.states, self.plain = ProducerStates(), ProducerStates()

    def step(self) -> None:
        producer_id = self._chance.randrange(PRODUCERS)
        entry = next(iter(self.plain.describe([producer_id])), None)
        epoch, sequence = (0, 0) if entry is None else (entry.producer_epoch, entry.last_sequence + 1)
        match self._chance.randrange(5):
            case 0:
                self._end(producer_id, epoch + self._chance.randrange(2))
            case 1:
                for states in (self.states, self.plain):
                    states.remember(producer_id, epoch, [(0, -1, 0, NOW)])
            case _:
                transactional = self.plain.open_since(producer_id) is not None or self._chance.random() < 0.5
                for states in (self.states, self.plain):
                    if states.next_of(producer_id, epoch, sequence) is None:
                        assert states.check(producer_id, epoch, sequence, 0, transactional) is None
                    states.record(producer_id, epoch, sequence, self._offset, 0, NOW + self._offset, transactional)
        self._offset += 1

    def _end(self, producer_id: int, epoch: int) -> None:
        end = EndOfTransaction(ControlType.ABORT, 3)
        data = build_marker(end, timestamp=NOW + self._offset, producer_id=producer_id, producer_epoch=epoch)
        header = read_header(self._offset.to_bytes(8, "big") + data[8:])
        assert self.states.end_transaction(header, end) == self.plain.end_transaction(header, end)

    def check(self) -> None:
        assert known(self.states) == known(self.plain)
        assert len(self.states) == len(self.plain)
        assert self.states.ends() == self.plain.ends()
        assert sorted(self.states.ids()) == sorted(self.plain.ids())
        for producer_id in range(PRODUCERS):
            assert (producer_id in self.states) == (producer_id in self.plain)
            assert self.states.open_since(producer_id) == self.plain.open_since(producer_id)


def known(states: ProducerStates) -> list[tuple[int, ...]]:
    return sorted(states.describe())


def decoded(content: bytes) -> list[tuple[int, ...]]:
    return known(ProducerStates.decode(content, 1))


@pytest.mark.parametrize("seed", range(100))
def test_what_was_frozen_stays_and_what_is_known_goes_on(seed: int) -> None:
    chance = random.Random(seed)
    producers = Producers(chance)
    taken: list[tuple[FrozenProducers, bytes]] = []
    for _ in range(80):
        producers.step()
        if chance.random() < 0.15:
            taken.append((producers.states.freeze(), producers.plain.encode()))
        if chance.random() < 0.1:
            for frozen, expected in taken:
                assert decoded(frozen.encode()) == decoded(expected)
            taken.clear()
            producers.states.thaw()
        producers.check()
    for frozen, expected in taken:
        assert decoded(frozen.encode()) == decoded(expected)
    producers.states.thaw()
    producers.check()
    producers.states.expire(NOW + 1000)
    producers.plain.expire(NOW + 1000)
    producers.check()


def test_a_segment_begins_without_a_look_at_its_producers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes long for many of them is done by the flush, which runs in a thread."""
    encodings = 0
    encode = FrozenProducers.encode

    def counted(self: FrozenProducers) -> bytes:
        nonlocal encodings
        encodings += 1
        return encode(self)

    monkeypatch.setattr(FrozenProducers, "encode", counted)
    log = new_log(tmp_path, LogConfig(segment_bytes=700))
    for number in range(20):
        append(log, batch(1, size=50, producer_id=number % 3, sequence=number // 3))
    rolled = [segment.base_offset for segment in log.segments[1:]]
    assert len(rolled) > 2
    assert encodings == 0
    log.flush()
    assert encodings == len(rolled)
    for offset in rolled:
        states = log.producers.snapshots.load(offset)
        assert states is not None
        assert states.end_offset == offset
        assert {last for last, _ in states.ends().values()} == set(range(max(offset - 3, 0), offset))
    assert log.producers.states._frozen == ()
