"""Members of a consumer group (KIP-848): they share the partitions, and go on where the group has committed.

A member fetches from the committed offset of a partition it was given, and commits what it has read. What the members
of a group read together has no gap (`GROUP_SKIP` of the history checker), and no commit goes back: a member whose epoch
is over is refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from tests.history.checker import Placed, Poll, Record
from tests.simulation.whole.client import Client, Unanswered
from tests.simulation.whole.consumers import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.history import Log

GROUP: Final = 0
NAME: Final = "members"
JOINING, LEAVING = 0, -1
SILENCE: Final = 2.0
"""Seconds: a member that was heard of since then is not fenced, unless a clock jumped."""
FENCED: Final = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch)


class Fenced(Exception):
    """The group does not know this member any more, or in another epoch."""


class GroupReader(Consumer):
    """Reads partitions that a group gave it, and commits what it has read."""

    group = NAME
    commit_version = 9
    """Of OffsetCommit and OffsetFetch."""

    def __init__(self, client: Client, log: Log, topic: str, partitions: int, committed: dict[int, int]) -> None:
        super().__init__(client, log, topic, partitions)
        self._id = f"{client.name}-{client.chance.getrandbits(64):016x}"
        self._epoch = -1
        """The member epoch, or the generation of a classic group."""
        self._owned: tuple[int, ...] = ()
        self._committed = committed
        """What the group was told to be committed, by partition; shared by its members."""

    def _credentials(self) -> dict[str, Any]:
        """What a member says of itself when it asks for offsets."""
        return {"member_id": self._id, "member_epoch": self._epoch} if self.commit_version >= 9 else {}

    async def _take(self, partitions: list[int]) -> None:
        """Go on where the group has committed."""
        group = {
            "group_id": self.group,
            **self._credentials(),
            "topics": [{"name": self._topic, "partition_indexes": partitions}],
        }
        answer = await self.client.ask_coordinator(
            GROUP, self.group, ApiKey.OFFSET_FETCH, self.commit_version, groups=[group], require_stable=True
        )
        (found,) = answer.groups
        self._check(ErrorCode(found.error_code.value))
        for each in found.topics[0].partitions:
            self._check(ErrorCode(each.error_code.value))
            index, offset = each.partition_index, each.committed_offset
            known = self._committed.get(index, -1)
            if offset < known:
                self._log.violate(f"{self.client.name}: partition {index} was committed to {known}, and is at {offset}")
            self._positions[index] = max(offset, 0)
            self._stable[index] = self._high_watermarks[index] = 0
            self._log.reads.append(Placed(f"{self.client.name}/{index}"))
        self._owned = (*self._owned, *partitions)

    async def _read(self, partition: int) -> None:
        """Read something, then commit it: only what is committed has been read by the group."""
        before = self._positions[partition]
        try:
            records = await self._fetch(partition, 100)
            if self._positions[partition] > before:
                await self._commit(partition, self._positions[partition], records)
        except (Unanswered, Fenced):
            self._positions[partition] = before
            raise

    async def _commit(self, partition: int, offset: int, records: list[Record]) -> None:
        self._log.reads.append(Placed(f"{self.client.name}/{partition}"))
        self._log.reads.append(Poll(f"{self.client.name}/{partition}", tuple(records), self.group))
        answer = await self.client.ask_coordinator(
            GROUP,
            self.group,
            ApiKey.OFFSET_COMMIT,
            self.commit_version,
            group_id=self.group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._id,
            topics=[
                {
                    "name": self._topic,
                    "partitions": [
                        {
                            "partition_index": partition,
                            "committed_offset": offset,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        )
        code = ErrorCode(answer.topics[0].partitions[0].error_code.value)
        self._log.trace(self.client.name, partition, offset, code.name)
        self._check(code)
        self._committed[partition] = max(self._committed.get(partition, -1), offset)

    def _check(self, code: ErrorCode) -> None:
        if code in FENCED:
            raise Fenced
        if code is not ErrorCode.none:
            if code is not ErrorCode.stale_member_epoch:
                self.client.forget_coordinator(GROUP, self.group)
            raise Unanswered(code.name)


class Member(GroupReader):
    """One member of the group."""

    def __init__(
        self,
        client: Client,
        log: Log,
        topic: str,
        partitions: int,
        committed: dict[int, int],
        others: list[Member],
    ) -> None:
        super().__init__(client, log, topic, partitions, committed)
        self._epoch = JOINING
        self._topic_id: Any = None
        self._heard = 0.0
        self._says_all = True
        """Whether the next heartbeat is one that is answered with the assignment, whether or not it has changed."""
        self._others = others
        others.append(self)

    async def run(self, running: Callable[[], bool]) -> None:
        """Take part until it is told to stop, then leave."""
        while running():
            try:
                await self._beat()
                for partition in self._owned:
                    await self._read(partition)
            except Unanswered:
                self._says_all = True  # as Kafka's clients do: the answer, with another assignment, may be lost
                await self.client.pause()
            except Fenced:
                self._log.say(f"{self.client.name} was fenced")
                self._epoch, self._owned, self._says_all = JOINING, (), True
            await asyncio.sleep(0.3 + self.client.chance.random())

    async def _beat(self) -> None:
        """Heartbeat: say what is owned, hear what is assigned."""
        owned = [{"topic_id": self._topic_id, "partitions": list(self._owned)}] if self._owned else []
        answer = await self.client.ask_coordinator(
            GROUP,
            NAME,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            0,
            group_id=NAME,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout=10_000 if self._says_all else -1,
            subscribed_topic_names=[self._topic] if self._says_all else None,
            topic_partitions=owned,
        )
        self._says_all = False
        self._check(ErrorCode(answer.error_code.value))
        self._id, self._epoch = answer.member_id or self._id, answer.member_epoch
        self._heard = asyncio.get_running_loop().time()
        if answer.assignment is None:
            return
        assigned: list[int] = []
        for topic in answer.assignment.topic_partitions:
            self._topic_id = topic.topic_id
            assigned += topic.partitions
        new = sorted(set(assigned) - set(self._owned))
        self._owned = tuple(each for each in self._owned if each in assigned)
        if new:
            self._check_owners(new)
            await self._take(new)
            self._log.say(f"{self.client.name} has partitions {self._owned} in epoch {self._epoch}")

    def _check_owners(self, new: list[int]) -> None:
        """A partition is given to a member when nobody else has it who is in touch with the group."""
        for other in self._others if not self._log.clocks_jump else ():
            if other is not self and self._heard - other._heard < SILENCE and (both := {*new} & {*other._owned}):
                self._log.violate(
                    f"partitions {both} were given to {self.client.name}, but {other.client.name} has them"
                )
