"""The whole chain, cluster and clients and checker, can fail: brokers with a mistake, and those set up to lose, lose.

Brokers that acknowledge before they replicate are caught. So is what needs no mistake: whoever asks only the leader
(acks=1), or lets a replica lead that is not in sync, has given up the promise. The same stories without that weakness
lose nothing.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.history.checker import Kind, check
from tests.history.clients import SAFE
from tests.history.faults import Stage
from tests.history.workload import Workload
from tests.support.clusters import LONG_LAG_TIME, Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.history.checker import Violation

MISTAKE: Final = Path(__file__).with_name("planted")


class Mistaken(Cluster):
    """Brokers that take for committed what only the leader has."""

    def inside(self, broker_id: int) -> Sequence[str]:
        """Start a broker with the mistake."""
        return ["env", f"PYTHONPATH={MISTAKE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("planted"), settings=LONG_LAG_TIME) as found:
        yield found


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> None:
    """Every test begins with all brokers up."""
    wait_until(lambda: len(cluster.metadata().brokers) == 3, "all brokers to be known")


def leader_dies_alone(
    cluster: Cluster, topic: str, config: dict[str, Any], *, acknowledges: bool = False
) -> list[Violation]:
    """Followers hang, so that only the leader has the last records; it is killed, they wake up and go on.

    A leader that `acknowledges` what it has alone is given the time for it.
    """
    cluster.create(topic, 1, 3, min_insync_replicas="2")
    with Workload(cluster.bootstrap, topic, 1, producers=1, members=0, config=config) as workload:
        wait_until(lambda: workload.acknowledged > 50, "the first records to be acknowledged")
        leader = cluster.leader(topic)
        followers = [node for broker, node in cluster.nodes.items() if broker != leader]
        for node in followers:
            node.send(signal.SIGSTOP)
        sent, acknowledged = len(workload.producers[0].sent), workload.acknowledged
        wait_until(lambda: len(workload.producers[0].sent) > sent + 50, "more to be sent")
        if acknowledges:
            wait_until(lambda: workload.acknowledged > acknowledged + 50, "more to be acknowledged")
        cluster.nodes[leader].kill()
        for node in followers:
            node.send(signal.SIGCONT)
        cluster.leader(topic, other_than=leader)
        cluster.start(leader)
        Stage(cluster, topic).settle(1)
        return check(workload.finish())


def test_acks_of_the_leader_alone_are_lost_with_it(cluster: Cluster) -> None:
    violations = leader_dies_alone(cluster, "alone", {"acks": "1", "enable.idempotence": False}, acknowledges=True)
    assert Kind.LOST in {violation.kind for violation in violations}


def test_acks_of_all_are_not(cluster: Cluster) -> None:
    assert leader_dies_alone(cluster, "together", SAFE) == []


def test_brokers_that_acknowledge_before_they_replicate_are_caught(tmp_path: Path) -> None:
    with Mistaken(tmp_path, settings=LONG_LAG_TIME) as mistaken:
        violations = leader_dies_alone(mistaken, "mistaken", SAFE, acknowledges=True)
    assert Kind.LOST in {violation.kind for violation in violations}


def last_in_sync_dies(cluster: Cluster, topic: str, *, unclean: bool) -> list[Violation]:
    """Two brokers die, the third goes on alone and dies too; the two come back before it does."""
    settings = {"min_insync_replicas": "1", "unclean_leader_election_enable": str(unclean).lower()}
    cluster.create(topic, 1, 3, **settings)
    with Workload(cluster.bootstrap, topic, 1, producers=1, members=0) as workload:
        wait_until(lambda: workload.acknowledged > 50, "the first records to be acknowledged")
        last = cluster.leader(topic)
        others = [broker for broker in cluster.nodes if broker != last]
        for broker in others:
            cluster.nodes[broker].kill()
        cluster.wait_for_isr(topic, {last})
        acknowledged = workload.acknowledged
        wait_until(lambda: workload.acknowledged > acknowledged + 50, "records that only the last one has")
        cluster.nodes[last].kill()
        for broker in others:
            cluster.start(broker)
        if unclean:
            assert cluster.leader(topic, other_than=last) in others
        cluster.start(last)
        Stage(cluster, topic).settle(1)
        return check(workload.finish())


def test_an_unclean_election_loses_what_was_acknowledged(cluster: Cluster) -> None:
    violations = last_in_sync_dies(cluster, "unclean", unclean=True)
    assert Kind.LOST in {violation.kind for violation in violations}


def test_without_it_the_last_in_sync_is_waited_for(cluster: Cluster) -> None:
    assert last_in_sync_dies(cluster, "clean", unclean=False) == []
