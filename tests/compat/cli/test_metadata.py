"""A cluster's metadata through the command line: from a broker to a real ZooKeeper and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.support.brokers import Barnabas
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.cli.conftest import Cli


def test_a_tree_goes_to_zookeeper_and_comes_back(cli: Cli, tmp_path: Path) -> None:
    with Barnabas(tmp_path) as broker:
        words = ("--topic", "orders", "--partitions", "3", "--config", "retention.ms=86400000")
        assert cli("topics", "--bootstrap-server", broker.bootstrap, "--create", *words).returncode == 0
        shown = cli("topics", "--bootstrap-server", broker.bootstrap, "--describe").stdout
        assert broker.stop() == 0
    ours, theirs = tmp_path / "ours.json", tmp_path / "theirs.json"
    assert cli("metadata", "export", ours, "--data", broker.data).returncode == 0

    (tmp_path / "zookeeper").mkdir()
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        chroot = f"{zookeeper.connect}/kafka"
        imported = cli("metadata", "import", ours, "--zookeeper", chroot)
        assert imported.returncode == 0, imported.stderr
        again = cli("metadata", "import", ours, "--zookeeper", chroot)
        assert again.returncode == 1
        assert again.stderr.startswith("Error: the target is in use")
        assert cli("metadata", "export", theirs, "--zookeeper", chroot).returncode == 0
    assert json.loads(theirs.read_text())["nodes"] == json.loads(ours.read_text())["nodes"]

    new = tmp_path / "new"
    new.mkdir()
    broker.data.rename(new / "data")
    assert cli("metadata", "import", theirs, "--data", new / "data").returncode == 0
    with Barnabas(new) as moved:
        assert cli("topics", "--bootstrap-server", moved.bootstrap, "--describe").stdout == shown
        assert moved.stop() == 0


def test_a_dead_zookeeper_is_told_in_one_line(cli: Cli, tmp_path: Path) -> None:
    dead = cli("metadata", "export", tmp_path / "tree.json", "--zookeeper", "127.0.0.1:1")
    assert dead.returncode == 1
    assert dead.stderr.startswith("Error: no ZooKeeper answers at 127.0.0.1:1")
    assert dead.stderr.count("\n") == 1
