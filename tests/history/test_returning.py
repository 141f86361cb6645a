"""A broker that comes back long after, with records at the end of its log that nobody else ever had."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.history.checker import check
from tests.history.faults import Stage
from tests.history.run import differing
from tests.history.workload import Workload
from tests.support.clusters import LONG_LAG_TIME, Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "went-on"


def test_a_diverged_log_becomes_that_of_the_others(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={**LONG_LAG_TIME, "offsets.topic.num.partitions": "1"}) as cluster:
        cluster.create(TOPIC, 1, 3, min_insync_replicas="2", internal_segment_bytes="16384")
        stage = Stage(cluster, TOPIC)
        with Workload(cluster.bootstrap, TOPIC, 1, producers=1, members=0) as workload:
            wait_until(lambda: workload.acknowledged > 50, "the first records to be acknowledged")
            gone = cluster.leader(TOPIC)
            others = [broker for broker in cluster.nodes if broker != gone]
            for broker in others:
                cluster.nodes[broker].send(signal.SIGSTOP)
            alone = _size(cluster, gone)
            wait_until(lambda: _size(cluster, gone) > alone, "records that only the leader has")
            cluster.nodes[gone].kill()
            for broker in others:
                cluster.nodes[broker].send(signal.SIGCONT)
            _go_on(workload)
            for broker in (*others, *others):  # leader epochs of which the one that is gone knows nothing
                cluster.nodes[broker].kill()
                cluster.start(broker)
                cluster.wait_for_isr(TOPIC, set(others))
                _go_on(workload)
            cluster.start(gone)
            stage.settle(1)
            assert check(workload.finish()) == []
        wait_until(lambda: not differing(cluster, TOPIC, 1), "all replicas to hold the same bytes", 60)


def _size(cluster: Cluster, broker: int) -> int:
    return sum(file.stat().st_size for file in (cluster.nodes[broker].data / f"{TOPIC}-0").glob("*.log"))


def _go_on(workload: Workload) -> None:
    acknowledged = workload.acknowledged
    wait_until(lambda: workload.acknowledged > acknowledged + 50, "more records to be acknowledged", 60)
