"""Archives what a share partition has given up, once its dead letters are stored: in a task of its own, in order.

Nobody waits for it: a worker hears that its word counts when it is stored that the message is archiving. What fails is
tried again after pauses, five times, and then in rounds: a new one begins after a minute, or as soon as something
changes that may be the reason: the settings of groups, topics and brokers, topics and their leaders. After sixty rounds
without a change only a change begins another one, or the next leader. Meanwhile the messages stay as they are: they are
not delivered, and the start does not pass them. So none is archived without its dead letter; as many as may be in
flight wait, and then the group gets nothing more.

That is more than Kafka promises, which archives a message after five attempts, with its dead letter or without.

A leader that was replaced writes none: the next one does. Whether this broker still leads is looked at before each
batch is sent.

Who has no topic for dead letters any more wants none: what waits is archived then. So it is for a group that reads the
topic of its own dead letters, where its messages are already.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.shares.letters import LetterOrigin
from barnabas.machines.shares.records import LetterProgress
from barnabas.model.errors import ApiError, NotLeaderOrFollower, UnknownServerError

if TYPE_CHECKING:
    from barnabas.broker.shares.hosted import HostedSharePartition
    from barnabas.broker.shares.partitions import SharePartitions
    from barnabas.machines.shares.partition import SharePartition
    from barnabas.machines.shares.records import DeadLetters

logger = logging.getLogger(__name__)

BATCH: Final = 500
"""Messages whose dead letters are written together, at most."""
PAUSES: Final = (1.0, 2.0, 4.0, 8.0)
"""Seconds between the attempts of a round; five attempts, as Kafka has them."""
ROUND_PAUSE: Final = 60.0
"""Seconds before the next round."""
MOST_ROUNDS: Final = 60
"""Rounds that begin without a change: an hour."""


class Archiver:
    """Writes the dead letters of one share partition, and has their messages archived."""

    def __init__(self, host: SharePartitions, hosted: HostedSharePartition) -> None:
        self._host = host
        self._hosted = hosted
        self._woken = asyncio.Event()
        self._is_round_over = False
        """Whether the next attempt waits for a change."""
        self.failures = 0
        """Attempts in a row that failed, since something changed."""
        self.is_busy = False
        """Whether messages are archiving, so that the share partition has to stay."""

    def wake(self) -> None:
        """Go on with messages that are archiving, if there are any and this is not done already."""
        machine = self._hosted.machine
        if machine is not None and not self.is_busy and machine.next_letters(1):
            self.is_busy = True
            self._host.spawn(self._run(machine))

    def retry(self) -> None:
        """Begin the next round at once: something has changed that may have been the reason."""
        if self._is_round_over:
            self.failures = 0
            self._woken.set()

    def stop(self) -> None:
        """Wait no longer: the share partition is over."""
        self._woken.set()

    async def _run(self, machine: SharePartition) -> None:
        try:
            while self._hosted.machine is machine and (waiting := machine.next_letters(BATCH)):
                try:
                    await self._advance(machine, waiting)
                except ApiError as error:
                    await self._pause(machine, waiting, error)
                except Exception as error:
                    logger.exception("Writing dead letters of %s failed.", self._hosted.name)
                    await self._pause(machine, waiting, UnknownServerError(str(error)))
                else:
                    self.failures = 0
        finally:
            self.is_busy = False
            self._host.idle(self._hosted)

    async def _advance(self, machine: SharePartition, waiting: list[DeadLetters]) -> None:
        """Do what the first of these messages need next. Raises ApiError."""
        progress = waiting[0].progress
        chosen = [each for each in waiting if each.progress is progress]
        if progress is LetterProgress.DECIDED:
            await self._hosted.store(machine, machine.note(chosen))
            return
        if progress is LetterProgress.NOTED and self._hosted.settings().has_dead_letters:
            chosen = await self._write(chosen)
        if self._hosted.machine is machine:
            await self._hosted.store(machine, machine.archive(chosen))

    async def _write(self, chosen: list[DeadLetters]) -> list[DeadLetters]:
        """Write the dead letters of messages; of those that lie in the topic for them already there are none.

        Raises ApiError, also if the topic that they lie in is not allowed for dead letters: then they are none.
        """
        tp, group_id, letters = self._hosted.partition.tp, self._hosted.key.group_id, self._host.dead_letters
        if tp.topic != letters.topics.name(group_id):
            return await letters.write(self._origin(), chosen, self._check_leadership)
        await letters.topics.find(group_id, tp.partition)
        return chosen

    def _check_leadership(self) -> None:
        """Raises ApiError if this broker leads the partition of the messages no more."""
        if not self._host.leads(self._hosted):
            raise self._hosted.failure or NotLeaderOrFollower(f"{self._hosted.name} is served here no more.")

    def _origin(self) -> LetterOrigin:
        group_id, tp = self._hosted.key.group_id, self._hosted.partition.tp
        copies, committed = self._host.dead_letters.topics.copies(group_id), self._host.reads_committed(group_id)
        return LetterOrigin(group_id, tp.topic, tp.partition, self._hosted.partition.log, copies, committed)

    async def _pause(self, machine: SharePartition, waiting: list[DeadLetters], error: ApiError) -> None:
        if self._hosted.machine is not machine:
            return
        self.failures += 1
        self._host.dead_letters.counts[self._hosted.key.group_id].failures += 1
        attempt = (self.failures - 1) % (len(PAUSES) + 1)
        self._is_round_over = attempt == len(PAUSES)
        seconds = self._next_pause(attempt)
        if self._is_round_over:
            logger.error(
                "%d attempts to write dead letters of %s for share group %s failed. %d messages from offset %d on stay "
                "archiving, and are tried again %s: %s",
                self.failures,
                self._hosted.partition.tp,
                self._hosted.key.group_id,
                sum(each.last_offset - each.first_offset + 1 for each in waiting),
                waiting[0].first_offset,
                "when topics, leaders or settings change" if seconds is None else f"in {seconds:.0f} s",
                error,
            )
        elif self.failures == 1:
            logger.warning(
                "Could not write dead letters of %s for share group %s. It is tried again in %d s: %s",
                self._hosted.partition.tp,
                self._hosted.key.group_id,
                seconds,
                error,
            )
        await self._wait(seconds)
        self._is_round_over = False

    def _next_pause(self, attempt: int) -> float | None:
        """Seconds after a failed attempt of a round; None if only a change begins another round."""
        if attempt < len(PAUSES):
            return PAUSES[attempt]
        return ROUND_PAUSE if self.failures < MOST_ROUNDS * (len(PAUSES) + 1) else None

    async def _wait(self, seconds: float | None) -> None:
        self._woken.clear()
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return
