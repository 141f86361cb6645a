from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.groups import import_zookeeper
from barnabas.cli.groups.import_zookeeper import Found, parse_nodes
from barnabas.metadata.stores.store import StoredNode
from barnabas.model.ids import TopicPartition
from tests.unit.cli.groups.conftest import member

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run
    from tests.unit.cli.groups.conftest import FakeGroups

IMPORT = ("groups", "import-zookeeper", "--zookeeper", "zk:2181/kafka", "--group", "g")
ROOT = "/kafka/consumers/g/offsets/"


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Found]:
    """What ZooKeeper has: the last element."""
    offsets = {TopicPartition("orders", 0): 12, TopicPartition("orders", 1): 99}
    answers = [Found(running=0, offsets=offsets)]

    async def read(*_: object) -> Found:
        return answers[-1]

    monkeypatch.setattr(import_zookeeper, "read_offsets", read)
    return answers


@pytest.fixture(autouse=True)
def logs(groups: FakeGroups) -> None:
    groups.add_log("orders", 0, 10, 30)
    groups.add_log("orders", 1, 10, 30)


@pytest.mark.usefixtures("found")
def test_commits_and_says_so(run: Run, groups: FakeGroups) -> None:
    result = run(*IMPORT)
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        [],
        ["GROUP", "TOPIC", "PARTITION", "ZOOKEEPER-OFFSET", "NEW-OFFSET"],
        ["g", "orders", "0", "12", "12"],
        ["g", "orders", "1", "99", "30"],
    ]
    assert result.stderr == (
        "Warning: orders-1 has offsets 10 to 30; 99 becomes 30.\nImported 2 offsets into group g.\n"
    )
    assert [committed.offset for committed in groups.offsets_of["g"].values()] == [12, 30]


@pytest.mark.usefixtures("found")
def test_a_dry_run_commits_nothing(run: Run, groups: FakeGroups) -> None:
    result = run(*IMPORT, "--dry-run")
    assert result.stderr.endswith("Would import 2 offsets; nothing was committed.\n")
    assert groups.offsets_of == {}


@pytest.mark.usefixtures("found")
def test_json(run: Run) -> None:
    assert json.loads(run(*IMPORT, "--json").stdout) == {
        "group": "g",
        "executed": True,
        "offsets": [
            {"topic": "orders", "partition": 0, "zookeeperOffset": 12, "newOffset": 12},
            {"topic": "orders", "partition": 1, "zookeeperOffset": 99, "newOffset": 30},
        ],
    }


@pytest.mark.usefixtures("found")
def test_a_group_with_members_is_refused(run: Run, groups: FakeGroups) -> None:
    groups.add("g", member("a", ("orders", 0)))
    result = run(*IMPORT)
    assert (result.exit_code, groups.offsets_of["g"]) == (1, {})
    assert "Group 'g' is Stable: offsets can only be imported while it has no active members." in result.stderr


def test_consumers_that_still_run_there_are_refused(run: Run, found: list[Found]) -> None:
    found.append(Found(running=2, offsets={}))
    result = run(*IMPORT)
    assert result.exit_code == 1
    assert "2 consumers of group g are running at zk:2181/kafka. Stop them first." in result.stderr


def test_finding_nothing_is_an_error(run: Run, found: list[Found]) -> None:
    found.append(Found(running=0, offsets={}))
    result = run(*IMPORT, "--topic", "a", "--topic", "b")
    assert result.exit_code == 1
    assert "There are no offsets below /consumers/g/offsets at zk:2181/kafka of a, b." in result.stderr


def test_a_partition_that_did_not_come_over_is_named(run: Run, found: list[Found], groups: FakeGroups) -> None:
    found.append(Found(running=0, offsets={TopicPartition("orders", 0): 12, TopicPartition("other", 0): 1}))
    result = run(*IMPORT)
    assert (result.exit_code, groups.offsets_of) == (1, {})
    assert "There is no partition other-0" in result.stderr


def node(path: str, data: bytes = b"") -> StoredNode:
    return StoredNode(path, data, 0, 0, 0, 0)


def test_nodes_of_a_group() -> None:
    nodes = [
        node(ROOT + "orders"),
        node(ROOT + "orders/0", b"12"),
        node(ROOT + "orders/10", b"0\n"),
        node(ROOT + "payments"),
        node(ROOT + "payments/0", b"7"),
    ]
    assert parse_nodes(nodes, ROOT, ()) == {("orders", 0): 12, ("orders", 10): 0, ("payments", 0): 7}
    assert parse_nodes(nodes, ROOT, ("payments",)) == {("payments", 0): 7}


@pytest.mark.parametrize(
    ("path", "data", "complaint"),
    [
        ("orders/0", b"soon", "orders/0 does not hold an offset of a partition: 'soon'"),
        ("orders/0", b"-1", "does not hold an offset"),
        ("orders/zero", b"1", "does not hold an offset"),
        ("orders/0-3", b"1234", "is of Kafka 0.7, whose offsets are positions in files"),
    ],
)
def test_nodes_that_hold_something_else_are_named(path: str, data: bytes, complaint: str) -> None:
    with pytest.raises(Failed, match=complaint):
        parse_nodes([node(ROOT + path, data)], ROOT, ())
