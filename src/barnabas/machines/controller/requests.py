"""Requests to the controller, and events that it acts on. The rules check the values, not these classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from barnabas.machines.controller.image import BrokerImage, ConfigResource, PartitionKey
    from barnabas.model.errors import ApiError

DEFAULT = -1
"""As a number of partitions or a replication factor: what the broker is configured with."""


@dataclass(frozen=True, slots=True)
class TopicToCreate:
    """A topic to be made: either with counts, or with an assignment of every partition."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Partition index and its broker ids, as the client listed them (indexes may repeat: then it is refused)."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """Overrides, already validated."""
    config_error: ApiError | None = None
    """Why the overrides are not valid; the topic is refused with it, unless another check comes first."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic to be given more partitions."""

    name: str
    count: int
    """How many partitions it has afterwards."""
    assignments: Sequence[Sequence[int]] | None = None
    """Broker ids of each added partition, or None to let the controller place them."""


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics; with `validate_only` nothing is changed."""

    topics: Sequence[TopicToCreate]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Remove topics."""

    names: Sequence[str]
    ids: Mapping[str, UUID] = field(default_factory=dict)
    """Of topics that were asked for by their id: one that was made again under the name is not meant."""


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Give topics more partitions; with `validate_only` nothing is changed."""

    topics: Sequence[NewPartitions]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Replace the dynamic settings of each resource as a whole. The values have been validated."""

    settings: Mapping[ConfigResource, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Registered:
    """These brokers are registered now: lead without those that went, and use those that came.

    Also the first event of a new controller, since brokers may have registered and gone while there was none.
    """

    brokers: Mapping[int, BrokerImage]
    restarted: Mapping[PartitionKey, frozenset[int]] = field(default_factory=dict)
    """Replicas in sync that registered after their partition's state was written: no controller saw them restart."""


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What a leader wants the ISR of a partition to be."""

    topic_id: UUID
    index: int
    leader_epoch: int
    partition_epoch: int
    """Version of the state that the change is made from."""
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...] = ()
    """With which registration each of them caught up; -1, or none at all, is not checked."""


@dataclass(frozen=True, slots=True)
class AlterIsr:
    """A leader's changes of who is in sync. Answers are keyed by topic id and index."""

    broker_id: int
    broker_epoch: int
    partitions: Sequence[IsrChange]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect the preferred replica, or, where there is no leader, one that is not in sync; None means every partition.

    When every partition is asked for, those that need no election have no answer.
    """

    kind: Literal["preferred", "unclean"]
    partitions: Sequence[PartitionKey] | None = None


@dataclass(frozen=True, slots=True)
class Reassign:
    """Move partitions to other brokers, or stop moving them (None)."""

    partitions: Mapping[PartitionKey, tuple[int, ...] | None]
    allow_replication_factor_change: bool = True


@dataclass(frozen=True, slots=True)
class ShutDown:
    """A broker is about to stop: give its partitions other leaders. The answer is what it still leads."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class LogDirFailed:
    """A broker cannot use these replicas. They stay offline until it says otherwise, or registers again."""

    broker_id: int
    partitions: Sequence[PartitionKey]
    is_all: bool = False
    """Whether the broker can use all others, also those that it could not use before."""


@dataclass(frozen=True, slots=True)
class MoveLeader:
    """Let another replica in sync lead a partition, or the same one in a new leader epoch if there is no other."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class LevelChange:
    """The level that a feature is to have, and which way it may move to get there."""

    level: int
    direction: Literal["upgrade", "downgrade"] | None
    """None for a direction that is not known here."""


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """Set the levels of features; with `validate_only` nothing is changed."""

    updates: Mapping[str, LevelChange]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class ForgetBroker:
    """A broker that is away does not come back."""

    broker_id: int


Request = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | Registered
    | AlterIsr
    | ElectLeaders
    | Reassign
    | ShutDown
    | LogDirFailed
    | MoveLeader
    | UpdateFeatures
    | ForgetBroker
)
