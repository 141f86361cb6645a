"""A query's rows into a table, each once: what a batch is known by, and what a restart goes on from.

Kept by offsets (see `spec.flows`): the ranges of a batch name its commit, as in a plain load. A run begins where the
table says, with an empty checkpoint of its own; there is nothing to lose.

Kept by batches: what a batch gives depends on the state in Spark's checkpoint, and a batch that only moves a watermark
has no ranges at all. So the commit is named by the batch's number too, as an offset of a topic that cannot exist, and
the id of the checkpoint is stored as that topic's id. A replayed batch finds its number and adds nothing. Another
checkpoint would number other batches alike: it is refused before anything runs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.clients.errors import BarnabasError, BrokerUnreachable
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.spark.read.offsets import OffsetRange, between
from barnabas.pipelines.tables.contract import BATCHES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.spark.read.offsets import Offsets
    from barnabas.pipelines.tables.contract import Position


log = logging.getLogger("barnabas.pipelines")


class CheckpointRefused(PipelineError):
    """A checkpoint and a table do not belong together, so nobody knows which rows are in the table."""


class CheckpointLog(Protocol):
    """What is asked of a checkpoint (`checkpoints.Checkpoint`)."""

    @property
    def location(self) -> str:
        """Where it is."""

    def id(self) -> str | None:
        """Its id, None if there is none."""

    def has_batches(self) -> bool:
        """Whether any batch was finished."""

    def offsets(self, batch: int) -> Mapping[TopicPartition, int] | None:
        """Where a batch ends, None if that is not noted."""


class CommittedOffsets(Protocol):
    """What is asked of a cluster (`cluster.ClusterView`)."""

    def committed(self, group: str, /) -> Offsets:
        """What a group has committed."""


@dataclass(frozen=True, slots=True)
class BatchKey:
    """What a commit is named by: ranges, and the ids of the topics they are of."""

    ranges: Sequence[OffsetRange]
    topic_ids: Mapping[str, str]


def key_of(
    batch: int, log: CheckpointLog, begun: Offsets, topic_ids: Mapping[str, str], *, by_offsets: bool
) -> BatchKey:
    """The key of a batch that runs; `begun` is where the first one begins. Raises CheckpointRefused."""
    end = log.offsets(batch)
    before = log.offsets(batch - 1) if batch else {}
    if end is None or before is None:
        raise CheckpointRefused(
            f"{log.location} does not say which records batch {batch} has, so Spark keeps its checkpoint elsewhere, or "
            "somebody removed it. Nothing of this batch was added."
        )
    ranges = between({**begun, **before}, end)
    if by_offsets:
        return BatchKey(ranges, topic_ids)
    numbered = OffsetRange(*BATCHES, batch, batch + 1)
    return BatchKey([*ranges, numbered], {**topic_ids, BATCHES.topic: log.id() or ""})


def check_checkpoint(position: Position | None, log: CheckpointLog, table: str) -> None:
    """Raise CheckpointRefused unless the checkpoint is the one that the table was filled with."""
    id = log.id()
    stored = None if position is None else position.topic_ids.get(BATCHES.topic)
    if position is None:
        if id is not None and log.has_batches():
            raise CheckpointRefused(
                f"the checkpoint {log.location} has finished batches, and {table} has none of their rows. Put the "
                "table back, or remove the checkpoint to load everything again."
            )
    elif stored is None:
        raise CheckpointRefused(
            f"{table} was filled without a checkpoint, and the pipeline keeps state now, of which the table knows "
            "nothing. Choose another table."
        )
    elif id is None:
        raise CheckpointRefused(
            f"{table} was filled with a checkpoint, and there is none at {log.location}. Its state (open windows, rows "
            "that wait for a join) is not in the table: put the checkpoint back, or begin with another table."
        )
    elif id != stored:
        raise CheckpointRefused(
            f"{table} was filled with the checkpoint {stored}, and {log.location} is {id}: their batches are not the "
            "same. Put the right checkpoint back, or begin with another table."
        )


def check_topic_checkpoint(cluster: CommittedOffsets, checkpoint: CheckpointLog, group: str) -> None:
    """Raise CheckpointRefused if a query to a topic has run before, as its group shows, and its checkpoint is gone.

    A cluster that does not let us see the group, as with a login that only librdkafka knows, is no reason not to run;
    one that does not answer is: it may show the group in a moment. Raises BrokerUnreachable then.
    """
    if checkpoint.has_batches():
        return
    try:
        committed = cluster.committed(group)
    except BrokerUnreachable:
        raise
    except BarnabasError as error:
        log.warning(
            "The consumer group %s cannot be read, so a lost checkpoint %s would not be noticed: %s",
            group,
            checkpoint.location,
            error,
        )
        return
    if committed:
        raise CheckpointRefused(
            f"the consumer group {group} shows that this query has run before, and the checkpoint "
            f"{checkpoint.location} has no finished batch: everything would be written to the topic again. Put the "
            "checkpoint back, or, to begin anew, delete the group."
        ).with_remedy(Remedy(RemedyKind.DELETE_GROUP, group))


def where_to_begin(
    partitions: Sequence[TopicPartition],
    position: Position | None,
    edge: Offsets,
    *,
    by_pattern: bool,
) -> dict[TopicPartition, int]:
    """Where a run begins: where the table says; what came since the table was made at offset 0; else at `edge`.

    What came since are partitions of topics that the table knows. Of a source that has a pattern it is also topics: the
    table was given all that there were at its first start, so one that it does not know was made later. What was
    removed of them before it was read is lost, and the source says so.
    """
    if position is None:
        return {each: edge[each] for each in partitions}
    known = position.offsets
    topics = {partition.topic for partition in known}
    went_on = by_pattern and (not topics or any(each.topic in topics for each in partitions))
    return {each: known.get(each, 0 if went_on or each.topic in topics else edge[each]) for each in partitions}


def check_kept_by_offsets(position: Position | None, table: str) -> None:
    """Raise CheckpointRefused if a table has rows that depend on a checkpoint, and the pipeline has none any more."""
    if position is not None and BATCHES in position.offsets:
        raise CheckpointRefused(
            f"{table} was filled by a pipeline that kept state. Without the state it is not known which records are in "
            "it. Choose another table."
        )
