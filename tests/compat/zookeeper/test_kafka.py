"""Apache Kafka 3.9.1 in ZooKeeper mode takes over a tree that we wrote, and we take over one that it wrote."""

from __future__ import annotations

import asyncio
import functools
import json
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient

from barnabas.broker.controller.membership import ClusterMembership
from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.machines.controller.image import ClusterImage, ConfigResource, Endpoint
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.machines.security.acls import (
    EVERY_ACL,
    Acl,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.metadata import acls
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.zookeeper import ZooKeeperStore
from barnabas.metadata.transfer import export_tree, import_tree
from barnabas.metadata.znodes import Registration
from barnabas.model.clock import ManualClock
from barnabas.model.ids import uuid_to_text
from tests.compat.conftest import has_leaders
from tests.support import java
from tests.support.brokers import KafkaZooKeeper
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from barnabas.metadata.stores.store import MetadataStore

REGISTRATION = Registration(
    broker_id=0,
    endpoints={"PLAINTEXT": Endpoint("127.0.0.1", 9092)},
    features={"group.version": (0, 1), "transaction.version": (0, 2)},
)


async def our_cluster(path: Path, work: Callable[[ClusterMembership], Awaitable[object]]) -> ClusterImage:
    """Let a controller of ours work on the tree at `path`; returns what it leaves."""
    member = ClusterMembership(lambda: SqliteStore(path), MetadataCache(), ManualClock())
    await member.start(REGISTRATION)
    await work(member)
    image = member.cache.image
    await member.stop()
    return image


async def carry(source: MetadataStore, target: MetadataStore) -> dict[str, Any]:
    """Copy a tree through the text of a file."""
    await source.start()
    text = json.dumps(await export_tree(source))
    await source.close()
    await target.start()
    tree: dict[str, Any] = json.loads(text)
    assert await import_tree(target, tree) == len(tree["nodes"])
    await target.close()
    return tree


async def topics_in(chroot: str) -> Sequence[str]:
    """The topics that a tree has."""
    store = ZooKeeperStore(chroot)
    await store.start()
    try:
        return await store.children("/brokers/topics")
    finally:
        await store.close()


async def make_topics(member: ClusterMembership) -> None:
    await member.controller.create_topics(
        [TopicToCreate("orders", 3, 1, configs={"retention.ms": "86400000"}), TopicToCreate("pay.ments", 1, 1)]
    )
    await member.controller.alter_configs({ConfigResource.broker(0): {"log.cleaner.threads": "2"}})
    await member.allocate_producer_ids()
    await acls.lay_out(member.store)
    await acls.add(member.store, OURS)


OURS = [
    Acl(ResourcePattern(AclResourceType.TOPIC, "orders"), Entry("User:a", "*", Operation.READ, Permission.ALLOW)),
    Acl(
        ResourcePattern(AclResourceType.TRANSACTIONAL_ID, "team-", PatternType.PREFIXED),
        Entry("User:b", "10.0.0.1", Operation.ALL, Permission.DENY),
    ),
    Acl(
        ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster"),
        Entry("User:CN=c,O=d", "*", Operation.IDEMPOTENT_WRITE, Permission.ALLOW),
    ),
]
THEIRS = Acl(
    ResourcePattern(AclResourceType.GROUP, "g", PatternType.PREFIXED),
    Entry("User:d", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW),
)
AUTHORIZER = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}


def exchange_acls(bootstrap: str) -> None:
    """Kafka knows our ACLs, and gets one of its own."""
    with ClusterAdmin(bootstrap) as cluster:
        assert cluster.acls.matching(EVERY_ACL) == sorted(OURS)
        cluster.acls.create([THEIRS])


def test_kafka_serves_our_tree_and_we_serve_what_it_makes_of_it(tmp_path: Path, chroot: str) -> None:
    ours = asyncio.run(our_cluster(tmp_path / "metadata.db", make_topics))
    asyncio.run(carry(SqliteStore(tmp_path / "metadata.db"), ZooKeeperStore(chroot)))

    with KafkaZooKeeper(tmp_path, chroot, tmp_path / "data", {"broker.id": "0", **AUTHORIZER}) as kafka:
        exchange_acls(kafka.bootstrap)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for topic in ours.topics.values():
            served = functools.partial(has_leaders, admin, topic.name, len(topic.partitions))
            wait_until(served, f"leaders of {topic.name}")
        described = java.tool("3.9.1", "topics", "--bootstrap-server", kafka.bootstrap, "--describe")
        for topic in ours.topics.values():
            assert (
                f"Topic: {topic.name}\tTopicId: {uuid_to_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
                in described
            ), described
        assert described.count("Leader: 0\tReplicas: 0\tIsr: 0") == 4
        assert "Configs: retention.ms=86400000" in described
        properties = (tmp_path / "data" / "meta.properties").read_text()
        assert f"cluster.id={ours.cluster_id}" in properties
        create = ["--create", "--topic", "made-by-kafka", "--partitions", "2", "--config", "cleanup.policy=compact"]
        java.tool("3.9.1", "topics", "--bootstrap-server", kafka.bootstrap, *create)
        java.tool("3.9.1", "topics", "--bootstrap-server", kafka.bootstrap, "--delete", "--topic", "pay.ments")
        described = java.tool("3.9.1", "topics", "--bootstrap-server", kafka.bootstrap, "--describe")
        wait_until(
            lambda: "pay.ments" not in asyncio.run(topics_in(chroot)), "the end of a topic in the tree", every=0.2
        )
        assert kafka.stop() == 143, kafka.tail()

    asyncio.run(carry(ZooKeeperStore(chroot), SqliteStore(tmp_path / "back.db")))

    async def look(member: ClusterMembership) -> None:
        known = await acls.load_all(member.store)
        assert known == {
            pattern: frozenset(acl.entry for acl in (*OURS, THEIRS) if acl.pattern == pattern)
            for pattern in {acl.pattern for acl in (*OURS, THEIRS)}
        }
        image = member.cache.image
        assert image.cluster_id == ours.cluster_id
        assert image.controller_epoch > ours.controller_epoch
        assert image.topics.keys() == {"orders", "made-by-kafka"}
        assert image.topics["orders"].topic_id == ours.topics["orders"].topic_id
        assert image.topic_config("orders") == {"retention.ms": "86400000"}
        assert image.topic_config("made-by-kafka") == {"cleanup.policy": "compact"}
        assert image.config(ConfigResource.broker(0)) == {"log.cleaner.threads": "2"}
        for topic in image.topics.values():
            assert uuid_to_text(topic.topic_id) in described
            assert all(partition.leader == 0 and partition.isr == (0,) for partition in topic.partitions)
        assert (await member.allocate_producer_ids()).first >= 1000

    asyncio.run(our_cluster(tmp_path / "back.db", look))
