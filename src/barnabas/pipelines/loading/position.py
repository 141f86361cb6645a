"""Where a load stands before a round: the offsets that the table holds, where reading begins, and where it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.pipelines.loading.dead_letters import check_letters
from barnabas.pipelines.loading.plan import check_position
from barnabas.pipelines.spark.read.positions import offsets_at
from barnabas.pipelines.spark.read.selection import Selection
from barnabas.pipelines.tables.errors import ForeignTable, TopicReplaced
from barnabas.pipelines.tables.rules import check_owner, check_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.loading.settings import LoadSettings
    from barnabas.pipelines.spark.cluster import ClusterView
    from barnabas.pipelines.spark.read.offsets import Offsets
    from barnabas.pipelines.tables.contract import Position as TablePosition
    from barnabas.pipelines.tables.notes import Note
    from barnabas.pipelines.tables.table import Table


class LoadPosition(NamedTuple):
    """Where a load stands before a round."""

    table: TablePosition | None
    """None while there is no table."""
    topic_ids: Mapping[str, str]
    start: Mapping[TopicPartition, int]
    """Where reading begins."""
    end: Mapping[TopicPartition, int]
    """Where the partitions end."""

    @property
    def loaded(self) -> Mapping[TopicPartition, int]:
        """The offsets that the table holds."""
        return {} if self.table is None else self.table.offsets

    @property
    def version(self) -> int:
        """The number of the table's last commit."""
        return 0 if self.table is None else self.table.version

    def end_before(self, limit: Offsets | None) -> dict[TopicPartition, int]:
        """Where this round's partitions end, if not beyond a limit; a partition that the limit lacks is left out."""
        if limit is None:
            return dict(self.end)
        return {place: min(offset, limit.get(place, self.start[place])) for place, offset in self.end.items()}


class PositionReader:
    """Reads the position of a load from its tables and its topic, and checks that they fit together."""

    def __init__(self, settings: LoadSettings, view: ClusterView, table: Table, dead: Table) -> None:
        self._settings = settings
        self._view = view
        self._table = table
        self._dead = dead

    def read(self) -> LoadPosition:
        """The position now. Raises TopicReplaced, DataLost, ForeignTable and others."""
        topic_ids = self._topic_ids()
        partitions = self._view.partitions(self._selection)
        # Before the table's position: else dead letters that another job delivers meanwhile could be ahead of it.
        letters_note = self._dead.last_note()
        position = self._own_position(self._table, self._table.last_note())
        letters = self._own_position(self._dead, letters_note)
        first, last = self._view.earliest(partitions), self._view.latest(partitions)
        if position is None:
            check_letters(None, letters, topic_ids, self._dead.location)
            return LoadPosition(None, topic_ids, offsets_at(self._settings.starting, partitions, self._view), last)
        check_topics(position, topic_ids, self._table.location)
        check_position(position.offsets, first, last, fail_on_data_loss=self._settings.fail_on_data_loss)
        check_letters(position, letters, topic_ids, self._dead.location)
        return LoadPosition(position, topic_ids, {**first, **position.offsets}, last)

    def topic_ends(self) -> dict[TopicPartition, int]:
        """Where the topic's partitions end now."""
        return self._view.latest(self._view.partitions(self._selection))

    def check_same_topic(self, position: LoadPosition) -> None:
        """Raise TopicReplaced if the topic was deleted and created again since this position was read."""
        if self._topic_ids() != position.topic_ids:
            raise TopicReplaced.meanwhile(self._settings.topic, self._table.location)

    def _own_position(self, table: Table, note: Note | None) -> TablePosition | None:
        """The position in a table. Raises ForeignTable; for another topic first: another pipeline follows from it."""
        if note is None:
            return None
        if note.topic_ids and set(note.topic_ids) != {self._settings.topic}:
            raise ForeignTable(
                f"{table.location} holds the topic {', '.join(note.topic_ids)}, not {self._settings.topic}: "
                "load into another table."
            )
        check_owner(note.pipeline, self._settings.pipeline, table.location)
        return note.position

    def _topic_ids(self) -> dict[str, str]:
        return self._view.topic_ids([self._settings.topic])

    @property
    def _selection(self) -> Selection:
        return Selection(topics=(self._settings.topic,))
