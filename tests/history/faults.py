"""What goes wrong: brokers, their disks and clocks, ZooKeeper and the network, in an order that a seed decides.

A fault strikes, lasts for a while and is healed; at times a second one strikes before the first is healed. The seed
decides which, whom (by role: who has the role is looked up when it strikes) and for how long. How the cluster takes
it is up to the machine, so a seed repeats the plan, not the history.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import KafkaException

from tests.history.moves import Moves
from tests.history.networks import CLIENTS, STORE
from tests.history.tampering import Tampered
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.history.networks import Network
    from tests.history.tampering import What
    from tests.support.clusters import Cluster
    from tests.support.zookeeper import ZooKeeper

READY: Final = " is ready on "
"""What a broker says when it has started: one that finds no store before gives up."""
ROLES: Final = ("leader", "follower", "controller")
VERBS: Final = ("kill", "freeze", "slow", "stop")
"""kill -9; SIGSTOP; SIGSTOP most of the time; SIGTERM with a controlled shutdown."""
STRAND: Final = "strand leader"
"""The others hang for a moment, so that the leader alone has the last records; then it is killed, and they go on."""
PROCESS_FAULTS: Final = (*(f"{verb} {role}" for verb in VERBS for role in ROLES), "kill all", "freeze all", STRAND)
TAMPERED_FAULTS: Final = tuple(f"{verb} {role}" for verb in ("drag", "fill", "spoil", "shift") for role in ROLES)
"""A slow disk; a full disk and one that fails to write, which both last until the broker is started again; a clock that
jumps, and later back."""
DRAG: Final = 0.3
"""Seconds that a write to a slow disk takes."""
SHIFTS: Final = (-50 * 60, 20 * 3600)
"""Seconds by which a clock is wrong. Beyond an hour behind, records of now would be refused as from the future; beyond
a day ahead, producers would be forgotten."""
LOSE_STORE: Final = "lose store"
"""Like "kill store", and longer than all sessions."""
STORE_FAULTS: Final = ("kill store", "freeze store", LOSE_STORE)
NETWORK_FAULTS: Final = tuple(f"{verb} {role}" for verb in ("isolate", "deafen", "mute", "part") for role in ROLES)
"""Nothing to or from all others; nothing from them; nothing to them; nothing to or from one other broker."""
STORE_LINK_FAULTS: Final = tuple(f"unmoor {role}" for role in ROLES)
"""Nothing to or from the store."""
MOVE_FAULTS: Final = (*(f"move {role}" for role in ROLES), "elect follower", "elect controller")
"""Partitions lose their replica on a broker, and get it back later; a broker is made their leader."""
FAMILIES: Final = {
    "kill": "kill -9",
    "strand": "kill -9",
    "freeze": "SIGSTOP",
    "slow": "SIGSTOP",
    "isolate": "partition",
    "deafen": "partition",
    "mute": "partition",
    "part": "partition",
    "unmoor": "partition",
    "drag": "disk",
    "fill": "disk",
    "spoil": "disk",
    "stop": "other",
    "shift": "other",
    "move": "move",
    "elect": "move",
}
"""What the faults of brokers are counted as, by their verbs."""


def family(kind: str) -> str:
    """What a fault is counted as."""
    verb, _, whom = kind.partition(" ")
    return "other" if whom == "store" else FAMILIES[verb]


class Wound(NamedTuple):
    """A fault that struck and is to be healed."""

    heal: Callable[[], None]
    late: bool = False
    """Healed after all others: a broker that starts and finds no store gives up, and that is no fault of ours."""
    happened: bool = True
    """Whether anything is wrong now: a cluster without a controller moves no partition."""


class Keeper:
    """A ZooKeeper that can be started again; as a context manager it is killed at the end."""

    def __init__(self, make: Callable[[], ZooKeeper]) -> None:
        self._make = make
        self.server = make()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()

    def start(self) -> None:
        """Start it again, if it was killed."""
        if not self.server.alive:
            self.server = self._make()


class Stage:
    """What faults happen to: a cluster, the ZooKeeper it may have, and the network it may be on."""

    def __init__(
        self, cluster: Cluster, topic: str, keeper: Keeper | None = None, network: Network | None = None
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self._keeper = keeper
        self._network = network
        self._down: set[int] = set()
        self._cuts: Counter[tuple[int, int]] = Counter()
        self._moves = Moves(cluster, topic)

    @property
    def kinds(self) -> Sequence[str]:
        """The faults that can happen here."""
        kinds = [*PROCESS_FAULTS, *MOVE_FAULTS]
        if isinstance(self.cluster, Tampered):
            kinds += TAMPERED_FAULTS
        if self._keeper is not None:
            kinds += STORE_FAULTS
        if self._network is not None:
            kinds += NETWORK_FAULTS
        if self._keeper is not None and self._network is not None:
            kinds += STORE_LINK_FAULTS
        return kinds

    def strike(self, kind: str, chance: random.Random) -> Wound:
        """Let a fault happen."""
        verb, _, whom = kind.partition(" ")
        luck = chance.random()
        if whom == "store":
            return self._hit_store(verb)
        brokers = list(self.cluster.nodes) if whom == "all" else [self._whose(whom, luck)]
        if kind == STRAND:
            return self._strand(brokers[0], 0.2 + luck)
        if verb in ("move", "elect"):
            return self._move(verb, brokers[0], luck)
        if verb == "freeze":
            return self._freeze(brokers)
        if verb == "slow":
            return self._slow(brokers[0])
        if verb in ("kill", "stop"):
            return self._end(verb, brokers)
        if verb in ("fill", "spoil"):
            return self._fail_writes(brokers[0], "full" if verb == "fill" else "bad")
        if verb == "drag":
            return self._tamper(brokers[0], "delay", DRAG)
        if verb == "shift":
            return self._tamper(brokers[0], "clock", SHIFTS[luck < 0.5])
        return self._cut(self._links(verb, brokers[0], luck))

    def look(self) -> None:
        """Fail if a broker ended that nobody killed; one that never got ready is started again, as systemd would."""
        for broker_id, node in list(self.cluster.nodes.items()):
            if broker_id in self._down or node.alive:
                continue
            if READY in node.output():
                raise AssertionError(f"broker {broker_id} ended by itself:\n{node.tail()}")
            self.cluster.start(broker_id, wait=False)

    def wait_for_starts(self, seconds: float = 120) -> None:
        """Wait until all brokers have started."""
        wait_until(self._ready, "all brokers to be ready", seconds, every=0.2)

    def settle(self, partitions: int, seconds: float = 120) -> None:
        """Wait until every partition has all its replicas in sync again."""
        self.wait_for_starts(seconds)
        everyone = set(self.cluster.nodes)
        seen: object = None

        def settled() -> bool:
            nonlocal seen
            self.look()
            try:
                found = self.cluster.metadata(self.topic).topics[self.topic].partitions
            except KafkaException as failed:
                seen = failed
                return False
            seen = {index: (each.leader, sorted(each.isrs)) for index, each in found.items()}
            return len(found) == partitions and all(
                each.leader > 0 and set(each.isrs) == everyone for each in found.values()
            )

        try:
            wait_until(self._moves.are_over, "all moves to be over", seconds, every=0.2)
            wait_until(settled, "all replicas to be in sync", seconds, every=0.2)
        except AssertionError as failed:
            raise AssertionError(f"{failed}; last seen: {seen}") from None

    def _ready(self) -> bool:
        self.look()
        return all(READY in node.output() for node in self.cluster.nodes.values())

    def _whose(self, role: str, luck: float) -> int:
        """Who has a role now; anyone, if nobody can say."""
        brokers = sorted(self.cluster.nodes)
        anyone = brokers[int(luck * len(brokers))]
        try:
            found = self.cluster.admin.list_topics(self.topic, timeout=3)
        except KafkaException:
            return anyone
        partitions = found.topics[self.topic].partitions
        if role == "controller" or not partitions:
            return found.controller_id if found.controller_id in brokers else anyone
        leader: int = partitions[int(luck * len(partitions))].leader
        if role == "follower":
            others = [broker for broker in brokers if broker != leader]
            return others[int(luck * 1000) % len(others)]
        return leader if leader in brokers else anyone

    def _move(self, verb: str, broker: int, luck: float) -> Wound:
        if verb == "elect":
            return Wound(lambda: None, happened=self._moves.elect(broker, luck))
        happened = self._moves.take_from(broker, luck)

        def heal() -> None:
            self._moves.bring_back(luck)  # and if nobody takes that on now, `settle` asks again

        return Wound(heal, late=True, happened=happened)

    def _freeze(self, brokers: Sequence[int]) -> Wound:
        frozen = [self.cluster.nodes[broker] for broker in brokers]
        for node in frozen:
            node.send(signal.SIGSTOP)

        def heal() -> None:
            for node in frozen:
                node.send(signal.SIGCONT)

        return Wound(heal)

    def _strand(self, leader: int, seconds: float) -> Wound:
        others = self._freeze([broker for broker in self.cluster.nodes if broker != leader])
        time.sleep(seconds)
        killed = self._end("kill", [leader])
        others.heal()
        return killed

    def _slow(self, broker: int) -> Wound:
        node = self.cluster.nodes[broker]
        over = threading.Event()

        def stutter() -> None:
            while not over.is_set():
                node.send(signal.SIGSTOP)
                over.wait(0.4)
                node.send(signal.SIGCONT)
                over.wait(0.1)

        thread = threading.Thread(target=stutter, name=f"slow {broker}", daemon=True)
        thread.start()

        def heal() -> None:
            over.set()
            thread.join()

        return Wound(heal)

    def _end(self, verb: str, brokers: Sequence[int]) -> Wound:
        self._down |= set(brokers)
        for broker in brokers:
            if verb == "kill":
                self.cluster.nodes[broker].kill()
            else:
                self.cluster.nodes[broker].send(signal.SIGTERM)

        def heal() -> None:
            for broker in brokers:
                if broker in self._down:
                    self._again(broker)
                    self._down.discard(broker)

        return Wound(heal, late=True)

    def _tamper(self, broker: int, what: What, value: float) -> Wound:
        cluster = self.cluster
        assert isinstance(cluster, Tampered)
        cluster.tamper(broker, what, value)
        return Wound(lambda: cluster.tamper(broker, what, 0))

    def _fail_writes(self, broker: int, what: What) -> Wound:
        self._down.add(broker)
        failing = self._tamper(broker, what, 1)

        def heal() -> None:
            failing.heal()
            self.cluster.nodes[broker].kill()
            self.cluster.start(broker, wait=False)
            self._down.discard(broker)

        return Wound(heal, late=True)

    def _again(self, broker: int) -> None:
        """Start a broker that was killed or told to stop; one that cannot stop, whatever hinders it, is killed."""
        with suppress(AssertionError):
            self.cluster.nodes[broker].wait(15)
        self.cluster.start(broker, wait=False)

    def _hit_store(self, verb: str) -> Wound:
        assert self._keeper is not None
        server = self._keeper.server
        if verb == "freeze":
            server.send(signal.SIGSTOP)
            return Wound(lambda: server.send(signal.SIGCONT))
        server.kill()
        return Wound(self._keeper.start)

    def _links(self, verb: str, victim: int, luck: float) -> Iterable[tuple[int, int]]:
        others = [broker for broker in self.cluster.nodes if broker != victim]
        match verb:
            case "part":
                others = [others[int(luck * 1000) % len(others)]]
            case "unmoor":
                others = [STORE]
            case _:
                others += [STORE, CLIENTS] if luck < 0.5 else [STORE]
        outward = [(victim, other) for other in others]
        inward = [(other, victim) for other in others]
        return {"deafen": inward, "mute": outward}.get(verb, inward + outward)

    def _cut(self, links: Iterable[tuple[int, int]]) -> Wound:
        network = self._network
        assert network is not None
        links = list(links)
        for link in links:
            self._cuts[link] += 1
            network.cut(*link)

        def heal() -> None:
            for link in links:
                self._cuts[link] -= 1
                if not self._cuts[link]:
                    network.join(*link)

        return Wound(heal)


Bounds = tuple[float, float]
"""The fewest and the most seconds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to happen, and for how long."""

    seed: int
    seconds: float | None = None
    """None: until every kind has had its turn."""
    kinds: Sequence[str] = ()
    """Only these; all that can happen, if none are named."""
    shares: Mapping[str, int] = field(default_factory=dict)
    """How many of each family there are in a round, whichever they are; each kind once, if none is named."""
    is_patient: bool = False
    """Whether the next fault waits for brokers that start: on a machine that is busy for hours they take longer than
    faults come, and a cluster that is never whole says nothing."""
    outage: float = 5.0
    """Seconds that the store is lost, when it is lost for longer than a session."""
    lasting: Bounds = (0.3, 8.0)
    """Seconds that a fault lasts; the longest outlast a session of the tests."""
    calm: Bounds = (0.2, 3.0)
    """Seconds between two faults."""
    two_at_once: float = 0.25
    """How often a second fault strikes before the first is healed."""


def short_plan(seed: int, kinds: Sequence[str]) -> Plan:
    """Each of these once, for runs of every build: faults are shorter than in a soak, and overlap more often.

    A few of them still outlast a session of the tests, which has three seconds.
    """
    return Plan(seed, kinds=kinds, lasting=(0.3, 4.0), calm=(0.1, 1.0), two_at_once=0.4)


class Nemesis:
    """The one who lets faults happen, by a plan."""

    def __init__(self, stage: Stage, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._bag: list[str] = []
        self.struck: list[str] = []
        self.missed: list[str] = []
        """Those of them that found nothing to harm."""

    def run(self) -> None:
        """Let one fault follow the other; at the end all are healed."""
        began = time.monotonic()
        wounds: list[Wound] = []
        try:
            while self._goes_on(time.monotonic() - began):
                wounds.append(self._strike())
                if len(wounds) == 1 and self._chance.random() < self._plan.two_at_once:
                    self._pass(self._plan.calm)
                    continue
                lost = LOSE_STORE in self.struck[-len(wounds) :]
                self._pass((self._plan.outage, self._plan.outage) if lost else self._plan.lasting)
                _heal(wounds)
                self._stage.look()
                if self._plan.is_patient:
                    self._stage.wait_for_starts()
                self._pass(self._plan.calm)
        finally:
            _heal(wounds)

    def _goes_on(self, passed: float) -> bool:
        if self._plan.seconds is None:
            return not self.struck or bool(self._bag)
        return passed < self._plan.seconds

    def _strike(self) -> Wound:
        """The next fault: in every round each kind has its turn, or each family its share, in an order of its own."""
        if not self._bag:
            self._bag = sorted(self._plan.kinds or self._stage.kinds)
            if self._plan.shares:
                self._bag = self._shared(self._bag)
            self._chance.shuffle(self._bag)
        kind = self._bag.pop()
        self.struck.append(kind)
        wound = self._stage.strike(kind, self._chance)
        if not wound.happened:
            self.missed.append(kind)
        return wound

    def _shared(self, kinds: Sequence[str]) -> list[str]:
        """A round by the shares of families."""
        round_: list[str] = []
        for name, share in self._plan.shares.items():
            members = [kind for kind in kinds if family(kind) == name]
            round_ += self._chance.choices(members, k=share) if members else []
        return round_

    def _pass(self, bounds: Bounds) -> None:
        """How long a fault or a calm lasts is part of the plan, nothing is waited for. Short is likelier than long."""
        shortest, longest = bounds
        time.sleep(shortest + (longest - shortest) * self._chance.random() ** 2)


def _heal(wounds: list[Wound]) -> None:
    """Heal them all."""
    wounds.sort(key=lambda wound: wound.late)
    while wounds:
        wounds.pop(0).heal()
