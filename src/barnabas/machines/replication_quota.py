"""How fast replicas that are being moved may be copied: a rate over a sliding window, and whom it is for.

As in Kafka the rate is an average over a number of samples, and over no less time than all of them but one. So what was
not used for a while may be used at once, and a copy that begins is not slowed down before the window's share is spent.
"""

from __future__ import annotations

from collections import deque

EVERYONE = "*"


class ReplicationQuota:
    """What was copied in the last samples, by a clock that never goes back."""

    __slots__ = ("_length", "_number", "_samples")

    def __init__(self, number: int, length: float) -> None:
        self._number = number
        self._length = length
        """Seconds of one sample."""
        self._samples: deque[tuple[float, int]] = deque()
        """When each began, and the bytes in it."""

    def record(self, size: int, now: float) -> None:
        """So many bytes were copied."""
        if self._samples and now < self._samples[-1][0] + self._length:
            began, total = self._samples.pop()
            self._samples.append((began, total + size))
        else:
            self._samples.append((now, size))

    def is_exceeded(self, limit: int, now: float) -> bool:
        """Whether more than `limit` bytes a second were copied."""
        samples = self._samples
        while samples and samples[0][0] <= now - self._number * self._length:
            samples.popleft()
        if not samples:
            return False
        seconds = max(now - samples[0][0], (self._number - 1) * self._length)
        return sum(size for _, size in samples) > limit * seconds


def is_named(replicas: frozenset[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(replicas) and (EVERYONE in replicas or f"{partition}:{broker_id}" in replicas)
