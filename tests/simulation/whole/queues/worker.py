"""A worker of a share group: it takes messages, works on them, and says what became of them, or does not.

It speaks to each broker that leads some of its partitions over one share session, one request at a time. Workers are no
models: some keep a message until its lock is over, some say their word late, after their session has ended, or twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.errors import ErrorCode
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.records.batch import HEADER_SIZE, read_header
from barnabas.protocol.records.records import read_records
from tests.history.queues.events import NO_EPOCH, Delivery, Fate, Kind, Place
from tests.simulation.whole.client import Client, Unanswered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.simulation.whole.history import Log
    from tests.simulation.whole.queues.notes import QueueNotes

    Address = tuple[str, int]

NAME: Final = "workers"
GROUP: Final = 0
JOINING, LEAVING = 0, -1
OPENING, CLOSING = 0, -1
BEAT_SECONDS: Final = 1.0
GAP: Final = 0
TYPES: Final = {Kind.ACCEPT: 1, Kind.RELEASE: 2, Kind.REJECT: 3}
RENEW: Final = 4
SESSION_LOST: Final = (ErrorCode.share_session_not_found, ErrorCode.invalid_share_session_epoch)
REFUSED: Final = (*SESSION_LOST, ErrorCode.invalid_record_state, ErrorCode.invalid_request)
"""Answers which say that nothing was stored; after all others nobody knows."""
FENCED: Final = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch)


class Plan(Enum):
    """What a worker means to do with a message."""

    ACCEPT = Kind.ACCEPT
    RELEASE = Kind.RELEASE
    REJECT = Kind.REJECT
    KEEP = None
    """Nothing: its lock will end."""


class Manners(NamedTuple):
    """How a worker behaves."""

    plans: tuple[Plan, ...]
    """One of them for each message."""
    longest_work: float
    renews: bool
    is_stubborn: bool
    """Whether it says its word though its session has ended."""
    pause: float


EAGER: Final = Manners((Plan.ACCEPT,), 0.0, False, False, 0.0)
"""One that does what is left."""


@dataclass(slots=True)
class Held:
    """A message that a worker has."""

    place: Place
    count: int
    session: str
    due_at: float
    kind: Kind | None
    """What it is to say; None for a place without a message, as of a marker of a transaction."""


@dataclass(slots=True)
class ShareSession:
    """A share session with one broker."""

    number: int = 0
    epoch: int = OPENING
    held: dict[Place, Held] = field(default_factory=dict)


class Worker:
    """One member of the group."""

    def __init__(self, client: Client, log: Log, notes: QueueNotes, topic: str, manners: Manners) -> None:
        self.client = client
        self._log = log
        self._notes = notes
        self._topic = topic
        self._manners = manners
        self.member = f"{client.name}-{client.chance.getrandbits(64):016x}"
        self._epoch = JOINING
        self._topic_id: UUID | None = None
        self._assigned: list[int] = []
        self._beaten_at = -BEAT_SECONDS
        self._sessions: dict[Address, ShareSession] = {}
        self._leaving = False

    def leave(self) -> None:
        """Ask it to end its sessions and leave the group."""
        self._leaving = True

    async def run(self) -> None:
        """Work until it is to leave, or killed."""
        while not self._leaving:
            try:
                if self._notes.now() - self._beaten_at >= BEAT_SECONDS:
                    await self._beat(self._epoch)
                for address, partitions in (await self._by_leader()).items():
                    await self._step(address, partitions)
            except Unanswered:
                await self.client.pause()
            await asyncio.sleep(0.02 + self._manners.pause * self.client.chance.random())
        await self._leave()

    async def _leave(self) -> None:
        for address, session in self._sessions.items():
            try:
                if session.epoch != OPENING:
                    session.epoch = CLOSING
                    await self._acknowledge(address, session, list(session.held.values()))
            except Unanswered:
                continue
        try:
            await self._beat(LEAVING)
        except Unanswered:
            return

    # The group

    async def _beat(self, epoch: int) -> None:
        """Heartbeat: hear what is assigned."""
        self._beaten_at = self._notes.now()
        answer = await self.client.ask_coordinator(
            GROUP,
            NAME,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=NAME,
            member_id=self.member,
            member_epoch=epoch,
            subscribed_topic_names=[self._topic] if epoch == JOINING else None,
        )
        code = ErrorCode(answer.error_code.value)
        if code in FENCED:
            self._epoch = JOINING
            self._beaten_at -= BEAT_SECONDS
            self._assigned = []
            self._log.say(f"{self.client.name} was fenced")
            return
        if code is not ErrorCode.none:
            self.client.forget_coordinator(GROUP, NAME)
            raise Unanswered(code.name)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned = []
            for topic in answer.assignment.topic_partitions:
                self._topic_id = topic.topic_id
                self._assigned += topic.partitions
            self._log.say(f"{self.client.name} has {self._assigned} in epoch {self._epoch}")

    async def _by_leader(self) -> dict[Address, list[int]]:
        """The partitions that are assigned, by the brokers that lead them; also brokers where something is held."""
        found: dict[Address, list[int]] = {}
        for partition in self._assigned:
            found.setdefault(await self.client.leader_address(self._topic, partition), []).append(partition)
        for address, session in self._sessions.items():
            if session.held:
                found.setdefault(address, [])
        return found

    # One broker

    async def _step(self, address: Address, partitions: list[int]) -> None:
        """Ask a broker for more, with what there is to say."""
        session = self._sessions.setdefault(address, ShareSession())
        chance, now = self.client.chance, self._notes.now()
        due = [held for held in session.held.values() if held.due_at <= now]
        try:
            if session.epoch == OPENING:
                await self._fetch(address, session, partitions, [])
            elif self._manners.renews and session.held and chance.random() < 0.2:
                await self._renew(address, session, chance.choice(list(session.held.values())))
            elif due and (not partitions or chance.random() < 0.4):
                await self._acknowledge(address, session, due)
            elif partitions:
                await self._fetch(address, session, partitions, due)
        except Unanswered:
            self._lose(session)
            if self._manners.is_stubborn:
                session.held |= {held.place: held for held in due}
            for partition in partitions:
                self.client.forget_leader(self._topic, partition)
            raise

    def _lose(self, session: ShareSession) -> None:
        """The session is over; a stubborn worker keeps what it had, and says its word in the next one."""
        session.epoch = OPENING
        if not self._manners.is_stubborn:
            session.held.clear()

    def _session_id(self, address: Address, session: ShareSession) -> str:
        return f"{self.member}/{address[0]}/{session.number}"

    async def _fetch(self, address: Address, session: ShareSession, partitions: list[int], due: list[Held]) -> None:
        chance, notes = self.client.chance, self._notes
        if session.epoch == OPENING:
            session.number += 1
        words, places = self._saying(address, session, due)
        asked_at = notes.now()
        before = {each: notes.leadership(self._topic, each) for each in partitions}
        broker = notes.broker_at(address)
        own = {each: notes.reign(self._topic, each, broker) for each in partitions}
        fetches = notes.fetching(partitions)
        answer = await self.client.ask(
            address,
            ApiKey.SHARE_FETCH,
            2,
            **self._head(session),
            max_wait=chance.choice((0, 200, 500)),
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=chance.choice((1, 3, 20)),
            batch_size=chance.choice((1, 20)),
            share_acquire_mode=chance.choice((0, 0, 1)),
            topics=self._topics({*partitions, *places}, places),
        )
        notes.heard(fetches)
        if not self._goes_on(address, session, answer, words, asked_at):
            return
        for topic in answer.responses:
            for part in topic.partitions:
                self._hear(words, part.partition_index, ErrorCode(part.acknowledge_error_code))
                index = part.partition_index
                if part.error_code.value:
                    self.client.forget_leader(self._topic, index)
                elif index in before:
                    still = before[index] == notes.leadership(self._topic, index) and before[index].leader == broker
                    epoch = own[index] if own[index] == notes.reign(self._topic, index, broker) else NO_EPOCH
                    self._take(session, self._session_id(address, session), part, asked_at, still, epoch)
        self._hear_rest(words)

    def _take(
        self, session: ShareSession, session_id: str, part: Any, asked_at: float, is_current: bool, epoch: int
    ) -> None:
        """Take the messages of an answer, and say of places without one that there is none."""
        now, chance = self._notes.now(), self.client.chance
        values = dict(_values(bytes(part.records or b"")))
        for run in part.acquired_records:
            for offset in range(run.first_offset, run.last_offset + 1):
                place, value = Place(part.partition_index, offset), values.get(offset)
                if value is None:
                    session.held[place] = Held(place, run.delivery_count, session_id, now, None)
                    continue
                self._notes.deliveries.append(
                    Delivery(
                        self.member, place, value, run.delivery_count, asked_at, now, session_id, epoch, is_current
                    )
                )
                plan = chance.choice(self._manners.plans)
                due_at = now + self._manners.longest_work * chance.random() ** 3
                session.held.pop(place, None)
                if plan is not Plan.KEEP:
                    session.held[place] = Held(place, run.delivery_count, session_id, due_at, plan.value)
        got = [(run.first_offset, run.last_offset, run.delivery_count) for run in part.acquired_records]
        self._log.trace(self.client.name, "takes", part.partition_index, got)

    async def _acknowledge(self, address: Address, session: ShareSession, due: list[Held]) -> None:
        words, places = self._saying(address, session, due)
        asked_at = self._notes.now()
        answer = await self.client.ask(
            address, ApiKey.SHARE_ACKNOWLEDGE, 2, **self._head(session), topics=self._topics(set(places), places)
        )
        self._hear_answer(address, session, answer, words, asked_at)

    async def _renew(self, address: Address, session: ShareSession, held: Held) -> None:
        places = {held.place.partition: [(held.place.offset, RENEW)]}
        asked_at = self._notes.now()
        answer = await self.client.ask(
            address,
            ApiKey.SHARE_ACKNOWLEDGE,
            2,
            **self._head(session),
            is_renew_ack=True,
            topics=self._topics(set(places), places),
        )
        self._hear_answer(address, session, answer, {}, asked_at)

    # What is said, and what is answered

    def _saying(
        self, address: Address, session: ShareSession, due: list[Held]
    ) -> tuple[dict[int, list[int]], dict[int, list[tuple[int, int]]]]:
        """Note what is said, by partition: the numbers of the notes, and offsets with types."""
        words: dict[int, list[int]] = {}
        places: dict[int, list[tuple[int, int]]] = {}
        for held in sorted(due, key=lambda each: each.place):
            del session.held[held.place]
            places.setdefault(held.place.partition, []).append(
                (held.place.offset, GAP if held.kind is None else TYPES[held.kind])
            )
            if held.kind is not None:
                number = self._notes.saying(self.member, held.place, held.kind, held.count, held.session)
                words.setdefault(held.place.partition, []).append(number)
        return words, places

    def _head(self, session: ShareSession) -> dict[str, Any]:
        return {"group_id": NAME, "member_id": self.member, "share_session_epoch": session.epoch}

    def _topics(self, partitions: set[int], places: dict[int, list[tuple[int, int]]]) -> list[dict[str, Any]]:
        parts = [
            {
                "partition_index": partition,
                "acknowledgement_batches": [
                    {"first_offset": offset, "last_offset": offset, "acknowledge_types": [kind]}
                    for offset, kind in places.get(partition, ())
                ],
            }
            for partition in sorted(partitions)
        ]
        return [{"topic_id": self._topic_id, "partitions": parts}] if parts else []

    def _hear_answer(
        self, address: Address, session: ShareSession, answer: Any, words: dict[int, list[int]], asked_at: float
    ) -> None:
        if self._goes_on(address, session, answer, words, asked_at):
            for topic in answer.responses:
                for part in topic.partitions:
                    self._hear(words, part.partition_index, ErrorCode(part.error_code.value))
            self._hear_rest(words)

    def _goes_on(
        self, address: Address, session: ShareSession, answer: Any, words: dict[int, list[int]], asked_at: float
    ) -> bool:
        """Whether the whole request was taken; then its session was there when it was asked."""
        code = ErrorCode(answer.error_code.value)
        if code is ErrorCode.none:
            if session.epoch != CLOSING:
                session.epoch += 1
            self._notes.sessions[self._session_id(address, session)] = asked_at
            return True
        self._log.trace(self.client.name, "session", code.name)
        for partition in list(words):
            self._hear(words, partition, code)
        self._lose(session)
        return False

    def _hear(self, words: dict[int, list[int]], partition: int, code: ErrorCode) -> None:
        """What became of the words of a partition."""
        fate = Fate.STORED if code is ErrorCode.none else Fate.REFUSED if code in REFUSED else Fate.UNKNOWN
        for number in words.pop(partition, ()):
            self._notes.told(number, fate)
            self._log.trace(self.client.name, "said", *self._notes.acknowledgements[number], code.name)

    def _hear_rest(self, words: dict[int, list[int]]) -> None:
        """Every word has to be answered."""
        if words:
            self._log.violate(f"{self.client.name}: nothing was answered to the words of partitions {sorted(words)}")


def _values(data: bytes) -> Iterator[tuple[int, str]]:
    """Offsets and values of the messages in an answer, without markers of transactions."""
    at = 0
    while len(data) - at >= HEADER_SIZE:
        header = read_header(data, at)
        payload = data[at + HEADER_SIZE : at + header.size]
        at += header.size
        if not header.is_control:
            for record in read_records(payload, header.record_count):
                yield header.base_offset + record.offset_delta, (record.value or b"").decode()
