"""`__consumer_offsets` in Kafka's own records: its tools read it, and either broker goes on where the other stopped.

The directory has seen groups of both protocols, static members, metadata, deleted offsets and deleted groups.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from barnabas.storage.dump import DumpOptions, dump
from tests.compat.conftest import has_leaders
from tests.compat.format.test_exchange import metadata
from tests.support import java
from tests.support.brokers import Barnabas, KafkaZooKeeper
from tests.support.group_scenarios import Crew, create, send
from tests.support.group_wire import DELETE_GROUPS, SHARE_GROUP_HEARTBEAT
from tests.support.groups import QUICK
from tests.support.members.confluent_kafka import ConfluentConsumerProtocolMember, ConfluentMember
from tests.support.members.member import Committed, Place, places_of
from tests.support.members.waiting import wait_until_read, wait_until_shared
from tests.support.processes import free_port
from tests.support.waiting import wait_until
from tests.support.wire import Connection
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC: Final = "grouped"
PARTITIONS: Final = 3
COMPLAINTS = re.compile(r"mismatch|corrupt|invalid|exception|error|unknown|could not", re.IGNORECASE)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


def use_groups(bootstrap: str, *, new: bool) -> None:
    """Leave behind groups of the classic protocol, and of the new one too."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if TOPIC not in admin.list_topics(timeout=30).topics:
        create(admin, TOPIC, PARTITIONS)
    wait_until(lambda: has_leaders(admin, TOPIC, PARTITIONS), "leaders")
    sent = send(bootstrap, TOPIC, PARTITIONS, 30)
    for group, kind in (("classic", ConfluentMember), ("new", ConfluentConsumerProtocolMember)):
        if group == "new" and not new:
            continue
        crew = Crew(kind, bootstrap)
        crew.group = group
        members = [crew.join(TOPIC), crew.join(TOPIC, instance="desk-1")]
        wait_until_shared(members, places_of(TOPIC, PARTITIONS))
        wait_until_read(members, sent)
        for member in members:
            member.commit()
        crew.go_home()
    loners = Crew(ConfluentMember, bootstrap)
    for group in ("loner", "forgotten"):
        loners.group = group
        loner = loners.join(assigned=(Place(TOPIC, 0),))
        loner.commit({Place(TOPIC, 0): Committed(3, "drei, ✓", 0)})
        loner.commit({Place(TOPIC, 0): Committed(7, "sieben", 0)})
    loners.go_home()
    admin.delete_consumer_groups(["forgotten"])["forgotten"].result(30)


def use_share_group(bootstrap: str) -> None:
    """Leave behind a share group whose member has had all partitions, and tombstones of another."""
    connection = Connection(bootstrap)
    for group in ("shared", "shared-no-more"):
        answer = None

        def has_all(group: str = group) -> bool:
            nonlocal answer
            body = {"group_id": group, "member_id": "m", "member_epoch": answer.member_epoch if answer else 0}
            answer = connection.ask(SHARE_GROUP_HEARTBEAT, 1, {**body, "subscribed_topic_names": [TOPIC]})
            assert answer.error_code == 0, answer
            return [len(each.partitions) for each in answer.assignment.topic_partitions] == [PARTITIONS]

        wait_until(has_all, f"the partitions of {group}")
    leaving = {"group_id": group, "member_id": "m", "member_epoch": -1}
    assert connection.ask(SHARE_GROUP_HEARTBEAT, 1, leaving).error_code == 0
    assert connection.ask(DELETE_GROUPS, 2, {"groups_names": [group]}).results[0].error_code == 0
    connection.socket.close()


def committed(bootstrap: str) -> dict[str, Any]:
    """All offsets of all groups, as an admin client sees them.

    Kafka 3.9 leaves no word in the log that a group without members is gone, so a group that has nothing is left out.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until(lambda: has_leaders(admin, TOPIC, PARTITIONS), "leaders")
    listed = {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    found = {}
    for group in listed:
        offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        found[group] = {
            (place.topic, place.partition): Committed(place.offset, place.metadata or "", place.leader_epoch)
            for place in offsets.topic_partitions or []
        }
    return {group: offsets for group, offsets in found.items() if offsets}


def expect(bootstrap: str, wanted: dict[str, Any]) -> None:
    """Wait until a broker that has just started tells these offsets: it tells none while it loads them."""
    found: dict[str, Any] = {}

    def the_same() -> bool:
        nonlocal found
        found = committed(bootstrap)
        return found == wanted

    try:
        wait_until(the_same, "the offsets", 60, every=0.3)
    except AssertionError:
        assert found == wanted


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What groups of both protocols left behind, over a kill -9 and a clean stop."""
    folder = tmp_path_factory.mktemp("groups")
    for ending in ("kill", "stop"):
        with Barnabas(folder, QUICK) as broker:
            use_groups(broker.bootstrap, new=True)
            use_share_group(broker.bootstrap)
            if ending == "kill":
                broker.kill()
            else:
                assert broker.stop() == 0
    return broker.data


@pytest.mark.parametrize("version", ["4.3.0", "3.9.1"])
def test_the_offsets_decoder_reads_every_record(directory: Path, version: str) -> None:
    logs = sorted(directory.glob("__consumer_offsets-*/*.log"))
    printed = java.tool(version, "dump-log", "--offsets-decoder", "--files", ",".join(map(str, logs)), seconds=120)
    batches = re.findall(r"isvalid: (\w+)", printed)
    assert batches
    assert set(batches) == {"true"}
    records = [line for line in printed.splitlines() if line.startswith("| offset: ")]
    ours = "".join(records).replace(": ", ":").replace(r"\u0000", "")  # librdkafka sends its strings' ends along
    for group in ("classic", "loner", "forgotten"):
        assert f'"group":"{group}","topic":"{TOPIC}"' in ours
    if version == "4.3.0":
        assert not COMPLAINTS.search(printed.replace(str(directory), "")), printed[-3_000:]
        options = DumpOptions(offsets_decoder=True)
        assert [line for log in logs for line in dump(log, options)] == printed.splitlines()
        for kind in ("groupId", "memberId", "memberEpoch", "assignmentEpoch", "subscribedTopicNames"):
            assert f'"{kind}":' in ours, f"no record of the new protocol has {kind}"
        for number in range(10, 16):
            assert f'"type":"{number}","data":{{"groupId":"shared"' in ours, f"no record of type {number}"
    offsets = re.findall(r'"offset":(\d+),"leaderEpoch":(-?\d+),"metadata":"([^"]*)"', ours)
    assert ("7", "0", "sieben") in offsets
    assert ("3", "0", "drei, ✓") in offsets


def test_kafka_goes_on_with_our_groups_and_gives_them_back(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    port = free_port()
    chroot = f"{zookeeper.connect}/{uuid.uuid4().hex}"
    tree = tmp_path / "tree.json"
    quick = {key: value for key, value in QUICK.items() if not key.startswith("group.consumer")}
    with Barnabas(tmp_path, QUICK, port) as ours:
        use_groups(ours.bootstrap, new=False)
        written = committed(ours.bootstrap)
        assert ours.stop() == 0
    assert set(written) == {"classic", "loner"}
    assert len(written["classic"]) == PARTITIONS
    metadata("export", tree, "--data", str(ours.data))
    metadata("import", tree, "--zookeeper", chroot)
    with KafkaZooKeeper(tmp_path, chroot, ours.data, {"broker.id": "1", **quick}, port) as kafka:
        expect(kafka.bootstrap, written)
        use_groups(kafka.bootstrap, new=False)
        grown = committed(kafka.bootstrap)
        assert grown != written
        kafka.stop()
    metadata("export", tree, "--zookeeper", chroot)
    store = tmp_path / "came-back"
    metadata("import", tree, "--store", str(store))
    with Barnabas(tmp_path, {**QUICK, "metadata.store": str(store)}, port) as ours:
        expect(ours.bootstrap, grown)
        use_groups(ours.bootstrap, new=True)
        assert ours.stop() == 0
