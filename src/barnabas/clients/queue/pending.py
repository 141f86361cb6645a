"""Acknowledgements that are on their way, and what is told of those that were not stored."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from barnabas.clients.config import log
from barnabas.clients.errors import NotAcknowledged
from barnabas.clients.queue.session import SharePartitionId
from barnabas.protocol.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from collections.abc import Mapping


class PendingAcknowledgement(NamedTuple):
    """What was said of a record, who waits for it to be stored, and until when its lock is held."""

    kind: Acknowledgement
    stored: Future[None]
    until: float


Pending = dict[SharePartitionId, dict[int, PendingAcknowledgement]]


def unheard(kind: Acknowledgement) -> PendingAcknowledgement:
    """An acknowledgement that nobody waits for."""
    return PendingAcknowledgement(kind, Future(), 0.0)


def kinds_of(pending: Pending) -> dict[SharePartitionId, dict[int, Acknowledgement]]:
    """What is said of each record, as a request has it."""
    return {place: {offset: one.kind for offset, one in offsets.items()} for place, offsets in pending.items()}


def not_stored(place: SharePartitionId, offsets: Mapping[int, PendingAcknowledgement], reason: str) -> None:
    """Tell whoever waits that acknowledgements were not stored, and say it in one line of the log."""
    for offset, pending in offsets.items():
        pending.stored.set_exception(NotAcknowledged(f"the acknowledgement {_words(place, [offset])}: {reason}"))
    noted = [offset for offset, pending in offsets.items() if pending.kind is not Acknowledgement.GAP]
    if noted:
        log.warning("The acknowledgement%s %s: %s", "s" if len(noted) > 1 else "", _words(place, noted), reason)


def _words(place: SharePartitionId, offsets: list[int]) -> str:
    if len(offsets) == 1:
        what = f"of offset {offsets[0]} of partition {place.partition} was"
    else:
        what = (
            f"of {len(offsets)} messages of partition {place.partition}, from offset {min(offsets)} to {max(offsets)}, "
            "were"
        )
    return f"{what} not stored, so {'they' if len(offsets) > 1 else 'the message'} may be delivered again"
