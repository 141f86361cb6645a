"""The shell of a broker: it registers, takes part in elections, leads, follows, and proposes in-sync replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.machines.controller.image import ClusterImage, PartitionImage
from barnabas.machines.controller.requests import AlterIsr, IsrChange
from barnabas.metadata.images import updates
from barnabas.model.errors import ApiError
from barnabas.protocol.messages.inter_broker import LeaderAndIsrRequest, UpdateMetadataRequest
from tests.simulation.active_controller import ActiveController
from tests.simulation.promises import Record
from tests.simulation.replica import ReplicaLog
from tests.simulation.world import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.machines.controller.decision import Answer, Key
    from barnabas.machines.controller.requests import Request
    from barnabas.machines.partition import PartitionLeader
    from barnabas.metadata.images.announcements import Announcement
    from tests.simulation.bugs import Mistakes
    from tests.simulation.promises import Promises
    from tests.simulation.tree import Session, Tree
    from tests.simulation.world import World

TOPIC: Final = "t"
_TICK: Final = 6.0
_TIMEOUT: Final = 20.0
"""How long a follower waits for its leader, and a leader for the controller (ms)."""
_MAX_LAG: Final = 40.0
_MOST_RECORDS: Final = 3
"""How many records a fetch brings."""


class Following:
    """A partition that this broker follows."""

    __slots__ = ("agrees", "asked_at", "epoch", "leader")

    def __init__(self, leader: int, epoch: int) -> None:
        self.leader = leader
        self.epoch = epoch
        self.agrees = False
        self.asked_at = -_TIMEOUT


class Written(NamedTuple):
    """What a client wrote, and where."""

    offset: int
    record: Record


class Broker(Process):
    """One process; its logs are the host's."""

    def __init__(
        self,
        world: World,
        host: int,
        tree: Tree,
        logs: dict[tuple[int, int], ReplicaLog],
        promises: Promises,
        mistakes: Mistakes,
        peers: dict[int, Broker],
    ) -> None:
        super().__init__(world, host)
        self.tree = tree
        self.mistakes = mistakes
        self.controller: ActiveController | None = None
        self.image = ClusterImage()
        self.session: Session | None = None
        self.leads: dict[int, PartitionLeader] = {}
        self.follows: dict[int, Following] = {}
        self._waiting: dict[int, list[Written]] = {}
        """Those who wrote to a partition and wait for an answer, which comes when their record is committed."""
        self._logs = logs
        self._promises = promises
        self._peers = peers
        self._proposed_at = -_TIMEOUT
        self._proposal = 0
        self._last_update = (-1, -1, -1)
        self.stops = False
        self._look()
        self._tick()

    @property
    def epoch(self) -> int:
        """Of its registration."""
        return -1 if self.session is None else self.session.number

    def ask(self, target: int, what: str, *args: Any) -> None:
        """Ask another broker; the last argument takes the answer, if one comes."""
        *rest, reply = args
        world, host = self.world, self.host

        def answer(*values: Any) -> None:
            world.carry(target, host, self.perform, reply, *values)

        def arrive() -> None:
            peer = self._peers.get(target)
            if peer is not None:
                peer.perform(getattr(peer, what), *rest, answer)

        world.carry(host, target, arrive)

    # The tree

    def noticed(self) -> None:
        """The tree changed, which a process learns a little later."""
        self.after(3 * self.world.random.random(), self._look)

    def _look(self) -> None:
        """Bring session and controller in line with the tree."""
        tree = self.tree
        if self.session is not None and not tree.is_live(self.session):
            self._lost_session()
        if self.session is None:
            self.session = tree.register(self.host)
        if self.controller is not None and (self.controller.is_over or tree.controller != self.session):
            self.controller.end()
            self.controller = None
        if self.controller is None and self.session is not None and tree.controller is None and not self.stops:
            term = tree.campaign(self.session)
            if term is not None:
                self.controller = ActiveController(self, term)
        elif self.controller is not None:
            self.controller.brokers_changed()

    def _lost_session(self) -> None:
        """Stop leading until it is registered again and was sent everything anew."""
        self.session = None
        for index in list(self.leads):
            self._break_off(index)
        self.follows.clear()
        self.image = ClusterImage(controller_epoch=self.image.controller_epoch)

    # What the controller says

    def decided(self, image: ClusterImage) -> None:
        """This broker's own controller decided."""
        mine = image.brokers.get(self.host)
        if mine is not None and mine.epoch == self.epoch and image.controller_epoch >= self.image.controller_epoch:
            self._take(image)

    def apply_update(self, message: Announcement, reply: Callable[[bool], None]) -> None:
        """Another broker's controller decided."""
        place = message.controller_epoch, message.broker_epoch, message.number
        if message.controller_epoch < self.image.controller_epoch or message.broker_epoch != self.epoch:
            reply(False)
            return
        if place < self._last_update:
            return  # the one who sent it waits for the answer to a later message
        self._last_update = place
        if isinstance(message, LeaderAndIsrRequest):
            self._take(updates.led(self.image, message))
        elif isinstance(message, UpdateMetadataRequest):
            self._take(updates.updated(self.image, message))
        reply(True)

    def _take(self, image: ClusterImage) -> None:
        before, self.image = self.image, image
        topic = image.topics.get(TOPIC)
        if topic is None or topic is before.topics.get(TOPIC):
            return
        for partition in topic.partitions:
            if self.host not in partition.replicas:
                self._drop(partition.index)
            elif partition.leader == self.host:
                self._lead(partition)
            else:
                self._follow(partition)

    def _log(self, index: int) -> ReplicaLog:
        log = self._logs.get((self.host, index))
        if log is None:
            log = self._logs[self.host, index] = ReplicaLog()
        return log

    def _drop(self, index: int) -> None:
        if self._break_off(index) is not None or self.follows.pop(index, None) is not None:
            self._logs.pop((self.host, index), None)

    def _break_off(self, index: int) -> PartitionLeader | None:
        """Lead a partition no more: waits end with an error, unless this broker leads on."""
        if self.mistakes.waits_end:
            self._waiting.pop(index, None)
        return self.leads.pop(index, None)

    def _lead(self, partition: PartitionImage) -> None:
        index, log = partition.index, self._log(partition.index)
        known = self.leads.get(index)
        if known is not None and known.leader_epoch >= partition.leader_epoch:
            if known.leader_epoch == partition.leader_epoch:
                self._commit_isr(index, known, partition)
            return
        self.follows.pop(index, None)
        self._promises.leads(index, partition.leader_epoch, self.host)
        log.epochs.assign(partition.leader_epoch, log.end)
        leader = self.leads[index] = self.mistakes.leader(
            broker_id=self.host,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            log_end_offset=log.end,
            high_watermark=log.high_watermark,
            now=self.world.now,
        )
        self._advanced(index, leader)

    def _commit_isr(self, index: int, leader: PartitionLeader, partition: PartitionImage) -> None:
        if leader.commit_isr(partition.isr, partition.partition_epoch):
            self._advanced(index, leader)

    def _follow(self, partition: PartitionImage) -> None:
        index = partition.index
        led, known = self.leads.get(index), self.follows.get(index)
        if led is not None and led.leader_epoch >= partition.leader_epoch:
            return
        if known is not None and known.epoch >= partition.leader_epoch:
            return
        self._break_off(index)
        self._log(index)
        self.follows[index] = Following(partition.leader, partition.leader_epoch)

    def _advanced(self, index: int, leader: PartitionLeader) -> None:
        log = self._log(index)
        log.high_watermark = leader.high_watermark
        self._promises.has_committed(index, log, leader.high_watermark)
        waiting = self._waiting.get(index, [])
        while waiting and waiting[0].offset < leader.high_watermark:
            self._promises.acknowledges(index, *waiting.pop(0), leader.leader_epoch)

    # Leading

    def write(self, index: int, value: int) -> None:
        """A client writes to a partition that this broker believes to lead."""
        leader, log = self.leads[index], self._log(index)
        record = Record(leader.leader_epoch, value)
        self._waiting.setdefault(index, []).append(Written(log.end, record))
        log.append(record)
        if leader.appended(log.end):
            self._advanced(index, leader)

    def epoch_end(self, index: int, current: int, epoch: int, reply: Callable[..., None]) -> None:
        """A follower compares: where does an epoch end here?"""
        leader = self.leads.get(index)
        if leader is not None and leader.leader_epoch == current:
            reply(*self._log(index).end_of(epoch))

    def fetch(
        self, replica: int, replica_epoch: int, index: int, current: int, offset: int, reply: Callable[..., None]
    ) -> None:
        """A follower fetches."""
        leader, log = self.leads.get(index), self._logs.get((self.host, index))
        if leader is None or log is None or leader.leader_epoch != current:
            return
        if replica not in leader.replicas or offset > log.end:
            return
        if leader.fetched(replica, offset, self.world.now, replica_epoch):
            self._advanced(index, leader)
        reply(offset, log.records[offset : offset + _MOST_RECORDS], leader.high_watermark)

    def _propose(self) -> None:
        """Ask the controller for every change of an ISR that is due."""
        now = self.world.now
        if now - self._proposed_at < _TIMEOUT or self.image.controller_id < 0:
            return
        wanted: list[tuple[PartitionLeader, IsrChange]] = []
        for index, leader in self.leads.items():
            isr = leader.next_isr(now, _MAX_LAG)
            if isr is not None:
                leader.propose(isr)
                epochs = leader.broker_epochs(isr)
                topic_id = self.image.topics[TOPIC].topic_id
                change = IsrChange(topic_id, index, leader.leader_epoch, leader.partition_epoch, isr, epochs)
                wanted.append((leader, change))
        if not wanted:
            return
        self._proposed_at = now
        self._proposal += 1
        request = AlterIsr(self.host, self.epoch, [change for _, change in wanted])
        self.ask(self.image.controller_id, "requested", request, self._proposal_answer(self._proposal, wanted))

    def _proposal_answer(
        self, number: int, wanted: Sequence[tuple[PartitionLeader, IsrChange]]
    ) -> Callable[[dict[Key, Answer] | None], None]:
        def answered(answers: dict[Key, Answer] | None) -> None:
            if number != self._proposal or self.world.now - self._proposed_at >= _TIMEOUT:
                return
            self._proposed_at = -_TIMEOUT
            for leader, change in wanted:
                answer = None if answers is None else answers[change.topic_id, change.index]
                if self.leads.get(change.index) is not leader or answer is None:
                    continue
                if isinstance(answer, PartitionImage):
                    self._commit_isr(change.index, leader, answer)
                elif isinstance(answer, ApiError):
                    leader.refused(answer.code)

        return answered

    def requested(self, request: Request, reply: Callable[[dict[Key, Answer] | None], None]) -> None:
        """Somebody takes this broker for the controller."""
        if self.controller is None:
            reply(None)
        else:
            self.controller.ask(request, reply)

    # Following

    def _tick(self) -> None:
        for index, following in self.follows.items():
            if self.world.now - following.asked_at >= _TIMEOUT:
                self._fetch(index, following)
        self._propose()
        if self.world.random.random() < 0.1:
            for (host, _), log in self._logs.items():
                if host == self.host:
                    log.checkpoint = log.high_watermark
        if self.session is None:
            self._look()
        self.after(_TICK * (0.5 + self.world.random.random()), self._tick)

    def _fetch(self, index: int, following: Following) -> None:
        if following.leader < 0:
            return
        log = self._log(index)
        following.asked_at = asked_at = self.world.now
        if not following.agrees and log.epochs.latest < 0:
            log.truncate(min(log.high_watermark, log.end))
            following.agrees = True

        if not following.agrees:
            epoch = log.epochs.latest

            def compared(found: int, end: int) -> None:
                if self.follows.get(index) is following and following.asked_at == asked_at:
                    self._compare(index, following, epoch, found, end)

            self.ask(following.leader, "epoch_end", index, following.epoch, epoch, compared)
            return

        def fetched(offset: int, records: list[Record], high_watermark: int) -> None:
            if self.follows.get(index) is following and following.asked_at == asked_at and offset == log.end:
                self._append(index, following, records, high_watermark)

        self.ask(following.leader, "fetch", self.host, self.epoch, index, following.epoch, log.end, fetched)

    def _compare(self, index: int, following: Following, epoch: int, found: int, end: int) -> None:
        log = self._log(index)
        own = log.end_of(found)
        place = self.mistakes.cut(
            asked_epoch=epoch,
            leader_epoch=found,
            leader_end=end,
            own_epoch=own.epoch,
            own_end=own.end_offset,
            log_end=log.end,
            high_watermark=log.high_watermark,
        )
        log.truncate(place.offset)
        self._promises.look(index)
        following.agrees = place.done
        self._fetch(index, following)

    def _append(self, index: int, following: Following, records: list[Record], high_watermark: int) -> None:
        log = self._log(index)
        for record in records:
            log.append(record)
        log.high_watermark = max(log.high_watermark, min(high_watermark, log.end))
        following.asked_at = -_TIMEOUT
        if records:
            self._fetch(index, following)
