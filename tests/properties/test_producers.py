"""However a log was stopped, rolled or cut: a producer may repeat each of its last five batches, and no other."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from barnabas.model.errors import OutOfOrderSequence
from barnabas.storage.producers.recall import ReadBackNeeded
from tests.support.logs import NOW, append, batch, new_log, recovered, reopened

PRODUCERS = st.sampled_from([7, 8, 9])
IN_FLIGHT = 5


class Sent(NamedTuple):
    """A batch that was stored."""

    data: bytes
    base_offset: int
    last_offset: int


class Producers(RuleBasedStateMachine):
    """Producers of one log, each of which remembers all that it sent in its present epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.log = new_log(Path(self.folder.name))
        self.epochs = dict.fromkeys((7, 8, 9), 0)
        self.sent: dict[int, list[Sent]] = {7: [], 8: [], 9: []}

    def teardown(self) -> None:
        self.log.close()
        self.folder.cleanup()

    @rule(producer=PRODUCERS, count=st.integers(1, 4))
    def send(self, producer: int, count: int) -> None:
        sequence = sum(each.last_offset - each.base_offset + 1 for each in self.sent[producer])
        data = batch(count, producer_id=producer, producer_epoch=self.epochs[producer], sequence=sequence)
        info = self.log.append(data, leader_epoch=0, now_ms=NOW)
        assert not info.duplicate
        self.sent[producer].append(Sent(data, info.base_offset, info.last_offset))

    @rule(producer=PRODUCERS)
    def begin_another_epoch(self, producer: int) -> None:
        if self.sent[producer]:
            self.epochs[producer] += 1
            self.sent[producer] = []
            self.send(producer, 1)

    @rule()
    def write_something_else(self) -> None:
        append(self.log, batch(2))

    @rule()
    def stop(self) -> None:
        self.log = reopened(self.log)

    @rule()
    def crash(self) -> None:
        self.log = recovered(self.log)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW)

    @rule(producer=PRODUCERS, back=st.integers(1, IN_FLIGHT))
    def repeat(self, producer: int, back: int) -> None:
        if back <= len(self.sent[producer]):
            data, base_offset, last_offset = self.sent[producer][-back]
            try:
                info = self.log.append(data, leader_epoch=0, now_ms=NOW)
            except ReadBackNeeded:
                self.log.producers.recall()
                info = self.log.append(data, leader_epoch=0, now_ms=NOW)
            assert (info.duplicate, info.base_offset, info.last_offset) == (True, base_offset, last_offset)

    @rule(producer=PRODUCERS)
    def repeat_what_is_too_old(self, producer: int) -> None:
        if len(self.sent[producer]) > IN_FLIGHT:
            with pytest.raises(OutOfOrderSequence):
                append(self.log, self.sent[producer][-IN_FLIGHT - 1].data)


TestProducers = Producers.TestCase
TestProducers.settings = settings(deadline=None)
