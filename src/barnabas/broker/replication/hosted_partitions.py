"""The partitions that this broker leads or follows, and how requests find them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.broker.replication.traffic import Traffic
from barnabas.model.errors import ApiError, NotLeaderOrFollower, StorageFailed, UnknownTopicId, UnknownTopicOrPartition
from barnabas.model.ids import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from barnabas.broker.replication.follower_partition import FollowerPartition
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.model.ids import TopicPartition
    from barnabas.storage.log.log import Log


class HostedPartitions:
    """Leader and follower partitions by topic name or id. A partition is in one of the two roles, or in none."""

    def __init__(self, broker_id: int, metadata: MetadataCache, changing: Container[tuple[str, int]]) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._changing = changing
        """Partitions whose logs are being created, truncated, set aside or handed over."""
        self.is_active = False
        """Whether this broker acts on the cluster's image: it is registered, and the controller has updated it."""
        self._leaders: dict[tuple[str, int], LeaderPartition] = {}
        self._by_wire: dict[tuple[str | bytes, int], LeaderPartition] = {}
        """Leaders by topic name and by the bytes of the topic id: one look-up finds what Produce or Fetch names."""
        self._followers: dict[tuple[str, int], FollowerPartition] = {}
        self.traffic: dict[str, Traffic] = {}
        """By topic, from the first partition that was led or followed here until the topic is deleted."""
        self.cold_reads = 0
        """How often a fetch had to wait until a log had read from disk."""
        self.past_traffic = Traffic()
        """Of topics that were deleted."""

    # For requests

    def get(self, topic: str, index: int) -> LeaderPartition | None:
        """The partition, if this broker leads it."""
        return self._leaders.get((topic, index))

    def led(self, topic: str | bytes, index: int) -> LeaderPartition | None:
        """The partition by the name of its topic or the bytes of the topic id, if this broker leads it."""
        return self._by_wire.get((topic, index))

    def find(self, topic: str | bytes, index: int) -> LeaderPartition:
        """As `led`, but raises the error that tells a client why this broker does not lead the partition."""
        partition = self._by_wire.get((topic, index))
        if partition is None:
            raise self.not_led(topic, index)
        return partition

    def followed(self, topic: str | bytes, index: int) -> FollowerPartition | None:
        """The partition by the name of its topic or the bytes of the topic id, if this broker follows it."""
        if isinstance(topic, bytes):
            found = self._metadata.topic_by_id(UUID(bytes=topic))
            return None if found is None else self._followers.get((found.name, index))
        return self._followers.get((topic, index))

    def current_leader(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """Broker id and epoch of the leader in the cluster's image; None if there is no such partition."""
        found = self._metadata.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else None
        name = topic if isinstance(topic, str) else "" if found is None else found.name
        image = self._metadata.partition(name, index)
        return None if image is None else (image.leader, image.leader_epoch)

    def not_led(self, topic: str | bytes, index: int) -> ApiError:
        """The error for a client that asks this broker for a partition which it does not lead."""
        if isinstance(topic, bytes):
            found = self._metadata.topic_by_id(UUID(bytes=topic))
            if found is None:
                return UnknownTopicId(f"There is no topic with id {uuid_to_text(UUID(bytes=topic))}.")
            topic = found.name
        image = self._metadata.partition(topic, index)
        if image is None:
            return UnknownTopicOrPartition(f"There is no partition {topic}-{index}.")
        if (topic, index) in self._changing:
            return NotLeaderOrFollower(f"The log of {topic}-{index} is being opened, created or truncated. Try again.")
        if image.leader == self._broker_id and not self.is_active:
            return NotLeaderOrFollower(
                f"This broker waits for the controller to confirm that it leads {topic}-{index}. Try again."
            )
        if image.leader == self._broker_id:
            return StorageFailed(f"The log directory of {topic}-{index} has failed.")
        return NotLeaderOrFollower(f"Broker {image.leader} leads {topic}-{index}. Refresh the metadata.")

    # Traffic

    def _traffic_of(self, topic: str) -> Traffic:
        found = self.traffic.get(topic)
        if found is None:
            found = self.traffic[topic] = Traffic()
        return found

    def forget_traffic(self, topics: Iterable[str]) -> None:
        """Topics were deleted: what was counted of them counts for the broker alone from now on."""
        for topic in topics:
            if (gone := self.traffic.pop(topic, None)) is not None:
                self.past_traffic.add(gone)

    # For the replica manager

    def leaders(self) -> Iterable[LeaderPartition]:
        """Every partition that this broker leads."""
        return self._leaders.values()

    def followers(self) -> Iterable[FollowerPartition]:
        """Every partition that this broker follows."""
        return self._followers.values()

    def logs(self) -> list[Log]:
        """The logs of all partitions in either role."""
        return [each.log for each in self._leaders.values()] + [each.log for each in self._followers.values()]

    def log(self, tp: TopicPartition) -> Log | None:
        """The log of a partition in either role."""
        found = self._leaders.get(tp) or self._followers.get(tp)
        return None if found is None else found.log

    def follower(self, tp: TopicPartition) -> FollowerPartition | None:
        """The partition, if this broker follows it."""
        return self._followers.get(tp)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._leaders or tp in self._followers

    def add_leader(self, partition: LeaderPartition) -> None:
        """Let requests find a partition that this broker leads; it replaces that of a former leader epoch."""
        tp = partition.tp
        partition.traffic = self._traffic_of(tp.topic)
        if (former := self._leaders.get(tp)) is not None:
            partition.traffic.settle(former)
        self._leaders[tp] = self._by_wire[tp] = self._by_wire[partition.topic_id.bytes, tp.partition] = partition

    def remove_leader(self, partition: LeaderPartition) -> None:
        """Let no request find a partition any more."""
        tp = partition.tp
        partition.traffic.settle(partition)
        del self._leaders[tp], self._by_wire[tp], self._by_wire[partition.topic_id.bytes, tp.partition]

    def add_follower(self, follower: FollowerPartition) -> None:
        """Let requests find a partition that this broker follows."""
        follower.traffic = self._traffic_of(follower.tp.topic)
        self._followers[follower.tp] = follower

    def remove_follower(self, tp: TopicPartition) -> None:
        """Let no request find a followed partition any more."""
        del self._followers[tp]
