"""`barnabas load` as a user runs it, on a Spark standalone cluster of two workers from the pip package."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.tables.opening import open_table
from tests.support.spark import SETTINGS, texts
from tests.support.spark_cluster import SparkCluster
from tests.support.tables import content

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.kafka import Kafka


def barnabas(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main", *words], capture_output=True, text=True, timeout=400
    )


@pytest.mark.timeout(900)
def test_a_load_on_two_workers(tmp_path: Path, kafka: Kafka) -> None:
    topic = kafka.topic(partitions=4)
    for partition in range(4):
        kafka.send(topic, *({"n": n} for n in range(partition, 1000, 4)), partition=partition)
    place = str(tmp_path / "lake" / "numbers")
    servers = ["--bootstrap-server", kafka.bootstrap_servers]
    with SparkCluster(tmp_path) as cluster:
        words = ["load", topic, "--to", place, "--format", "delta", "--decode", "json", "--json", *servers]
        settings = [f"--conf={name}={value}" for name, value in texts(SETTINGS).items()]
        done = barnabas(*words, "--master", cluster.url, *settings)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["records"], report["dead"], report["commits"]) == (1000, 0, 1)
        assert all("Asked to launch executor" in worker.output() for worker in cluster.workers)
    assert sorted(content("delta", place).column("n").to_pylist()) == list(range(1000))
    with open_table(place, "delta") as table:
        assert table.size().files == 2
    shown = barnabas("table", "describe", place, "--format", "delta", *servers)
    assert shown.stdout.splitlines()[-4:] == [f"{topic} {partition} 250 0" for partition in range(4)]
    grouped = barnabas("groups", "--describe", "--group", f"load-{topic}", *servers)
    assert grouped.stdout.count(" 250 ") >= 4, grouped.stdout + grouped.stderr


def test_a_load_that_cannot_begin_says_so_in_one_line(tmp_path: Path, kafka: Kafka) -> None:
    done = barnabas("load", "nothing", "--to", str(tmp_path / "x"), "--bootstrap-server", kafka.bootstrap_servers)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "Error: there is no topic or partition nothing. List the topics with `barnabas topics --list`."
    )
    assert not (tmp_path / "x").exists()
