"""When a commit is the next one, when it is an old one, and when it is refused. Pure; the same for every format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.offsets import OffsetRange
from barnabas.pipelines.tables.errors import Fenced, ForeignTable, TopicReplaced

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.tables.contract import Position


def joined(ranges: Iterable[OffsetRange]) -> dict[TopicPartition, OffsetRange]:
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
    whole = joined(ranges)
    if position is None:
        return {place: each.end for place, each in whole.items()}
    check_topics(position, topic_ids, location)
    stored = position.offsets
    if all(place in stored and each.end <= stored[place] for place, each in whole.items()):
        return None
    for place, each in whole.items():
        if place in stored and each.start != stored[place]:
            raise Fenced(
                f"{location} stands at offset {stored[place]} of {place}, and a job brought {each}: another job writes "
                f'to this table as "{position.pipeline}", or the table was restored to another version. Stop the other '
                "one, or start again; nothing of this batch was added."
            )
    return {**stored, **{place: each.end for place, each in whole.items()}}


def check_topics(position: Position, topic_ids: Mapping[str, str], location: str) -> None:
    """Raise TopicReplaced if a topic has another id than the one whose records are in the table."""
    for topic, now in topic_ids.items():
        before = position.topic_ids.get(topic)
        if before is not None and before != now:
            raise TopicReplaced(
                f'the topic "{topic}" was deleted and made again (id {before} is in {location}, now it is {now}): its '
                "offsets mean other records. Load it into another table."
            )


def check_owner(owner: str | None, pipeline: str, location: str) -> None:
    """Raise ForeignTable unless the table is this pipeline's."""
    if owner is None:
        raise ForeignTable(
            f"{location} holds data that no pipeline has loaded: no offsets are stored with it, so nobody can say "
            "which records are in it. Choose another place for the table; what is there stays as it is."
        )
    if owner != pipeline:
        raise ForeignTable(
            f'{location} belongs to the pipeline "{owner}", not to "{pipeline}". Go on under that name '
            f"(--name {owner}), or choose another table."
        )
