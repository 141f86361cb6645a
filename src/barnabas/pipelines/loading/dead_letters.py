"""Dead letters on their way from a table's commit, which promises them, to the table beside, which gets them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.pipelines.decode.contract import DEAD_SCHEMA
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.contract import TableOutbox
from barnabas.pipelines.tables.errors import FilesGone, ForeignTable
from barnabas.pipelines.tables.opening import open_table, table_of_dead_letters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.pipelines.tables.contract import DataFile, Position
    from barnabas.pipelines.tables.table import Table

log = logging.getLogger("barnabas.pipelines")


def check_letters(table: Position | None, dead: Position | None, topic_ids: Mapping[str, str], location: str) -> None:
    """Raise ForeignTable unless the dead letters that are at a location are the table's own.

    They came by commits of the table, so they are never ahead of it. Those of a table that was there before would be
    taken for delivered, or be there twice.
    """
    if dead is None:
        return
    if table is None:
        found = "the table is not there"
    elif any(topic_ids.get(topic, id) != id for topic, id in dead.topic_ids.items()):
        found = "the topic was deleted and created again since"
    elif ahead := [place for place, offset in dead.offsets.items() if offset > table.offsets.get(place, 0)]:
        found = f"they reach to offset {dead.offsets[ahead[0]]} of {ahead[0]}, and the table does not"
    else:
        return
    raise ForeignTable(
        f"{location} has dead letters of a table that was here before, or of a version that it was restored from "
        f"({found}): move it away, or remove it, and start again."
    )


def promise(dead: Table, pipeline: str, ranges: Sequence[OffsetRange], files: Sequence[DataFile]) -> TableOutbox | None:
    """What a commit of these ranges has to promise to the dead-letter table, if there are letters.

    That table moves past everything since its last letter, so that its ranges have no gaps.
    """
    if not files:
        return None
    position = dead.position(pipeline)
    before = {} if position is None else position.offsets
    return TableOutbox(
        [OffsetRange(*each.place, before.get(each.place, each.start), each.end) for each in ranges], files
    )


def deliver(promised: TableOutbox | None, dead: Table, pipeline: str, topic_ids: Mapping[str, str]) -> None:
    """Give the dead-letter table what the table's last commit promised it, unless it has it.

    A promise stays in the table until its next commit. So a dead-letter table that is not there any more, nor what was
    promised to it, was removed by somebody who has read it, and is begun anew with the next letter. Raises FilesGone.
    """
    if promised is None:
        return
    places = ", ".join(map(str, promised.ranges))
    destination = dead.destination()
    if dead.position(pipeline) is None and not any(destination.has(file.path) for file in promised.files):
        log.warning(
            "%s was removed, with the dead letters of %s. The next dead letter creates it again.", dead.location, places
        )
        return
    try:
        dead.commit(pipeline, promised.ranges, topic_ids, promised.files, DEAD_SCHEMA)
    except FilesGone as error:
        raise FilesGone(
            f"{error} It has dead letters of {places}. Restore it, or move all of {dead.location} away to go on "
            "without them."
        ) from error


def promised_files(location: str, format: str, catalog: str, options: Mapping[str, str] | None) -> frozenset[str]:
    """The files that a table was promised and that it may not have yet, if it is one of dead letters."""
    owner = table_of_dead_letters(location)
    if owner is None:
        return frozenset()
    with open_table(owner, format, catalog=catalog, options=options) as table:
        try:
            note = table.last_note()
        except ForeignTable:
            return frozenset()
    return frozenset() if note is None or note.outbox is None else frozenset(file.path for file in note.outbox.files)
