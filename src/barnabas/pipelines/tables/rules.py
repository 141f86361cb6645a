"""When a commit is the next one, when it is an old one, and when it is refused. Pure; the same for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.errors import Fenced, ForeignTable, TopicReplaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.tables.contract import Position


def join_ranges(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, OffsetRange]:
    """One range per partition. Raises ValueError if the pieces of a partition overlap or leave a gap."""
    whole: dict[TopicPartition, OffsetRange] = {}
    for piece in sorted(ranges, key=lambda each: (each.topic, each.partition, each.start)):
        before = whole.get(piece.place)
        if before is not None and before.end != piece.start:
            raise ValueError(f"{before} and {piece} are not side by side")
        start = piece.start if before is None else before.start
        whole[piece.place] = OffsetRange(piece.topic, piece.partition, start, piece.end)
    return whole


def advance(
    position: Position | None, ranges: Sequence[OffsetRange], topic_ids: Mapping[str, str], location: str
) -> dict[TopicPartition, int] | None:
    """All offsets after a commit of these ranges; None if the table has them. Raises Fenced, TopicReplaced."""
    whole = join_ranges(ranges)
    if position is None:
        return {place: each.end for place, each in whole.items()}
    check_topics(position, topic_ids, location)
    stored = position.offsets
    if all(place in stored and each.end <= stored[place] for place, each in whole.items()):
        return None
    for place, each in whole.items():
        if place in stored and each.start != stored[place]:
            raise Fenced(
                f"{location} is at offset {stored[place]} of {place}, and this job has {each}: another job writes to "
                f'the table as "{position.pipeline}", or the table was restored to another version. Stop the other '
                "job, or start again. Nothing of this batch was added."
            )
    return {**stored, **{place: each.end for place, each in whole.items()}}


def check_topics(position: Position, topic_ids: Mapping[str, str], location: str) -> None:
    """Raise TopicReplaced if a topic has another id than the one whose records are in the table."""
    for topic, now in topic_ids.items():
        before = position.topic_ids.get(topic)
        if before is not None and before != now:
            raise TopicReplaced(
                f'the topic "{topic}" was deleted and created again (id {before} is in {location}, now it is {now}): '
                "its offsets mean other records. Load it into another table."
            )


def check_owner(owner: str | None, pipeline: str, location: str) -> None:
    """Raise ForeignTable unless the table is this pipeline's."""
    if owner is None:
        raise ForeignTable(
            f"{location} holds data that no pipeline has loaded: it stores no offsets, so it is not known which "
            "records are in it. Choose another place for the table. The data stays as it is."
        )
    if owner != pipeline:
        raise ForeignTable(f'{location} belongs to the pipeline "{owner}", not to "{pipeline}".').with_remedy(
            Remedy(RemedyKind.USE_PIPELINE_NAME, owner)
        )
