"""Where a follower's log diverges from its leader's: what has to be truncated before the follower may fetch.

The follower asks the leader where the last epoch of its own log ends in the leader's log (OffsetForLeaderEpoch). The
leader answers with that epoch, or with the last one before it that it has. Three cases:

    the leader has that epoch        truncate to its end, or to our own if that is lower: the logs agree up to there
    the leader has an older epoch    truncate to the end of that epoch in our log, at most to the leader's end of it; if
                                     our log lacks that epoch, truncate what came after the one before it and ask again
    the leader has neither           truncate to our high watermark: records below it are committed, and the leader has
                                     them
"""

from __future__ import annotations

from typing import NamedTuple

from barnabas.model.ids import UNDEFINED


class TruncationPoint(NamedTuple):
    """Where to truncate, and whether the logs then agree; if not, the leader has to be asked again."""

    offset: int
    done: bool


def truncation_point(
    *,
    asked_epoch: int,
    leader_epoch: int,
    leader_end: int,
    own_epoch: int,
    own_end: int,
    log_end: int,
    high_watermark: int,
) -> TruncationPoint:
    """Decide by the leader's answer, and by where `leader_epoch`, or the last one before it, ends in the own log."""
    if leader_end == UNDEFINED or leader_epoch == UNDEFINED:
        return TruncationPoint(min(high_watermark, log_end), True)
    if leader_epoch == asked_epoch:
        return TruncationPoint(min(leader_end, log_end), True)
    if own_end == UNDEFINED:
        return TruncationPoint(min(leader_end, log_end), True)
    if own_epoch == leader_epoch:
        return TruncationPoint(min(leader_end, own_end, log_end), True)
    return TruncationPoint(min(own_end, log_end), False)
