"""Partitions at rest: those of a follower's fetch session that its next fetches can neither change nor be told of.

A follower is in sync with a partition, has all its records, and was told that all are committed. Until something
happens to the partition, another fetch of it changes one thing alone: when the follower fetched last. So the session
looks at it no more, and remembers the time of its fetches once for all partitions at rest. A session that has nothing
else costs the same however many they are.

Whoever changes a partition stirs it first (`RestingPlace.stir`). That brings about what a session that had looked at
every partition would have left: the leader learns when the follower fetched last, the session looks at the partition
again, and the fetch that waits is woken by it. Nothing else knows of partitions at rest.

Invariants: a partition of a session is either looked at or at rest. A place has at most one session of each replica at
rest, the one that fetched there last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.machines.fetch_session import Key, SessionPartition

NOBODY = -1
"""As the replica of a session that no follower has used so far."""


class WaitingFetch(Protocol):
    """A fetch of the session that waits for records."""

    def wake(self) -> None:
        """Look again."""
        ...

    def watch_also(self, place: RestingPlace) -> None:
        """Be woken by one more partition, at which this fetch need not have looked: it was at rest."""
        ...


class RestingPlace(Protocol):
    """A partition on its leader."""

    def stir(self, replica: int) -> None:
        """Have a replica's session look here again."""
        ...

    def add_watcher(self, watcher: WaitingFetch, *, follower: bool = False) -> None:
        """Wake a fetch when there is more."""
        ...

    def remove_watcher(self, watcher: WaitingFetch) -> None:
        """Do not wake it any more."""
        ...


class Rest:
    """The partitions at rest of one session."""

    __slots__ = (
        "_resting",
        "_start_moves",
        "broker_epoch",
        "fetched_at",
        "is_over",
        "replica",
        "waiting",
    )

    def __init__(self) -> None:
        self._resting: dict[Key, tuple[SessionPartition, RestingPlace]] = {}
        self._start_moves = 0
        """How often the start of any log had moved when all partitions were last known to be told of theirs."""
        self.replica = NOBODY
        self.broker_epoch = NOBODY
        """Who fetches, and in which registration."""
        self.fetched_at = 0.0
        """When the last fetch came, on a clock that never goes back."""
        self.waiting: WaitingFetch | None = None
        """The fetch that waits."""
        self.is_over = False
        """Whether the session is gone: nothing is put to rest any more."""

    def __len__(self) -> int:
        return len(self._resting)

    def partitions(self) -> Iterable[SessionPartition]:
        """What is at rest."""
        return [partition for partition, _ in self._resting.values()]

    def arrive(self, replica: int, broker_epoch: int, start_moves: int, now: float) -> None:
        """A fetch has come. What is at rest is what this broker, in this registration, has fetched."""
        if replica != self.replica or broker_epoch != self.broker_epoch:
            self.stir_all()
            self.replica, self.broker_epoch = replica, broker_epoch
        self.note_starts(start_moves)
        self.fetched_at = now

    def note_starts(self, start_moves: int) -> None:
        """Look at everything if the start of a log has moved: retention moves it in a thread, and stirs nothing."""
        if start_moves != self._start_moves:
            self._start_moves = start_moves
            self.stir_all()

    def put(self, partition: SessionPartition, place: RestingPlace) -> None:
        """A partition is at rest from now on."""
        self._resting[partition.key] = partition, place

    def stirred(self, key: Key) -> SessionPartition:
        """The place has something to say again, or soon: the partition that is no more at rest."""
        partition, place = self._resting.pop(key)
        if self.waiting is not None:
            self.waiting.watch_also(place)
        return partition

    def stir(self, keys: Iterable[Key]) -> None:
        """Look at those of these partitions again that are at rest."""
        for key in keys:
            if (found := self._resting.get(key)) is not None:
                found[1].stir(self.replica)

    def stir_all(self) -> None:
        """Look at everything again."""
        self.stir(list(self._resting))

    def end(self) -> None:
        """The session is gone."""
        self.is_over = True
        self.stir_all()
