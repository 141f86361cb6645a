"""One run: a cluster, clients, faults by a seed, and the verdict.

The cluster has three brokers; every record is on all of them and is acknowledged when two have it. Over SQLite the
brokers are processes of this host that share a file. Over ZooKeeper each is on a host of its own, and so is ZooKeeper,
with a network between them that can fail.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.history.checker import Fate, History, Poll, check
from tests.history.clients import NO_LOGIN
from tests.history.faults import Keeper, Nemesis, Stage
from tests.history.networks import STORE, Network
from tests.history.secured import check_renewed, passwords, renew_all, secured_cluster
from tests.history.tampering import Step, Tampered, TamperedHosts
from tests.history.workload import Workload
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.history.checker import Violation
    from tests.history.faults import Plan
    from tests.support.clusters import Cluster

TOPIC: Final = "history"
PARTITIONS: Final = 3
SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "30000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "log.roll.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
}
SHOWN: Final = 20
"""How many violations a report spells out."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was run, and what came of it."""

    seed: int
    store: str
    faults: Sequence[str]
    history: History
    violations: Sequence[Violation]
    ended: Sequence[str]
    """Why producers ended for good. Nothing was lost or repeated by it, but no fault of ours may have that effect."""
    longest_step: Step
    """Of the brokers' event loops."""
    missed: Sequence[str] = ()
    """Faults that found nothing to harm: moves while there was no controller."""

    @property
    def passed(self) -> bool:
        """Whether the cluster has kept all promises, and its clients could go on."""
        return not self.violations and not self.ended

    def __str__(self) -> str:
        told = [send.fate for send in self.history.sends]
        read = sum(len(event.records) for event in self.history.reads if isinstance(event, Poll))
        lines = [
            f"seed {self.seed}, {self.store}: {len(self.faults)} faults, {len(told)} records sent, "
            f"{told.count(Fate.ACKNOWLEDGED)} acknowledged, {told.count(Fate.REFUSED)} aborted or refused, "
            f"{told.count(Fate.UNKNOWN)} of unknown fate, "
            f"{len(self.history.final)} in the log, {read} read meanwhile, {len(self.violations)} violations",
        ]
        if repeatable := sum(send.is_repeatable for send in self.history.sends):
            lines.append(f"  records expired, so their producers may have repeated {repeatable} others")
        lines.append(f"  longest step of an event loop: {self.longest_step.seconds:.3f} s, {self.longest_step.what}")
        lines += [f"  a producer ended: {reason}" for reason in self.ended]
        lines += [f"  {violation}" for violation in self.violations[:SHOWN]]
        if len(self.violations) > SHOWN:
            lines.append(f"  and {len(self.violations) - SHOWN} more")
        return "\n".join(lines)


@contextmanager
def on_one_host(
    folder: Path, settings: Mapping[str, str] = SETTINGS, make_stage: type[Stage] = Stage
) -> Iterator[Stage]:
    """Brokers on this host's network, over a shared file."""
    with Tampered(folder, settings=settings) as cluster:
        yield make_stage(cluster, TOPIC)


@contextmanager
def on_hosts(folder: Path, settings: Mapping[str, str] = SETTINGS, make_stage: type[Stage] = Stage) -> Iterator[Stage]:
    """Brokers on hosts of their own, over a ZooKeeper."""
    with Network(3) as network:
        make = partial(ZooKeeper, folder, port=2181, host=network.address(STORE), inside=network.inside(STORE))
        with Keeper(make) as keeper, TamperedHosts(folder, network, settings, keeper.server.connect) as cluster:
            yield make_stage(cluster, TOPIC, keeper, network)


def over_sqlite(folder: Path, plan: Plan) -> Report:
    """A run over a shared file."""
    with on_one_host(folder) as stage:
        return _run(stage, "SQLite", plan)


def over_zookeeper(folder: Path, plan: Plan) -> Report:
    """A run over a ZooKeeper."""
    with on_hosts(folder) as stage:
        return _run(stage, "ZooKeeper", plan)


def over_secured_zookeeper(folder: Path, plan: Plan) -> Report:
    """A run over a ZooKeeper in which everything is encrypted, and certificates and passwords are replaced."""
    with secured_cluster(folder, SETTINGS) as cluster:
        chosen = passwords(plan.seconds)
        renewing = partial(renew_all, cluster, chosen)
        report = _run(Stage(cluster, TOPIC), "ZooKeeper with TLS and ACLs", plan, cluster.client_login, renewing)
        check_renewed(cluster, chosen)
        return report


def _run(
    stage: Stage,
    store: str,
    plan: Plan,
    login: Mapping[str, str] = NO_LOGIN,
    meanwhile: Callable[[Workload], None] = lambda _: None,
) -> Report:
    """A run; `meanwhile` is called while faults strike."""
    cluster = stage.cluster
    cluster.create(TOPIC, PARTITIONS, 3, min_insync_replicas="2")
    nemesis = Nemesis(stage, plan)
    with (
        Workload(cluster.bootstrap, TOPIC, PARTITIONS, transactional=1, login=login) as workload,
        ThreadPoolExecutor(1) as pool,
    ):
        wait_until(lambda: workload.acknowledged > 100, "the first records to be acknowledged")
        ended = pool.submit(meanwhile, workload)
        nemesis.run()
        ended.result(120)
        stage.settle(PARTITIONS)
        history = workload.finish()
    stage.settle(PARTITIONS)
    wait_until(lambda: not differing(cluster, TOPIC, PARTITIONS), "all replicas to hold the same bytes", 60, every=0.5)
    longest = cluster.longest_step() if isinstance(cluster, Tampered) else Step(0.0, "not measured")
    return Report(plan.seed, store, nemesis.struck, history, check(history), workload.fatal, longest, nemesis.missed)


def differing(cluster: Cluster, topic: str, partitions: int) -> list[int]:
    """The partitions whose replicas do not hold the same bytes."""
    return [
        index
        for index in range(partitions)
        if len({_bytes(node.data / f"{topic}-{index}") for node in cluster.nodes.values()}) > 1
    ]


def _bytes(log: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in sorted(log.glob("*.log")))
