"""What can go wrong between topics and Spark.

PipelineError
├── InvalidOption      an option that means nothing, or not this value; the nearest known name is suggested
│   └── NoPosition     positions are given by partition, and one has none: it is forgotten, or has just come
├── TopicMissing       a topic or partition that is to be read or written is not there
├── OffsetOutOfRange   an offset was asked for that the partition never had
├── DataLost           records that were still to be read are gone: removed by retention, or the topic was created again
├── ReadStalled        a partition gave nothing for too long, although more was promised
├── SinkRefused        rows that cannot be written: a column is missing, has another type, or names no topic
├── MarkerRefused      an exactly-once sink cannot prove what it wrote before, so it writes nothing
├── ReplayChecked      an epoch of an exactly-once sink was written in part; the next start writes the rest
├── NotWritten         records did not arrive at a broker
└── SparkNotStarted    Spark's Java process ended before it could be spoken to, or refused its settings

Every message says what happened, to what, and what to do about it. Spark shows it as the last line of a Python
traceback, so it has to stand on its own.
"""

from __future__ import annotations

from barnabas.model.base_error import BarnabasError

__all__ = [
    "DataLost",
    "InvalidOption",
    "MarkerRefused",
    "NoPosition",
    "NotWritten",
    "OffsetOutOfRange",
    "PipelineError",
    "ReadStalled",
    "ReplayChecked",
    "SinkRefused",
    "SparkNotStarted",
    "TopicMissing",
]


class PipelineError(BarnabasError):
    """Anything that goes wrong between topics and Spark."""


class InvalidOption(PipelineError):
    """An option of the source or the sink is not known, is missing, or has a value that means nothing."""


class NoPosition(InvalidOption):
    """Positions are given by partition, and one has none: it was forgotten, or was made since."""


class TopicMissing(PipelineError):
    """A topic or partition is not there."""


class OffsetOutOfRange(PipelineError):
    """An offset that a partition never had was asked for."""


class DataLost(PipelineError):
    """Records that were still to be read are gone."""


class ReadStalled(PipelineError):
    """A partition gave nothing for too long, although more was promised."""


class SinkRefused(PipelineError):
    """Rows that cannot be written to a topic."""


class MarkerRefused(PipelineError):
    """What an exactly-once sink wrote before is not known for certain."""


class ReplayChecked(PipelineError):
    """An epoch that was written in part was compared with what is there; the query has to be started again."""


class NotWritten(PipelineError):
    """Records did not arrive."""


class SparkNotStarted(PipelineError):
    """Spark's Java process ended before it could be spoken to, or refused the settings that it was given."""

    @classmethod
    def because(cls, reason: str) -> SparkNotStarted:
        """The error, with what Java said and what to look at."""
        return cls(
            f"Spark could not start: {reason.rstrip('.')}. Is Java 17 or newer on the PATH, or in JAVA_HOME, and is "
            "the master one that Spark knows?"
        )

    @classmethod
    def refused(cls, reason: str) -> SparkNotStarted:
        """The error where Java is there and Spark refuses to start in it."""
        return cls(f"Spark could not start: {reason}. Check the master and the settings that it was given.")
