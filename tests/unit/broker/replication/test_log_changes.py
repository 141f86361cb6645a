"""Logs are made, cut, set aside and deleted in threads, while the image goes on changing."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from barnabas.machines.controller.requests import TopicToCreate
from barnabas.model.errors import NotLeaderOrFollower, StorageFailed, UnknownTopicOrPartition
from barnabas.model.ids import TopicPartition
from barnabas.storage.files import FileSystem
from barnabas.storage.log.log import Log
from tests.support.images import with_partition
from tests.support.parts import append, make_topic, run, running_parts
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.controller.image import PartitionImage, TopicImage

NOW = 1_700_000_000_000


class Disk(FileSystem):
    """Holds up whoever cuts, renames or makes something, from `hold` on, until it is told to go on."""

    def __init__(self) -> None:
        self.busy = threading.Event()
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def go_on(self) -> None:
        self._free.set()

    def _wait(self) -> None:
        if not self._free.is_set():
            self.busy.set()
            assert self._free.wait(timeout=30)

    def truncate_file(self, path: str, size: int) -> None:
        self._wait()
        super().truncate_file(path, size)

    def rename(self, old: str, new: str) -> None:
        self._wait()
        super().rename(old, new)

    def make_dir(self, path: str) -> None:
        self._wait()
        super().make_dir(path)


async def followed_elsewhere(broker: BrokerContext, name: str = "t") -> tuple[TopicImage, PartitionImage]:
    """A topic with ten batches, whose leader is another broker."""
    topic = await make_topic(broker, name)
    for _ in range(10):
        append(broker.replicas.find(name, 0), [NOW])
    elsewhere = replace(topic.partitions[0], replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1, partition_epoch=1)
    broker.metadata.replace(with_partition(broker.metadata.image, topic, elsewhere))
    return topic, elsewhere


async def test_a_partition_whose_log_is_being_truncated_is_led_when_that_is_done(tmp_path: Path) -> None:
    disk = Disk()
    async with running_parts(tmp_path, files=disk) as broker:
        topic, elsewhere = await followed_elsewhere(broker)
        follower = broker.replicas.followed("t", 0)
        assert follower is not None
        disk.hold()
        broker.replicas.truncate(follower, 4)
        await until(disk.busy.is_set)
        assert broker.replicas.followed("t", 0) is None
        here = replace(elsewhere, leader=1, leader_epoch=2, partition_epoch=2)
        broker.metadata.replace(with_partition(broker.metadata.image, topic, here))
        with pytest.raises(NotLeaderOrFollower, match="is being opened, created or truncated"):
            broker.replicas.find("t", 0)
        disk.go_on()
        await broker.replicas.settled()
        partition = broker.replicas.find("t", 0)
        assert (partition.log.log_end_offset, partition.leader.epoch_start_offset) == (4, 4)
        assert partition.leader.leader_epoch == 2


async def test_a_log_that_is_cut_is_followed_again_also_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: BrokerContext) -> None:
        await followed_elsewhere(broker)
        first = broker.replicas.followed("t", 0)
        assert first is not None
        with monkeypatch.context() as failing:
            failing.setattr(Log, "truncate_to", Mock(side_effect=StorageFailed("no descriptors")))
            broker.replicas.truncate(first, 4)
            await broker.replicas.settled()
        second = broker.replicas.followed("t", 0)
        assert second is not None
        assert (second is first, second.log.log_end_offset) == (False, 10)
        broker.replicas.truncate_fully(first, 0)  # what was decided before is of no account
        broker.replicas.truncate_fully(second, 3)
        await broker.replicas.settled()
        third = broker.replicas.followed("t", 0)
        assert third is not None
        assert (third.log.log_start_offset, third.log.log_end_offset) == (3, 3)

    await run(tmp_path, story, replica_fetch_backoff_ms="10")


async def test_a_topic_that_is_deleted_while_its_log_is_cut_leaves_nothing(tmp_path: Path) -> None:
    disk = Disk()
    async with running_parts(tmp_path, files=disk) as broker:
        await followed_elsewhere(broker)
        follower = broker.replicas.followed("t", 0)
        assert follower is not None
        disk.hold()
        broker.replicas.truncate(follower, 4)
        await until(disk.busy.is_set)
        await broker.controller.delete_topics(["t"])
        again = (await broker.controller.create_topics([TopicToCreate("t", 1, 1)]))["t"]
        assert not isinstance(again, Exception)
        disk.go_on()
        await broker.replicas.settled()
        partition = broker.replicas.find("t", 0)
        assert partition.log.topic_id == again.topic_id
        assert partition.log.log_end_offset == 0
        assert not broker.logs.failed_directories


async def test_leadership_changes_at_once_while_other_logs_are_made(tmp_path: Path) -> None:
    disk = Disk()
    async with running_parts(tmp_path, files=disk) as broker:
        topic = await make_topic(broker, "t")
        disk.hold()
        await broker.controller.create_topics([TopicToCreate("many", 300, 1)])
        await until(disk.busy.is_set)
        elsewhere = replace(topic.partitions[0], replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
        image = broker.metadata.image
        broker.metadata.replace(with_partition(image, topic, elsewhere))
        assert broker.replicas.followed("t", 0) is not None
        broker.metadata.replace(with_partition(image, topic, replace(elsewhere, leader=1, leader_epoch=2)))
        assert broker.replicas.find("t", 0).leader.leader_epoch == 2
        disk.go_on()
        await broker.replicas.settled()
        assert broker.replicas.find("many", 299)


async def test_a_topic_is_deleted_while_other_logs_are_made(tmp_path: Path) -> None:
    """Its log is set aside when that can be done, and nobody else waits for it."""

    disk = Disk()
    async with running_parts(tmp_path, files=disk) as broker:
        await make_topic(broker, "t")
        log = broker.replicas.find("t", 0).log
        disk.hold()
        await broker.controller.create_topics([TopicToCreate("slow", 1, 1)])
        await until(disk.busy.is_set)
        await broker.controller.delete_topics(["t"])
        with pytest.raises(UnknownTopicOrPartition):
            broker.replicas.find("t", 0)
        assert broker.logs.get(TopicPartition("t", 0)) is log
        disk.go_on()
        await broker.replicas.settled()
        assert broker.logs.get(TopicPartition("t", 0)) is None
        assert broker.replicas.find("slow", 0)


async def test_a_partition_that_comes_back_while_its_log_is_set_aside_has_its_records(tmp_path: Path) -> None:
    disk = Disk()
    async with running_parts(tmp_path, files=disk) as broker:
        topic = await make_topic(broker, "t")
        append(broker.replicas.find("t", 0), [NOW] * 3)
        disk.hold()
        image = broker.metadata.image
        moved = replace(topic.partitions[0], replicas=(2,), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1)
        broker.metadata.replace(with_partition(image, topic, moved))
        await until(disk.busy.is_set)
        here = replace(topic.partitions[0], leader_epoch=2, partition_epoch=2)
        broker.metadata.replace(with_partition(image, topic, here))
        with pytest.raises(NotLeaderOrFollower):
            broker.replicas.find("t", 0)
        disk.go_on()
        await broker.replicas.settled()
        assert broker.replicas.find("t", 0).log.log_end_offset == 3
