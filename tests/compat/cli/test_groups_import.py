"""`barnabas groups import-zookeeper`: from the nodes of a real ZooKeeper into a group of a live broker."""

from __future__ import annotations

import asyncio
import json
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.stores.zookeeper import ZooKeeperStore
from tests.support.group_scenarios import Crew, send
from tests.support.members.confluent_kafka import ConfluentMember
from tests.support.members.member import Committed, Place, places_of
from tests.support.members.waiting import wait_until_shared
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


class OldCluster:
    """A ZooKeeper as Kafka 0.8 left it, below a path of its own."""

    def __init__(self, server: str) -> None:
        self.connect = f"{server}/{uuid.uuid4().hex}"

    def consumers(self, nodes: Mapping[str, str]) -> None:
        """Make nodes below /consumers."""

        async def make() -> None:
            store = ZooKeeperStore(self.connect)
            await store.start()
            try:
                for path, data in nodes.items():
                    await store.create(f"/consumers/{path}", data.encode(), parents=True)
            finally:
                await store.close()

        asyncio.run(make())

    def paths(self) -> list[str]:
        """All nodes there are, without the path of this cluster's own."""

        async def read() -> list[str]:
            store = ZooKeeperStore(self.connect)
            await store.start()
            try:
                return [node.path for node in await store.subtree("/")]
            finally:
                await store.close()

        return asyncio.run(read())


@pytest.fixture
def old(zookeeper: ZooKeeper) -> OldCluster:
    return OldCluster(zookeeper.connect)


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def groups(cli: Cli, bootstrap: str) -> Callable[..., CompletedProcess[str]]:
    return partial(cli, "groups", "--bootstrap-server", bootstrap)


@pytest.fixture
def bring_over(cli: Cli, bootstrap: str, old: OldCluster, group: str) -> Callable[..., CompletedProcess[str]]:
    words = ("--zookeeper", old.connect, "--group", group, "--bootstrap-server", bootstrap)
    return partial(cli, "groups", "import-zookeeper", *words)


def test_offsets_come_over(
    groups: Callable[..., CompletedProcess[str]],
    bring_over: Callable[..., CompletedProcess[str]],
    old: OldCluster,
    bootstrap: str,
    new_topic: TopicMaker,
    group: str,
) -> None:
    topic, other = new_topic(2), new_topic()
    send(bootstrap, topic, 2, 20)
    old.consumers(
        {
            f"{group}/offsets/{topic}/0": "4",
            f"{group}/offsets/{topic}/1": "99",
            f"{group}/offsets/{other}/0": "0",
            f"{group}/owners/{topic}": "",
            f"{group}/ids": "",
            f"another/offsets/{topic}/0": "1",
        }
    )
    before = old.paths()
    looked = bring_over("--dry-run")
    assert (looked.returncode, looked.stderr.splitlines()[-1]) == (0, "Would import 3 offsets; nothing was committed.")
    assert groups("--describe", "--group", group).returncode == 1

    done = bring_over("--topic", topic)
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()[1:]] == [
        ["GROUP", "TOPIC", "PARTITION", "ZOOKEEPER-OFFSET", "NEW-OFFSET"],
        [group, topic, "0", "4", "4"],
        [group, topic, "1", "99", "10"],
    ]
    assert done.stderr == (
        f"Warning: {topic}-1 has offsets 0 to 10; 99 becomes 10.\nImported 2 offsets into group {group}.\n"
    )
    (described,) = json.loads(groups("--describe", "--group", group, "--json").stdout)
    found = [(row["topic"], row["partition"], row["currentOffset"], row["lag"]) for row in described["partitions"]]
    assert found == [(topic, 0, 4, 6), (topic, 1, 10, 0)]
    assert old.paths() == before


def test_a_group_with_members_is_refused(
    bring_over: Callable[..., CompletedProcess[str]],
    old: OldCluster,
    bootstrap: str,
    new_topic: TopicMaker,
    group: str,
) -> None:
    topic = new_topic()
    send(bootstrap, topic, 1, 10)
    old.consumers({f"{group}/offsets/{topic}/0": "4"})
    crew = Crew(ConfluentMember, bootstrap)
    crew.group = group
    try:
        member = crew.join(topic)
        wait_until_shared([member], places_of(topic, 1))
        member.commit({Place(topic, 0): Committed(7)})
        refused = bring_over()
        assert refused.returncode == 1
        assert f"Group '{group}' is Stable: offsets can only be imported while it has no active" in refused.stderr
        assert (member.committed(Place(topic, 0)) or Committed(-1)).offset == 7
    finally:
        crew.go_home()


def test_consumers_that_still_run_there_are_refused(
    bring_over: Callable[..., CompletedProcess[str]], old: OldCluster, group: str
) -> None:
    old.consumers({f"{group}/ids/{group}_host-1": "{}", f"{group}/offsets/t/0": "4"})
    refused = bring_over()
    assert refused.returncode == 1
    assert f"1 consumers of group {group} are running at {old.connect}" in refused.stderr


def test_a_wrong_path_is_not_made(cli: Cli, bootstrap: str, zookeeper: ZooKeeper, old: OldCluster, group: str) -> None:
    old.consumers({f"{group}/offsets/t/0": "4"})
    words = ("--zookeeper", f"{old.connect}/typo", "--group", group, "--bootstrap-server", bootstrap)
    missing = cli("groups", "import-zookeeper", *words)
    assert missing.returncode == 1
    assert f"There are no offsets below /consumers/{group}/offsets at {old.connect}/typo" in missing.stderr
    assert not any("typo" in path for path in old.paths())


def test_without_a_zookeeper_it_says_so(cli: Cli, bootstrap: str, group: str) -> None:
    words = ("--zookeeper", "127.0.0.1:1", "--group", group, "--bootstrap-server", bootstrap)
    missing = cli("groups", "import-zookeeper", *words)
    assert missing.returncode == 1
    assert missing.stderr.startswith("Error: no ZooKeeper answers at 127.0.0.1:1 within 5 s")
    assert missing.stderr.count("\n") == 1
