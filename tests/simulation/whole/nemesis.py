"""Lets things fail as the plan says, and heals them.

A machine that loses power loses bytes that were not synced, and a log in Kafka's default settings is not synced before
it is acknowledged: replicas are what keeps it. So, unless every batch is synced, a machine loses power only where each
of its partitions has another replica that is in sync, up and in touch with the metadata tree; no second machine loses
power before every replica is in sync again; and nobody else dies, or loses touch with the tree, before the cluster
knows that the machine was away: an in-sync replica that is the last one leads again, whatever its disk has lost. All
other faults come at any time and together.
"""

from __future__ import annotations

import asyncio
import errno
import json
from typing import TYPE_CHECKING, Final

from tests.simulation.whole import loose
from tests.simulation.whole.history import ALWAYS, OFTEN
from tests.simulation.whole.network import USUAL_DELAY
from tests.simulation.whole.replicas import NOT_CLEANED, placed
from tests.simulation.whole.store import TREE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.whole.machine import Machine
    from tests.simulation.whole.plan import Fault
    from tests.simulation.whole.world import World

DEADLY: Final = frozenset({"kill", "power", "crash", "restart", "full", "eio", "uncover", "shorten", "strand"})
LONELY: Final = frozenset({"isolate", "expire", "replace", "stop"})
"""Faults after which a broker that runs may be taken for dead."""
ALL: Final = frozenset({1, 2, 3})


class Nemesis:
    """See the module's docstring."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._healing: list[Callable[[], object]] = []
        self._weak: Machine | None = None
        """The machine that lost power last, and may lack what others have."""
        self._uncovering = False
        self._armed: Machine | None = None
        """The machine whose power goes with one of its next writes."""

    async def run(self) -> None:
        """Do all faults of the plan, each at its time."""
        await asyncio.gather(*(self._do(fault) for fault in self._world.plan.faults))

    def heal(self) -> None:
        """Everything that is broken is mended now."""
        self._world.log.say("everything is mended")
        for heal in self._healing:
            heal()
        for machine in self._world.machines:
            if machine.needs_restart or not machine.is_up:  # who stopped in the middle of a write has its files open
                machine.kill()
            machine.disk.room = machine.disk.crash_in = machine.disk.fails_in = None
            machine.disk.failing_syncs = machine.disk.failing_writes = machine.disk.failing_reads = False
            machine.disk.descriptors = None
            machine.slowness = 1.0
            if not machine.is_up:
                machine.start()

    def in_sync(self) -> bool:
        """Whether every replica of every partition is in sync, as the metadata tree has it."""
        nodes = self._world.tree.nodes
        for path, node in nodes.items():
            if path.startswith("/brokers/topics/") and path.count("/") == 3:
                topic = json.loads(node.data)
                if topic.get("adding_replicas") or topic.get("removing_replicas"):
                    return False
        states = list(placed(nodes))
        return bool(states) and all(set(isr) == set(replicas) for _, _, replicas, isr in states)

    async def _do(self, fault: Fault) -> None:
        world = self._world
        await asyncio.sleep(max(0.0, fault.at - world.loop.time()))
        machine = world.machines[fault.machine - 1]
        if self._weak is not None and self._armed is None and self.is_whole():
            self._weak = None
        kind = "full" if fault.kind == "hiccup" and _hiccup_error(fault) == errno.ENOSPC else fault.kind
        if not self._is_synced and not self._may_happen(kind, machine):
            return
        world.log.say(f"{fault.kind} {machine.name} for {fault.seconds:.1f} s")
        await getattr(self, f"_{fault.kind}")(machine, fault)

    @property
    def _is_synced(self) -> bool:
        """Whether nothing is acknowledged before it is on disk."""
        return "log.flush.interval.messages" in self._world.plan.settings

    def _may_happen(self, kind: str, machine: Machine) -> bool:
        """Whether the cluster promises to survive this now; see the module's docstring."""
        if kind in ("power", "crash"):
            return not self._uncovering and self._weak in (None, machine) and self._is_backed_up(machine)
        if kind == "uncover":
            return self._weak is None
        return kind not in DEADLY | LONELY or self._weak in (None, machine) or not self._counts_on(self._weak)

    def _is_backed_up(self, machine: Machine) -> bool:
        """Whether each partition has another replica that is in sync, up and in touch, with a disk that works."""
        machines = (each for each in self._world.machines if each.is_in_touch and not each.disk_failed)
        up = {each.number for each in machines if not each.disk.may_be_full}  # who has no room cannot lead
        states = [isr for topic, _, _, isr in placed(self._world.tree.nodes) if topic != loose.TOPIC]
        return all(up & set(isr) - {machine.number} for isr in states)

    def _counts_on(self, machine: Machine) -> bool:
        """Whether the tree has a machine in some ISR from before it lost power."""
        if machine is self._armed:
            return True
        in_isr = any(machine.number in isr for _, _, _, isr in placed(self._world.tree.nodes))
        return in_isr and not machine.is_in_cluster

    def is_whole(self) -> bool:
        """Whether every replica is in sync, of brokers that are registered as they run now, with disks that work."""
        return self.in_sync() and all(each.is_in_cluster and not each.disk_failed for each in self._world.machines)

    async def _for_a_while(self, seconds: float, heal: Callable[[], object]) -> None:
        done = False

        def once() -> None:
            nonlocal done
            if not done:
                done = True
                heal()

        self._healing.append(once)
        await asyncio.sleep(seconds)
        once()

    # Faults

    async def _kill(self, machine: Machine, fault: Fault) -> None:
        if machine.is_up:
            machine.kill()
            await self._up_again(machine, fault.seconds)

    async def _power(self, machine: Machine, fault: Fault) -> None:
        if machine.is_up:
            self._weak = machine
            self._lose_power(machine, fault.other + fault.machine * 1000 + int(fault.at * 1000))
            await self._up_again(machine, fault.seconds)

    async def _crash(self, machine: Machine, fault: Fault) -> None:
        """The power goes in the middle of a write, some writes from now."""
        if not machine.is_up:
            return
        self._weak = self._armed = machine
        machine.disk.crash_in = int(fault.seconds * 5)
        machine.disk.may_crash = lambda: self._is_synced or self._is_backed_up(machine)
        process = machine.process
        for _ in range(30):
            await asyncio.sleep(0.1)
            if process is None or not process.alive:
                break
        machine.disk.crash_in = self._armed = None
        if machine.process is process and not machine.is_up:
            self._lose_power(machine, fault.other + int(fault.at * 1000))
            await self._up_again(machine, fault.seconds)

    def _lose_power(self, machine: Machine, seed: int) -> None:
        """The topic that may lose records loses those that nobody else who is in sync and up has."""
        others = set(loose.state_of(self._world.tree).isr) - {machine.number}
        are_up = any(each.number in others and each.is_in_touch for each in self._world.machines)
        if not self._is_synced and not are_up:
            self._world.log.loosened = self._world.loop.time()
        machine.power_loss(seed)

    async def _up_again(self, machine: Machine, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not machine.is_up:
            machine.start()

    async def _restart(self, machine: Machine, fault: Fault) -> None:
        await machine.stop()
        await self._up_again(machine, fault.seconds / 4)

    async def _stop(self, machine: Machine, fault: Fault) -> None:
        process = machine.process
        if process is not None and process.alive:
            self._world.loop.stop_process(process)
            await self._for_a_while(fault.seconds, lambda: self._world.loop.continue_process(process))

    async def _cut(self, machine: Machine, fault: Fault) -> None:
        await self._cut_links([(machine.name, f"b{fault.other}"), (f"b{fault.other}", machine.name)], fault.seconds)

    async def _isolate(self, machine: Machine, fault: Fault) -> None:
        await self._cut_links([(machine.name, TREE), (TREE, machine.name)], fault.seconds)

    async def _replace(self, machine: Machine, fault: Fault) -> None:
        """The leader of a partition is cut off from the tree, and from nobody else."""
        state = self._world.tree.nodes.get(f"/brokers/topics/{NOT_CLEANED}/partitions/0/state")
        leader = machine.number if state is None else json.loads(state.data)["leader"]
        await self._isolate(self._world.machines[max(leader, 1) - 1], fault)

    async def _oneway(self, machine: Machine, fault: Fault) -> None:
        await self._cut_links([(machine.name, f"b{fault.other}")], fault.seconds)

    async def _alone(self, machine: Machine, fault: Fault) -> None:
        others = [f"b{number}" for number in ALL - {machine.number}]
        links = [(machine.name, other) for other in others] + [(other, machine.name) for other in others]
        await self._cut_links(links, fault.seconds)

    async def _cut_links(self, links: list[tuple[str, str]], seconds: float) -> None:
        network = self._world.network
        for link in links:
            network.cut(*link)

        def mend() -> None:
            for link in links:
                network.mend(*link)

        await self._for_a_while(seconds, mend)

    async def _reset(self, machine: Machine, fault: Fault) -> None:
        self._world.network.reset_connections(machine.name, f"b{fault.other}")
        self._world.network.reset_connections(f"b{fault.other}", machine.name)

    async def _expire(self, machine: Machine, fault: Fault) -> None:
        for session in list(self._world.tree.sessions.values()):
            if session.process is machine.process:
                self._world.tree.expire(session)

    async def _lost(self, machine: Machine, fault: Fault) -> None:
        self._world.tree.lost_answers = 0.3
        await self._for_a_while(fault.seconds, lambda: setattr(self._world.tree, "lost_answers", 0.0))

    async def _slow(self, machine: Machine, fault: Fault) -> None:
        machine.slowness = 300.0
        await self._for_a_while(fault.seconds, lambda: setattr(machine, "slowness", 1.0))

    async def _full(self, machine: Machine, fault: Fault) -> None:
        machine.disk.room = fault.other * 300
        await self._for_a_while(fault.seconds, lambda: setattr(machine.disk, "room", None))

    async def _eio(self, machine: Machine, fault: Fault) -> None:
        """Syncs, writes or reads of a disk fail until it is mended, of one log directory or of all."""
        what = "failing_syncs" if fault.other % 2 else "failing_writes"
        if int(fault.seconds * 1000) % 3 == 0:
            what = "failing_reads"
        setattr(machine.disk, what, True)
        chosen = int(fault.seconds * 100) % (len(machine.directories) + 1)  # one of them, or all
        machine.disk.failing_below = f"{machine.directories[chosen]}/" if chosen < len(machine.directories) else ""
        machine.disk_failed = True
        await self._for_a_while(fault.seconds, lambda: setattr(machine.disk, what, False))

    async def _emfile(self, machine: Machine, fault: Fault) -> None:
        """No file can be opened, or very few can be open at the same time."""
        machine.disk.descriptors = 0 if fault.other == 1 else fault.other
        await self._for_a_while(fault.seconds, lambda: setattr(machine.disk, "descriptors", None))

    async def _hiccup(self, machine: Machine, fault: Fault) -> None:
        """One call, some calls from now, fails once."""
        machine.disk.fails_in = int(fault.seconds * 10)
        machine.disk.fails_with = _hiccup_error(fault)

    async def _strand(self, machine: Machine, fault: Fault) -> None:
        """A broker is cut off from the others, goes on taking records, and dies; then it has some that nobody else has.

        When it is back and has dropped them its power may fail: the records in their place are hardly on its disk.
        """
        if not machine.is_up:
            return
        others = [f"b{number}" for number in sorted(ALL - {machine.number})]
        links = [(machine.name, other) for other in others] + [(other, machine.name) for other in others]
        cut = asyncio.create_task(self._cut_links(links, 0.4 + fault.seconds / 4))
        await asyncio.sleep(0.3 + fault.seconds / 4)
        if self._is_synced or self._may_happen("kill", machine):
            machine.kill()
            await cut
            await self._up_again(machine, fault.seconds / 4)
            await asyncio.sleep(fault.seconds / 3)
            if fault.other % 2 and machine.is_up and (self._is_synced or self._may_happen("power", machine)):
                await self._power(machine, fault)

    async def _uncover(self, machine: Machine, fault: Fault) -> None:
        """One machine is away while records come and are deleted; then it alone is up, and leads an older log."""
        world, others = self._world, [each for each in self._world.machines if each is not machine]
        self._uncovering = True
        machine.kill()
        await self._until(lambda: machine.number not in loose.state_of(world.tree).isr)
        world.log.deletions = OFTEN
        await asyncio.sleep(1 + fault.seconds / 2)
        world.log.deletions = 0.0
        for each in others:
            each.kill()
        await self._up_again(machine, 0.5)
        await self._until(lambda: loose.state_of(world.tree).leader == machine.number)
        await asyncio.sleep(fault.seconds / 3)
        for each in others:
            await self._up_again(each, 0.2)
        self._uncovering = False

    async def _shorten(self, machine: Machine, fault: Fault) -> None:
        """One machine is away while records come and are deleted; then it comes back to what is left."""
        if not machine.is_up or self._uncovering:
            return
        log = self._world.log
        machine.kill()
        await self._until(lambda: machine.number not in loose.state_of(self._world.tree).isr)
        log.deletions = ALWAYS
        await asyncio.sleep(1 + fault.seconds / 2)
        log.deletions = 0.0
        await self._up_again(machine, 0.1)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait, but not for ever: other faults may be in the way."""
        for _ in range(60):
            if condition():
                return
            await asyncio.sleep(0.2)

    async def _clock(self, machine: Machine, fault: Fault) -> None:
        machine.clock.ahead_ms += int((fault.seconds - 4) * 100_000)

    async def _freeze(self, machine: Machine, fault: Fault) -> None:
        """The clock of a machine stops, and then goes on from where it was."""
        machine.clock.stop()
        await self._for_a_while(fault.seconds, machine.clock.go_on)

    async def _lag(self, machine: Machine, fault: Fault) -> None:
        """The network is slow, for everybody."""
        network = self._world.network
        network.slowest = 0.5 + fault.other
        await self._for_a_while(fault.seconds, lambda: setattr(network, "slowest", USUAL_DELAY))

    async def _clients(self, machine: Machine, fault: Fault) -> None:
        """The clients of a machine do not reach it, or do not hear its answers; their connections break after that."""
        network, names = self._world.network, self._world.client_names
        to, back = [(name, machine.name) for name in names], [(machine.name, name) for name in names]
        await self._cut_links([to, back, to + back][fault.other - 1], fault.seconds)
        for name in names:
            network.reset_connections(name, machine.name)
            network.reset_connections(machine.name, name)


def _hiccup_error(fault: Fault) -> int:
    return errno.ENOSPC if fault.other == 1 else errno.EMFILE
