"""The controller over a real ZooKeeper: what one broker decides another takes over."""

from __future__ import annotations

from barnabas.broker.controller.membership import ClusterMembership
from barnabas.machines.controller.image import Endpoint, TopicImage
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.metadata.images.cache import MetadataCache
from barnabas.metadata.stores.zookeeper import ZooKeeperStore
from barnabas.metadata.znodes import Registration
from barnabas.model.clock import ManualClock
from tests.support.waiting import until


async def started(connect: str, broker_id: int) -> ClusterMembership:
    member = ClusterMembership(lambda: ZooKeeperStore(connect), MetadataCache(), ManualClock())
    await member.start(Registration(broker_id=broker_id, endpoints={"PLAINTEXT": Endpoint("h", 9092)}))
    return member


async def test_a_successor_takes_over_everything(chroot: str) -> None:
    first = await started(chroot, 1)
    assert first.controller.is_active
    second = await started(chroot, 2)
    assert not second.controller.is_active
    await until(lambda: first.cache.image.brokers.keys() == {1, 2})

    answers = await first.controller.create_topics(
        [TopicToCreate("big", 600, 2), TopicToCreate("small"), TopicToCreate("gone", 20, 1)]
    )
    assert all(isinstance(answer, TopicImage) for answer in answers.values())
    await first.controller.delete_topics(["gone"])
    assert (await first.allocate_producer_ids()).first == 0
    assert (await second.allocate_producer_ids()).first == 1000

    before = first.cache.image
    await first.stop()
    await until(lambda: second.controller.is_active and second.cache.image.controller_id == 2)
    image = second.cache.image
    assert image.cluster_id == before.cluster_id
    assert image.controller_epoch == 2
    assert image.topics.keys() == {"big", "small"}
    assert image.topics["big"].topic_id == before.topics["big"].topic_id
    assert {partition.leader for partition in image.topics["big"].partitions} == {2}
    led_by_first = [partition for partition in before.topics["big"].partitions if partition.leader == 1]
    assert len(led_by_first) == 300
    await second.stop()
