"""Runs of records that have the same delivery state, and how newer runs are laid over older ones.

A later write of the same record never has a lower delivery count, and within one delivery a record only goes from
available to acknowledged, archiving or archived, and from archiving to archived. So of two runs that overlap the one
with the higher count wins, and with equal counts the one with the higher state, whichever was written first: the order
of writes does not matter.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from barnabas.protocol.coordinator_records.share_state import StateBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class DeliveryState(IntEnum):
    """What has become of a record. The numbers are those of Kafka's protocol."""

    AVAILABLE = 0
    """It waits for a member that fetches it."""
    ACQUIRED = 1
    """Locked by a member. It is never stored: after a crash the record is available."""
    ACKNOWLEDGED = 2
    """It is processed, and never delivered again."""
    ARCHIVING = 3
    """Given up, while its dead letter is being stored. It is never delivered again."""
    ARCHIVED = 4
    """It is given up, or the log does not have it, and it is never delivered again."""

    @property
    def is_final(self) -> bool:
        """Whether the record is never delivered again."""
        return self is ACKNOWLEDGED or self is ARCHIVED


AVAILABLE: Final = DeliveryState.AVAILABLE
ACQUIRED: Final = DeliveryState.ACQUIRED
ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
ARCHIVING: Final = DeliveryState.ARCHIVING
ARCHIVED: Final = DeliveryState.ARCHIVED


def combine(so_far: Sequence[StateBatch], new: Iterable[StateBatch], start_offset: int = -1) -> list[StateBatch]:
    """The runs of both, in order and without overlaps, from `start_offset` on; -1 keeps all.

    `so_far` is in order and without overlaps already.
    """
    runs = list(so_far)
    for batch in new:
        _lay(runs, batch)
    if start_offset < 0:
        return runs
    kept = runs[bisect_left(runs, start_offset, key=_last_offset) :]
    if kept and kept[0].first_offset < start_offset:
        kept[0] = kept[0]._replace(first_offset=start_offset)
    return kept


def _lay(runs: list[StateBatch], batch: StateBatch) -> None:
    """Lay one batch over the runs, in place. Its neighbours may become one run with it."""
    if not runs or runs[-1].last_offset < batch.first_offset - 1:
        runs.append(batch)  # behind all others, as most are
        return
    begin = bisect_left(runs, batch.first_offset - 1, key=_last_offset)
    end = bisect_right(runs, batch.last_offset + 1, lo=begin, key=_first_offset)
    pieces: list[StateBatch] = []
    at = batch.first_offset
    for run in runs[begin:end]:
        if run.first_offset < at:
            _add(pieces, run, run.first_offset, min(run.last_offset, at - 1))
        before = min(run.first_offset - 1, batch.last_offset)
        if at <= before:
            _add(pieces, batch, at, before)
            at = before + 1
        both = min(run.last_offset, batch.last_offset)
        if at <= both:
            _add(pieces, max(run, batch, key=_rank), at, both)
            at = both + 1
        if run.last_offset > batch.last_offset:
            _add(pieces, run, max(run.first_offset, batch.last_offset + 1), run.last_offset)
    if at <= batch.last_offset:
        _add(pieces, batch, at, batch.last_offset)
    runs[begin:end] = pieces


def _add(pieces: list[StateBatch], of: StateBatch, first: int, last: int) -> None:
    """Add offsets with the state of a batch; they become one run with the piece before where the states are equal."""
    if pieces and pieces[-1].last_offset == first - 1 and _rank(pieces[-1]) == _rank(of):
        pieces[-1] = pieces[-1]._replace(last_offset=last)
    else:
        pieces.append(StateBatch(first, last, of.delivery_state, of.delivery_count))


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset


def _rank(batch: StateBatch) -> tuple[int, int]:
    """The higher one of two is the later."""
    return batch.delivery_count, batch.delivery_state
