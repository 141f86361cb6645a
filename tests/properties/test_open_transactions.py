"""However a log was rolled, stopped, killed or cut: it knows which transactions are open and which were aborted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from tests.support.logs import NOW, append, batch, new_log, recovered, reopened, split

PRODUCERS = st.sampled_from([7, 8, 9])


class Entry(NamedTuple):
    """One batch of the log: records of a transaction, or the marker that ends it."""

    producer: int
    first: int
    last: int
    end: ControlType | None


class Transactions(RuleBasedStateMachine):
    """Producers that write to one log in transactions; small segments, so that it rolls all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.log = new_log(Path(self.folder.name), LogConfig(segment_bytes=400))
        self.entries: list[Entry] = []

    def teardown(self) -> None:
        self.log.close()
        self.folder.cleanup()

    def open(self) -> dict[int, int]:
        """Where each producer's open transaction began."""
        begun: dict[int, int] = {}
        for entry in self.entries:
            if entry.end is None:
                begun.setdefault(entry.producer, entry.first)
            else:
                begun.pop(entry.producer, None)
        return begun

    def aborted(self) -> set[tuple[int, int]]:
        """Producers and first offsets of all transactions that were aborted."""
        begun: dict[int, int] = {}
        found = set()
        for entry in self.entries:
            if entry.end is None:
                begun.setdefault(entry.producer, entry.first)
            elif (first := begun.pop(entry.producer, None)) is not None and entry.end is ControlType.ABORT:
                found.add((entry.producer, first))
        return found

    @rule(producer=PRODUCERS, count=st.integers(1, 3))
    def write(self, producer: int, count: int) -> None:
        """Its batches are in no sequence, as those of a group's coordinator; sequences are tested elsewhere."""
        data = batch(count, producer_id=producer, sequence=0, transactional=True)
        first = self.log.append(data, 0, NOW, in_sequence=False).base_offset
        self.entries.append(Entry(producer, first, first + count - 1, None))

    @rule(producer=PRODUCERS, end=st.sampled_from([ControlType.COMMIT, ControlType.ABORT]))
    def end(self, producer: int, end: ControlType) -> None:
        marker = build_marker(EndOfTransaction(end, 0), timestamp=NOW, producer_id=producer, producer_epoch=0)
        [first] = append(self.log, marker)
        self.entries.append(Entry(producer, first, first, end))

    @rule(share=st.floats(0, 1))
    def cut(self, share: float) -> None:
        offset = int(share * self.log.log_end_offset)
        self.log.truncate_to(offset)
        self.entries = [entry for entry in self.entries if entry.last < offset]

    @rule()
    def stop(self) -> None:
        self.log = reopened(self.log)
        self.log.prepare()

    @rule()
    def kill(self) -> None:
        self.log = recovered(self.log)

    @invariant()
    def the_oldest_open_transaction_is_known(self) -> None:
        assert self.log.producers.first_unstable_offset == min(self.open().values(), default=None)
        for producer in (7, 8, 9):
            assert self.log.producers.has_open_transaction(producer, 0) == (producer in self.open())

    @invariant()
    def what_was_aborted_is_known(self) -> None:
        unstable, end = self.log.producers.first_unstable_offset, self.log.log_end_offset
        up_to = end if unstable is None else unstable
        told = set()
        offset = 0
        while offset < up_to:
            found = self.log.read(offset, 1 << 30, up_to, min_one=True, committed=True)
            told |= {(each.producer_id, each.first_offset) for each in found.aborted}
            batches = split(b"".join(part.file.read(part.length, part.position) for part in found.slices))
            offset = read_header(batches[-1]).last_offset + 1
        assert told == {(producer, first) for producer, first in self.aborted() if first < up_to}


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(deadline=None, max_examples=40)
