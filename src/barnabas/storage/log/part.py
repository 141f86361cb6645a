"""What the parts of a log have in common: they refer to their log, and do not hold it.

A log holds its parts. If they held it as well, a log whose partition was deleted would be garbage in a cycle, which
only a collection frees; and a broker's collector looks no more at what has outlived one (`broker/collector`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import ref

from barnabas.model.errors import UnknownTopicOrPartition

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log


class LogPart:
    """A part of one log. Whoever calls it holds the log, or is told that the partition is gone."""

    __slots__ = ("_ref",)

    def __init__(self, log: Log) -> None:
        self._ref = ref(log)

    @property
    def _log(self) -> Log:
        """The log; UnknownTopicOrPartition when it was deleted and let go. A method that runs long asks once."""
        log = self._ref()
        if log is None:
            raise UnknownTopicOrPartition("the partition was deleted")
        return log
