"""Only the metadata tree has data removed: whatever an image or a message says, logs are set aside first, and kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kio.static.primitive import i8, i32, i64

from barnabas.broker.handlers import replication
from barnabas.broker.replication.strays import Strays
from barnabas.metadata.images.announcements import announcements
from barnabas.metadata.stores.store import Create, Delete, StoreUnavailable
from barnabas.metadata.topic_znodes import Assignment, DeletedTopicNode, TopicNode
from barnabas.metadata.znodes import ControllerNode
from barnabas.model.errors import UnknownControllerId
from barnabas.model.ids import TopicPartition
from barnabas.protocol.messages import inter_broker
from tests.support.images import proved
from tests.support.parts import append, make_topic, run
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext
    from barnabas.machines.controller.image import ClusterImage, TopicImage

NOW = 1_700_000_000_000


async def with_data(broker: BrokerContext, name: str = "t") -> TopicImage:
    topic = await make_topic(broker, name)
    append(broker.replicas.find(name, 0), [NOW] * 3)
    return topic


def directories(broker: BrokerContext) -> list[str]:
    """How the directories of logs end."""
    (data,) = broker.logs.directories
    return sorted(path.name.rpartition("-")[2] for path in data.iterdir() if path.is_dir())


async def settled(broker: BrokerContext) -> None:
    await broker.replicas.settled()
    assert broker.replicas.strays is not None
    await broker.replicas.strays.settled()


async def let_another_be_controller(broker: BrokerContext) -> None:
    """The metadata tree says that broker 2 is the active controller."""
    path = ControllerNode.path
    await broker.membership.store.multi([Delete(path), Create(path, ControllerNode.encode(2, NOW))])
    async with asyncio.timeout(30):
        while broker.membership.controller.is_active:
            await asyncio.sleep(0.005)


def without_topics(image: ClusterImage) -> ClusterImage:
    return replace(image, topics={}, topic_names={})


async def test_a_deleted_topic_is_removed(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await with_data(broker)
        await broker.controller.delete_topics(["t"])
        await settled(broker)
        assert directories(broker) == ["delete"]

    await run(tmp_path, story)


async def test_a_full_update_that_lacks_a_topic_removes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: BrokerContext) -> None:
        await with_data(broker)
        image = broker.metadata.image
        broker.metadata.replace(without_topics(image))
        await settled(broker)
        assert directories(broker) == ["stray"]
        assert caplog.text.count("1 logs stay set aside") == 1
        broker.metadata.replace(image)
        await settled(broker)
        partition = broker.replicas.find("t", 0)
        assert partition.log.log_end_offset == 3
        assert directories(broker) == ["0"]
        append(partition, [NOW])

    await run(tmp_path, story)


async def test_nothing_is_removed_while_the_tree_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: BrokerContext) -> None:
        await with_data(broker)
        find_many = type(broker.membership.store).find_many

        async def unavailable(*_: object) -> Any:
            raise StoreUnavailable("away")

        monkeypatch.setattr(type(broker.membership.store), "find_many", unavailable)
        monkeypatch.setattr("barnabas.broker.replication.strays._RETRY", 0.01)
        await broker.controller.delete_topics(["t"])
        await broker.replicas.settled()
        assert directories(broker) == ["stray"]
        monkeypatch.setattr(type(broker.membership.store), "find_many", find_many)
        await settled(broker)
        assert directories(broker) == ["delete"]

    await run(tmp_path, story)


async def test_a_failure_of_any_kind_is_logged_and_the_tree_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: BrokerContext) -> None:
        await with_data(broker)
        monkeypatch.setattr("barnabas.broker.replication.strays._RETRY", 0.01)
        with monkeypatch.context() as failing:
            failing.setattr("barnabas.broker.replication.strays.removable", None)
            await broker.controller.delete_topics(["t"])
            await until(lambda: "TypeError" in caplog.text)
        await settled(broker)
        assert directories(broker) == ["delete"]

    await run(tmp_path, story)


async def test_a_broker_removes_what_was_deleted_while_it_was_away(tmp_path: Path) -> None:
    async def before(broker: BrokerContext) -> None:
        await with_data(broker)
        broker.replicas.resign()
        await broker.controller.delete_topics(["t"])
        assert directories(broker) == ["0"]

    async def after(broker: BrokerContext) -> None:
        await settled(broker)
        assert directories(broker) == ["delete"]

    await run(tmp_path, before)
    await run(tmp_path, after)


async def test_it_keeps_what_the_tree_does_not_remember(tmp_path: Path) -> None:
    async def before(broker: BrokerContext) -> None:
        topic = await with_data(broker)
        broker.replicas.resign()
        await broker.controller.delete_topics(["t"])
        await broker.membership.store.delete(DeletedTopicNode.path(topic.topic_id))

    async def after(broker: BrokerContext) -> None:
        await make_topic(broker, "t")
        await settled(broker)
        assert directories(broker) == ["0", "stray"]
        assert broker.replicas.find("t", 0).log.log_end_offset == 0

    await run(tmp_path, before)
    await run(tmp_path, after)


async def test_a_record_does_not_outweigh_a_topic_that_is_there(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await with_data(broker)
        await broker.membership.store.create(DeletedTopicNode.path(topic.topic_id))
        broker.metadata.replace(without_topics(broker.metadata.image))
        await settled(broker)
        assert directories(broker) == ["stray"]

    await run(tmp_path, story)


async def moved(broker: BrokerContext, *, in_the_tree: bool) -> None:
    """A controller elsewhere says that partition 0 moved to broker 2, and so does the tree, or not."""
    told = await stopped(broker, await with_data(broker), in_the_tree=in_the_tree)
    broker.metadata.replace(told)
    await settled(broker)


async def stopped(broker: BrokerContext, topic: TopicImage, *, in_the_tree: bool = True) -> ClusterImage:
    """A controller elsewhere sends StopReplica; the image that it sends next."""
    if in_the_tree:
        data = TopicNode.encode(topic.topic_id, [Assignment((2,))])
        await broker.membership.store.set(TopicNode.path("t"), data)
    image = broker.metadata.image
    partition = replace(topic.partitions[0], leader=2, leader_epoch=1, replicas=(2,), isr=(2,), partition_epoch=1)
    elsewhere = replace(topic, partitions=(partition,))
    await let_another_be_controller(broker)
    told = replace(image, topics={"t": elsewhere}, controller_id=2)
    for message in announcements(image, told, image.brokers[1]):
        numbered = replace(message, number=i64(1))
        if isinstance(numbered, inter_broker.StopReplicaRequest):
            await replication.stop_replica(broker, numbered, proved(2))
    return told


async def test_a_replica_that_was_stopped_is_not_made_anew_before_the_image_comes(tmp_path: Path) -> None:
    """It would be led in the old leader epoch, without a record: consumers would begin anew, or skip what comes."""

    async def story(broker: BrokerContext) -> None:
        told = await stopped(broker, await with_data(broker))
        await settled(broker)
        assert broker.replicas.get("t", 0) is None
        assert directories(broker) == ["delete"]
        broker.metadata.replace(told)
        await settled(broker)
        assert directories(broker) == ["delete"]

    await run(tmp_path, story)


async def test_a_replica_that_is_stopped_while_its_log_is_made_is_removed(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await let_another_be_controller(broker)
        topic = broker.metadata.image.topics["t"]
        broker.replicas.resign()
        for log in list(broker.logs.logs()):
            broker.logs.set_aside(log)
        broker.replicas.resume()
        assert broker.replicas.get("t", 0) is None
        await stopped(broker, topic)
        await settled(broker)
        assert directories(broker) == ["delete"]

    async def before(broker: BrokerContext) -> None:
        await with_data(broker)

    await run(tmp_path, before)
    await run(tmp_path, story)


async def test_a_replica_that_moved_is_removed_when_that_is_told_and_the_tree_says_so(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await moved(broker, in_the_tree=True)
        assert directories(broker) == ["delete"]

    await run(tmp_path, story)


async def test_one_that_the_tree_still_assigns_is_kept(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await moved(broker, in_the_tree=False)
        assert directories(broker) == ["stray"]

    await run(tmp_path, story)


async def test_one_that_an_image_alone_moved_is_kept(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        topic = await with_data(broker)
        data = TopicNode.encode(topic.topic_id, [Assignment((2,))])
        await broker.membership.store.set(TopicNode.path("t"), data)
        await let_another_be_controller(broker)
        partition = replace(topic.partitions[0], leader=2, leader_epoch=1, replicas=(2,), isr=(2,), partition_epoch=1)
        image = broker.metadata.image
        broker.metadata.replace(replace(image, topics={"t": replace(topic, partitions=(partition,))}))
        await settled(broker)
        assert directories(broker) == ["stray"]

    await run(tmp_path, story)


async def test_an_empty_update_with_the_highest_epochs_removes_nothing(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await with_data(broker)
        request = inter_broker.UpdateMetadataRequest(
            controller_id=i32(1),
            type=i8(2),
            controller_epoch=i32(0x7FFFFFFF),
            broker_epoch=i64(0x7FFFFFFFFFFFFFFF),
            topic_states=(),
            live_brokers=(),
        )
        with pytest.raises(UnknownControllerId):
            await broker.membership.update_metadata(request)
        await settled(broker)
        assert directories(broker) == ["0"]

    await run(tmp_path, story)


async def test_logs_of_two_topics_of_one_name_are_told_apart(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await with_data(broker)
        image = broker.metadata.image
        broker.replicas.resign()
        await broker.controller.delete_topics(["t"])
        await make_topic(broker, "t", ready=False)
        broker.replicas.resume()
        await settled(broker)
        assert directories(broker) == ["0", "delete"]
        log = broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        assert log.topic_id != image.topics["t"].topic_id

    await run(tmp_path, story)


async def test_what_comes_while_the_tree_is_asked_is_asked_about_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(broker: BrokerContext) -> None:
        kept, moved = await with_data(broker, "kept"), await with_data(broker, "moved")
        first, second = (broker.logs.get(TopicPartition(name, 0)) for name in ("kept", "moved"))
        assert first is not None
        assert second is not None
        for topic, assignment in ((kept, Assignment((1,))), (moved, Assignment((2,)))):
            await broker.membership.store.set(
                TopicNode.path(topic.name), TopicNode.encode(topic.topic_id, [assignment])
            )
        broker.replicas.resign()
        await let_another_be_controller(broker)
        strays = broker.replicas.strays
        assert strays is not None
        note_offsets = strays._write_offsets

        async def interrupted() -> None:
            monkeypatch.undo()
            strays.add(broker.logs.set_aside(second), moved=True)
            await note_offsets()

        monkeypatch.setattr(strays, "_write_offsets", interrupted)
        strays.add(broker.logs.set_aside(first), moved=False)
        await settled(broker)
        assert directories(broker) == ["delete", "stray"]
        assert [each.topic for each in broker.logs.strays()] == ["kept"]
        assert "moved" not in "".join(record.message for record in caplog.records if "stay set aside" in record.message)

    await run(tmp_path, story)


async def test_what_is_set_aside_while_the_broker_stops_starts_nothing_anew(tmp_path: Path) -> None:
    async def story(broker: BrokerContext) -> None:
        await with_data(broker)
        log = broker.logs.get(TopicPartition("t", 0))
        assert log is not None
        broker.replicas.resign()
        strays = Strays(1, broker.logs, lambda: broker.membership.store, broker.executor)
        await strays.stop()
        before = asyncio.all_tasks()
        strays.add(broker.logs.set_aside(log), moved=False)
        assert asyncio.all_tasks() == before
        await strays.settled()

    await run(tmp_path, story)
