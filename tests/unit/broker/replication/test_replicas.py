"""Partitions follow the image: made in a thread, led, set aside, deleted, whatever comes between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import Mock

import pytest

from barnabas.broker.replication.replicas import ReplicaManager
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.controller.requests import TopicToCreate
from barnabas.model.errors import NotLeaderOrFollower, StorageFailed, UnknownTopicId, UnknownTopicOrPartition
from barnabas.model.ids import TopicPartition
from barnabas.storage.manager import LogManager
from barnabas.storage.recovery.loading import TornLog
from tests.support.images import with_other_broker, with_partition, without
from tests.support.parts import append, make_topic, run, running_parts

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.storage.log.log import Log

NOW = 1_700_000_000_000


async def test_a_partition_is_found_by_name_and_by_id(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t", partitions=2)
        assert broker.replicas.find("t", 1) is broker.replicas.find(topic.topic_id.bytes, 1)
        with pytest.raises(UnknownTopicOrPartition):
            broker.replicas.find("t", 2)
        with pytest.raises(UnknownTopicId):
            broker.replicas.find(bytes(16), 0)

    await run(tmp_path, story)


async def test_a_partition_whose_log_is_being_created_is_retried(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await broker.controller.create_topics([TopicToCreate("t", 50, 1)])
        with pytest.raises(NotLeaderOrFollower, match="is being opened, created or truncated"):
            broker.replicas.find("t", 49)
        await broker.replicas.settled()
        assert broker.replicas.find("t", 49).log.log_end_offset == 0

    await run(tmp_path, story)


async def test_very_many_partitions_are_led_in_slices_between_which_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("replicas", "log_changes"):
        monkeypatch.setattr(f"barnabas.broker.replication.{module}.HANDED_OVER_TOGETHER", 3)

    async def story(broker: BrokerContext) -> None:
        replicas = broker.replicas

        def led() -> int:
            return len(list(replicas.all()))

        await make_topic(broker, "t", partitions=10)
        replicas.resign()
        replicas.resume()
        steps = [led()]
        with pytest.raises(NotLeaderOrFollower, match="is being opened"):
            replicas.find("t", 9)
        for _ in range(6):
            await asyncio.sleep(0)
            steps.append(led())
        assert (steps[0], steps[-1]) == (3, 10)
        assert max(after - before for before, after in pairwise(steps)) == 3

    await run(tmp_path, story)


async def test_a_broker_that_is_fenced_between_two_slices_leads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("replicas", "log_changes"):
        monkeypatch.setattr(f"barnabas.broker.replication.{module}.HANDED_OVER_TOGETHER", 3)

    async def story(broker: BrokerContext) -> None:
        replicas = broker.replicas
        await make_topic(broker, "t", partitions=10)
        replicas.resign()
        replicas.resume()
        replicas.resign()
        await replicas.settled()
        assert list(replicas.all()) == []
        replicas.resume()
        await replicas.settled()
        assert len(list(replicas.all())) == 10

    await run(tmp_path, story)


async def test_created_deleted_and_created_again_without_a_pause(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        for _ in range(5):
            made = (await broker.controller.create_topics([TopicToCreate("t", 20, 1)]))["t"]
            assert not isinstance(made, Exception)
            await broker.controller.delete_topics(["t"])
        last = (await broker.controller.create_topics([TopicToCreate("t", 20, 1)]))["t"]
        assert not isinstance(last, Exception)
        await broker.replicas.settled()
        for index in range(20):
            partition = broker.replicas.find(last.topic_id.bytes, index)
            append(partition, [NOW])
            assert partition.log.topic_id == last.topic_id
            assert broker.logs.get(TopicPartition("t", index)) is partition.log

    await run(tmp_path, story)


async def test_a_log_whose_topic_is_another_one_now_is_set_aside(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        stray = broker.replicas.find("t", 0)
        append(stray, [NOW] * 3)
        broker.replicas.partitions.remove_leader(stray)  # as if the power had gone before the deletion was on disk
        await broker.controller.delete_topics(["t"])
        await make_topic(broker, "t")
        assert broker.replicas.find("t", 0).log.log_end_offset == 0
        assert len(list(stray.log.log_dir.glob("t-0.*-stray"))) == 1

    await run(tmp_path, story)


async def test_who_waits_on_a_deleted_partition_is_told_even_if_its_disk_has_failed(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "a")
        await make_topic(broker, "b")
        partition = broker.replicas.find("a", 0)
        told: list[object] = []
        partition.when_committed(9, told.append)
        partition.log.store.fail(OSError(5, "Input/output error"), "a test")
        with pytest.raises(StorageFailed):
            append(partition, [NOW])
        await broker.controller.delete_topics(["a", "b"])
        assert [type(error) for error in told] == [UnknownTopicOrPartition]
        for name in ("a", "b"):
            with pytest.raises(UnknownTopicOrPartition):
                broker.replicas.find(name, 0)

    await run(tmp_path, story)


class CountedReplicas(ReplicaManager):
    """Count how often it is looked whether a log can be used."""

    looks = 0

    def is_unusable(self, topic: str, index: int) -> bool:
        self.looks += 1
        return super().is_unusable(topic, index)


class FullLogs(LogManager):
    """Have no room for the logs of one topic."""

    def create(self, tp: TopicPartition, *words: Any, **names: Any) -> Log:
        if tp.topic == "unmade":
            raise StorageFailed("no room")
        return super().create(tp, *words, **names)


async def test_which_logs_have_failed_is_told_without_a_look_at_all_others(tmp_path: Path) -> None:
    async with running_parts(tmp_path, make_logs=FullLogs, make_replicas=CountedReplicas) as broker:
        await make_topic(broker, "t", partitions=30)
        await make_topic(broker, "gone", partitions=2)
        for topic in ("t", "gone"):
            broker.replicas.find(topic, 1).log.refuse(TornLog("its end is missing"))
        await broker.controller.delete_topics(["gone"])
        await broker.replicas.settled()
        replicas = cast("CountedReplicas", broker.replicas)
        before = replicas.looks
        assert replicas.unusable() == {("t", 1)}
        assert replicas.looks == before + 1
        await broker.controller.create_topics([TopicToCreate("unmade", 1, 1)])
        await broker.replicas.settled()
        assert broker.replicas.unusable() == {("t", 1), ("unmade", 0)}
        broker.replicas.find("t", 0).log.store.fail(OSError(5, "Input/output error"), "a test")
        assert broker.replicas.unusable() == {*(("t", index) for index in range(30)), ("unmade", 0)}


async def test_a_leadership_that_is_over_says_nothing_more_of_its_log(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t")
        image = broker.metadata.image
        followed = replace(topic.partitions[0], replicas=(1, 2), isr=(1, 2), leader_epoch=1, partition_epoch=1)
        broker.metadata.replace(with_partition(image, topic, followed))
        old = broker.replicas.find("t", 0)
        append(old, [NOW] * 3)
        assert old.log.high_watermark == 0
        elsewhere = replace(followed, leader=2, leader_epoch=2, partition_epoch=3)
        broker.metadata.replace(with_partition(image, topic, elsewhere))
        old.log.truncate_to(1)
        old.commit_isr((1,), 2)  # the answer to a proposal comes after the end of the leadership
        assert old.log.high_watermark == 0

    await run(tmp_path, story)


async def test_what_a_coordinator_waits_for_ends_with_its_leadership(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        told: list[object] = []
        broker.replicas.watch("t", lambda partition: told.append("led"), lambda partition: told.append("lost"))
        topic = await make_topic(broker, "t")
        broker.replicas.find("t", 0).when_committed(1, lambda error: told.append(type(error)))
        broker.replicas.take_all([replace(topic, partitions=(replace(topic.partitions[0], leader_epoch=1),))])
        assert told == ["led", "lost", NotLeaderOrFollower, "led"]

    await run(tmp_path, story)


async def test_settings_that_change_while_a_log_is_made_reach_it(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await broker.controller.create_topics([TopicToCreate("t", 1, 1)])
        await broker.controller.alter_configs({ConfigResource.topic("t"): {"retention.ms": "77"}})
        await broker.replicas.settled()
        assert broker.replicas.find("t", 0).log.config.retention_ms == 77

    await run(tmp_path, story)


async def test_new_settings_reach_the_logs_of_their_topic_that_are_led_and_those_that_are_followed(
    tmp_path: Path,
) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t", partitions=2)
        await make_topic(broker, "other")
        image = broker.metadata.image
        followed = replace(topic.partitions[1], replicas=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)
        broker.metadata.replace(image.with_topics({"t": replace(topic, partitions=(topic.partitions[0], followed))}))
        logs = {log.tp: log for log in broker.replicas.partitions.logs()}
        assert broker.replicas.get("t", 1) is None
        settings = {ConfigResource.topic(name): {"retention.ms": "77"} for name in ("t", "gone")}
        broker.metadata.replace(broker.metadata.image.with_configs(settings))
        assert {f"{tp}": log.config.retention_ms == 77 for tp, log in logs.items()} == {
            "t-0": True,
            "t-1": True,
            "other-0": False,
        }

    await run(tmp_path, story)


async def test_a_broker_that_is_not_told_yet_says_that_it_does_not_lead(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        broker.replicas.resign()
        with pytest.raises(NotLeaderOrFollower, match="waits for the controller to confirm that it leads"):
            broker.replicas.find("t", 0)
        broker.replicas.resume()
        assert broker.replicas.find("t", 0).log.log_end_offset == 0

    await run(tmp_path, story)


async def test_those_who_wait_are_answered_though_a_listener_fails(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        partition, answered = broker.replicas.find("t", 0), list[object]()
        partition.when_committed(1, answered.append)
        broker.replicas.watch("t", Mock(), Mock(side_effect=[OSError("no space left"), None]))
        with pytest.raises(OSError, match="no space left"):
            broker.replicas.resign()
        assert [type(error) for error in answered] == [NotLeaderOrFollower]

    await run(tmp_path, story)


async def test_a_partition_is_unfollowed_again_after_a_failure(tmp_path: Path) -> None:
    """A fetcher that went on would append to a log that has another leader, or is led here."""

    async def story(broker: BrokerContext) -> None:
        topic = await make_topic(broker, "t")
        fetchers = Mock(unfollow=Mock(side_effect=[OSError("no descriptors left"), None]))
        broker.replicas.attach(fetchers, Mock())
        image = with_partition(broker.metadata.image, topic, replace(topic.partitions[0], leader=2, leader_epoch=5))
        broker.metadata.replace(image)
        [follower] = broker.replicas.followers()
        with pytest.raises(OSError, match="no descriptors left"):
            broker.replicas.resign()
        broker.replicas.resign()
        assert [call.args for call in fetchers.unfollow.mock_calls] == [(follower,)] * 2
        assert list(broker.replicas.followers()) == []

    await run(tmp_path, story)


class TestStrays:
    """Logs of topics that went while the broker was away."""

    @staticmethod
    async def come_back(broker: BrokerContext, image: ClusterImage) -> None:
        broker.replicas.resign()
        broker.metadata.replace(image)
        broker.replicas.resume()
        await broker.replicas.settled()

    async def test_a_deleted_topic_is_set_aside_and_not_adopted_by_one_of_its_name(self, tmp_path: Path) -> None:
        async def story(broker: BrokerContext) -> None:
            await make_topic(broker, "gone")
            await make_topic(broker, "stays")
            for name in ("gone", "stays"):
                append(broker.replicas.find(name, 0), [NOW] * 3)
            stray = broker.replicas.find("gone", 0).log
            await self.come_back(broker, with_other_broker(without(broker.metadata.image, "gone")))
            assert broker.logs.get(TopicPartition("gone", 0)) is None
            assert len(list(stray.log_dir.glob("gone-0.*-stray"))) == 1
            assert broker.replicas.find("stays", 0).log.log_end_offset == 3

        await run(tmp_path, story)

    async def test_what_moved_to_others_is_set_aside(self, tmp_path: Path) -> None:
        async def story(broker: BrokerContext) -> None:
            topic = await make_topic(broker, "moved", 2)
            stray = broker.replicas.find("moved", 1).log
            partitions = topic.partitions[0], replace(topic.partitions[1], leader=2, replicas=(2,), isr=(2,))
            image = broker.metadata.image
            await self.come_back(
                broker, replace(image, topics={**image.topics, "moved": replace(topic, partitions=partitions)})
            )
            assert broker.logs.get(TopicPartition("moved", 1)) is None
            assert len(list(stray.log_dir.glob("moved-1.*-stray"))) == 1
            assert broker.replicas.find("moved", 0)

        await run(tmp_path, story)

    async def test_a_broker_that_is_alone_leaves_logs_of_unknown_topics_where_they_are(self, tmp_path: Path) -> None:
        async def story(broker: BrokerContext) -> None:
            await make_topic(broker, "t")
            await self.come_back(broker, without(broker.metadata.image, "t"))
            assert broker.logs.get(TopicPartition("t", 0)) is not None

        await run(tmp_path, story)
