"""Topics as an administrator asks for them and is told of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.internal_topics import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_TOPIC_ID: Final = "A" * 22
_URL_SAFE: Final = str.maketrans("+/", "-_")
"""librdkafka writes ids in plain base64, Kafka in the form that is safe in addresses and file names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """Who holds a partition; `leader` is None while there is none."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """A topic and its partitions in order; `topic_id` is Kafka's text form, None where the broker has no ids."""

    name: str
    topic_id: str | None
    partitions: tuple[PartitionInfo, ...]

    @property
    def internal(self) -> bool:
        """Whether brokers keep their own state in it."""
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, which is how Kafka's tools count."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One setting as the broker tells it; `value` is None when it is a secret or has none."""

    name: str
    value: str | None
    default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be made. Without partitions, replication factor or assignment the broker's defaults hold."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignment: Sequence[Sequence[int]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


def topic_info(found: Any) -> TopicInfo:
    """A topic as librdkafka tells of it."""
    topic_id = str(found.topic_id).translate(_URL_SAFE)
    return TopicInfo(
        name=found.name,
        topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        partitions=tuple(
            PartitionInfo(
                partition=partition.id,
                leader=None if partition.leader is None or partition.leader.id < 0 else partition.leader.id,
                replicas=tuple(node.id for node in partition.replicas),
                isr=tuple(node.id for node in partition.isr),
            )
            for partition in sorted(found.partitions, key=lambda partition: partition.id)
        ),
    )
