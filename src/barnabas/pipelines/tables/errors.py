"""Why a table refuses.

PipelineError
└── TableError
    ├── ForeignTable         the table belongs to another pipeline, or to nobody we know
    ├── TopicReplaced        the topic was deleted and created again, so its offsets mean other records
    ├── Fenced               another job has moved the table on
    ├── SchemaConflict       a column has another type than the table's, or its partitioning is another
    ├── FilesGone            files that were written for a commit are not there any more
    ├── Overtaken            others change the table again and again, before each try of something that can wait
    └── UnusableTarget       there can be no table of this format at this place
        └── TableUnreachable its files, or its catalog, do not answer
"""

from __future__ import annotations

from barnabas.pipelines.errors import PipelineError

__all__ = [
    "Fenced",
    "FilesGone",
    "ForeignTable",
    "Overtaken",
    "SchemaConflict",
    "TableError",
    "TableUnreachable",
    "TopicReplaced",
    "UnusableTarget",
]


class TableError(PipelineError):
    """A table refuses; nothing was written to it."""


class ForeignTable(TableError):
    """The table is not this pipeline's."""


class TopicReplaced(TableError):
    """The topic is another one than that whose records are in the table."""

    @classmethod
    def meanwhile(cls, topic: str, location: str) -> TopicReplaced:
        """The error of a job that finds another topic than the one that it began to read."""
        return cls(
            f'the topic "{topic}" was deleted and created again while it was read: load the new one into another '
            f"table. Nothing of this batch was added to {location}."
        )


class Fenced(TableError):
    """Somebody else writes to this table."""

    @classmethod
    def by_twin(cls, location: str, pipeline: str) -> Fenced:
        """The error of a job that finds its own records in the table, which it had not when they were read."""
        return cls(
            f'another job has just loaded the same records into {location} as "{pipeline}": stop one of them. Nothing '
            "of this batch was added."
        )

    @classmethod
    def by_other(cls, location: str, pipeline: str) -> Fenced:
        """The error of a job that finds the table other than it was when records were read for it."""
        return cls(
            f'{location} was changed while records were read for it: another job writes to it as "{pipeline}", or it '
            "was removed. Stop the other one, and start again; nothing of this batch was added."
        )


class SchemaConflict(TableError):
    """Rows do not fit into the table."""


class FilesGone(TableError):
    """What a commit was to add has been removed."""


class Overtaken(TableError):
    """There was no time between the commits of others; it harms nobody to try again."""


class UnusableTarget(TableError):
    """No table can be here."""


class TableUnreachable(UnusableTarget):
    """The place of a table does not answer; it may do so later."""
