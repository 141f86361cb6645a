"""Who may tell a broker what, and what makes it delete: strangers, brokers that lie, and the tree that decides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kio.static.primitive import i8, i32, i64

from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.topic_znodes import DeletedTopicsNode
from barnabas.metadata.znodes import BrokerNode, ControllerEpochNode
from barnabas.model.errors import ErrorCode
from barnabas.protocol.messages import inter_broker
from tests.support.broker_handshake import introduce, tell
from tests.support.clusters import PATIENT, Cluster
from tests.support.senders import Sender, everything
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from pathlib import Path

HIGHEST = i64(0x7FFFFFFFFFFFFFFF)


def in_tree(cluster: Cluster, broker_id: int) -> tuple[int, int]:
    """The controller's epoch, and that of a broker."""

    async def read() -> tuple[int, int]:
        store = SqliteStore(cluster.folder / "metadata")
        await store.start()
        try:
            epoch, broker = await store.get(ControllerEpochNode.path), await store.get(BrokerNode.path(broker_id))
            return ControllerEpochNode.decode(epoch.data), broker.czxid
        finally:
            await store.close()

    return asyncio.run(read())


def forget_deletions(cluster: Cluster) -> None:
    """As if more topics had been deleted since than the tree remembers."""

    async def forget() -> None:
        store = SqliteStore(cluster.folder / "metadata")
        await store.start()
        try:
            for name in await store.children(DeletedTopicsNode.path):
                await store.delete(f"{DeletedTopicsNode.path}/{name}")
        finally:
            await store.close()

    asyncio.run(forget())


def nothing(**fields: Any) -> inter_broker.UpdateMetadataRequest:
    """A controller's message that there are no topics."""
    return inter_broker.UpdateMetadataRequest(type=i8(inter_broker.FULL), topic_states=(), live_brokers=(), **fields)


def stop(topic: str, **fields: Any) -> inter_broker.StopReplicaRequest:
    """A controller's message that a replica is to be removed."""
    partition = inter_broker.StopReplicaPartitionState(
        partition_index=i32(0), leader_epoch=i32(1000), delete_partition=True
    )
    state = inter_broker.StopReplicaTopicState(topic_name=topic, partition_states=(partition,))
    return inter_broker.StopReplicaRequest(topic_states=(state,), **fields)


def fill(cluster: Cluster, topic: str, replicas: int) -> None:
    cluster.create(topic, 1, replicas)
    sender = Sender(cluster, topic)
    sender.send(20)
    sender.finish()


def endings(data: Path, topic: str) -> list[str]:
    """How the names of a topic's directories end."""
    return sorted(path.name.rpartition("-")[2] for path in data.glob(f"{topic}-*") if path.is_dir())


@pytest.mark.parametrize("message", [nothing, lambda **fields: stop("money", **fields)], ids=["update", "stop"])
def test_a_stranger_tells_a_broker_nothing(tmp_path: Path, message: Any) -> None:
    with Cluster(tmp_path, 1, {"offsets.topic.num.partitions": "1"}) as cluster:
        fill(cluster, "money", 1)
        told = message(controller_id=i32(1), controller_epoch=i32(0x7FFFFFFF), broker_epoch=HIGHEST)
        with Connection(cluster.address(1)) as wire:
            assert tell(wire, told) is None  # hung up on
        assert endings(cluster.nodes[1].data, "money") == ["0"]
        assert everything(cluster, "money", 20) == list(range(20))


def test_even_a_broker_that_lies_deletes_nothing(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        fill(cluster, "money", 2)
        controller = cluster.controller()
        other = next(each for each in cluster.nodes if each != controller)
        data = cluster.nodes[other].data
        epoch, broker_epoch = in_tree(cluster, other)
        right = {
            "controller_id": i32(controller),
            "controller_epoch": i32(epoch),
            "broker_epoch": i64(broker_epoch),
            "number": i64(1 << 40),
        }
        for wrong, error in (
            ({"controller_epoch": i32(epoch + 1)}, ErrorCode.unknown_controller_id),
            ({"controller_epoch": i32(epoch - 1)}, ErrorCode.stale_controller_epoch),
            ({"controller_id": i32(other)}, ErrorCode.cluster_authorization_failed),
            ({"broker_epoch": HIGHEST}, ErrorCode.broker_id_not_registered),
            ({"broker_epoch": i64(broker_epoch - 1)}, ErrorCode.stale_broker_epoch),
        ):
            with Connection(cluster.address(other)) as wire:
                introduce(wire, cluster.folder / "metadata", controller, other)
                assert tell(wire, nothing(**{**right, **wrong})).error_code is error
        assert endings(data, "money") == ["0"]
        with Connection(cluster.address(other)) as wire:
            introduce(wire, cluster.folder / "metadata", controller, other)
            assert tell(wire, stop("money", **right)).error_code is ErrorCode.none
            assert tell(wire, nothing(**right)).error_code is ErrorCode.none
        assert endings(data, "money") == ["stray"]
        cluster.nodes[other].kill()
        cluster.start(other)
        cluster.wait_for_isr("money", {1, 2})
        assert endings(data, "money") == ["0"]
        assert "was set aside and is used again" in cluster.nodes[other].output()
        assert everything(cluster, "money", 20) == list(range(20))


def test_a_deletion_that_the_tree_has_forgotten_is_kept_aside(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        fill(cluster, "gone", 2)
        away = next(each for each in cluster.nodes if each != cluster.controller())
        cluster.nodes[away].kill()
        wait_until(lambda: len(cluster.metadata().brokers) == 1, "the broker to be gone")
        for done in cluster.admin.delete_topics(["gone"], **PATIENT).values():
            done.result(60)
        forget_deletions(cluster)
        data = cluster.start(away).data
        wait_until(lambda: endings(data, "gone") == ["stray"], "the log to be set aside")
        (stray,) = data.glob("gone-*-stray")
        assert (stray / "00000000000000000000.log").stat().st_size > 0
        cluster.nodes[away].kill()
        cluster.start(away)
        assert endings(data, "gone") == ["stray"]
