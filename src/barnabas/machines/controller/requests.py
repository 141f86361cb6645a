"""Requests to the controller, and events that it acts on. The rules check the values, not these classes.

Most are named tuples: every broker makes these classes when it starts, and a frozen dataclass takes seven times as long
to make. Two have fields that a tuple has methods for.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from barnabas.machines.controller.image import BrokerImage, ConfigResource, PartitionKey
    from barnabas.model.errors import ApiError

DEFAULT = -1
"""As a number of partitions or a replication factor: what the broker is configured with."""
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class TopicToCreate(NamedTuple):
    """A topic to be made: either with counts, or with an assignment of every partition."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    """Partition index and its broker ids, as the client listed them (indexes may repeat: then it is refused)."""
    configs: Mapping[str, str] = _NOTHING
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


class CreateTopics(NamedTuple):
    """Create topics; with `validate_only` nothing is changed."""

    topics: Sequence[TopicToCreate]
    validate_only: bool = False


class DeleteTopics(NamedTuple):
    """Remove topics."""

    names: Sequence[str]
    ids: Mapping[str, UUID] = _NOTHING
    """Of topics that were asked for by their id: one that was made again under the name is not meant."""


class CreatePartitions(NamedTuple):
    """Give topics more partitions; with `validate_only` nothing is changed."""

    topics: Sequence[NewPartitions]
    validate_only: bool = False


class AlterConfigs(NamedTuple):
    """Replace the dynamic settings of each resource as a whole. The values have been validated."""

    settings: Mapping[ConfigResource, Mapping[str, str]]


class EditConfigs(NamedTuple):
    """Change settings of resources that other programs change, too: by what makes new settings of those that are there.

    It is asked again if the tree turns out to hold others. It may raise an ApiError, which answers for the resource.
    """

    edits: Mapping[ConfigResource, Callable[[Mapping[str, str]], dict[str, str]]]


class Registered(NamedTuple):
    """These brokers are registered now: lead without those that went, and use those that came.

    Also the first event of a new controller, since brokers may have registered and gone while there was none.
    """

    brokers: Mapping[int, BrokerImage]
    restarted: Mapping[PartitionKey, frozenset[int]] = _NOTHING
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


class AlterIsr(NamedTuple):
    """A leader's changes of who is in sync. Answers are keyed by topic id and index."""

    broker_id: int
    broker_epoch: int
    partitions: Sequence[IsrChange]


class ElectLeaders(NamedTuple):
    """Elect the preferred replica, or, where there is no leader, one that is not in sync; None means every partition.

    When every partition is asked for, those that need no election have no answer.
    """

    kind: Literal["preferred", "unclean"]
    partitions: Sequence[PartitionKey] | None = None


class Reassign(NamedTuple):
    """Move partitions to other brokers, or stop moving them (None)."""

    partitions: Mapping[PartitionKey, tuple[int, ...] | None]
    allow_replication_factor_change: bool = True


class ShutDown(NamedTuple):
    """A broker is about to stop: give its partitions other leaders. The answer is what it still leads."""

    broker_id: int
    broker_epoch: int


class LogDirFailed(NamedTuple):
    """A broker cannot use these replicas. They stay offline until it says otherwise, or registers again."""

    broker_id: int
    partitions: Sequence[PartitionKey]
    is_all: bool = False
    """Whether the broker can use all others, also those that it could not use before."""


class MoveLeader(NamedTuple):
    """Let another replica in sync lead a partition, or the same one in a new leader epoch if there is no other."""

    topic: str
    partition: int


class LevelChange(NamedTuple):
    """The level that a feature is to have, and which way it may move to get there."""

    level: int
    direction: Literal["upgrade", "downgrade"] | None
    """None for a direction that is not known here."""


class UpdateFeatures(NamedTuple):
    """Set the levels of features; with `validate_only` nothing is changed."""

    updates: Mapping[str, LevelChange]
    validate_only: bool = False


class ForgetBroker(NamedTuple):
    """A broker that is away does not come back."""

    broker_id: int


Request = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | EditConfigs
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
