"""Where a follower's log leaves its leader's: what it must cut before it may go on.

The follower asks the leader where the last epoch of its own log ends there (OffsetForLeaderEpoch). Three cases:

    the leader has that epoch           cut at its end, or at our own if that is lower: the logs agree up to there
    the leader's last one before it     cut at where our log leaves that epoch, at the leader's end at most; if we have
    is older                            never seen that epoch, cut what came after the one before it, and ask again
    the leader knows nothing of it      cut at our high watermark: what is below it is committed, and everyone has it
"""

from __future__ import annotations

from typing import Final, NamedTuple

UNDEFINED: Final = -1


class Cut(NamedTuple):
    """Where to cut, and whether the logs then agree; if not, ask again."""

    offset: int
    done: bool


def cut(
    *,
    asked_epoch: int,
    leader_epoch: int,
    leader_end: int,
    own_epoch: int,
    own_end: int,
    log_end: int,
    high_watermark: int,
) -> Cut:
    """Decide, given the leader's answer and where `leader_epoch`, or the one before it, ends in the own log."""
    if leader_end == UNDEFINED or leader_epoch == UNDEFINED:
        return Cut(min(high_watermark, log_end), True)
    if leader_epoch == asked_epoch:
        return Cut(min(leader_end, log_end), True)
    if own_end == UNDEFINED:
        return Cut(min(leader_end, log_end), True)
    if own_epoch == leader_epoch:
        return Cut(min(leader_end, own_end, log_end), True)
    return Cut(min(own_end, log_end), False)
