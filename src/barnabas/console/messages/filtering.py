"""Filters of records, in Google's Common Expression Language: `value.total > 100 && key.startsWith("eu-")`.

The language has no side effects, and its engine bounds how deep an expression is and how often its loops run. What it
does not bound is bounded here, for whoever writes a filter shares the console with others: a filter joins no texts and
lists, has nothing several times in what its loops make, goes over lists in records of bearable size only, and ends a
search with which a single record takes long.

A record of which a filter cannot be told (a field is not there, or is of another kind) does not fit, and is counted.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.library import load
from barnabas.console.messages.cel_tree import shape_of
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from barnabas.console.messages.decoding import ShownContent
    from barnabas.console.messages.fetching import LoggedRecord

VARIABLES: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "INT",
    "timestamp": "INT",
    "key": "DYN",
    "value": "DYN",
    "headers": "DYN",
    "size": "INT",
    "tombstone": "BOOL",
    "transactional": "BOOL",
}
"""With the names of their types in CEL."""
MOST_CHARACTERS: Final = 4_000
MOST_IN_LOOPS: Final = 8
"""Comparisons and calls in loops. The engine runs 10,000 rounds, and each may compare all that a record has."""
LARGE: Final = 64 << 10
"""Bytes of key and value, beyond which a filter that goes over lists does not look into a record."""
LONGEST_SECONDS: Final = 1.0
"""Processor time that one record may take: the engine lets nothing else in this process go on meanwhile."""


class InvalidFilter(ValueError):
    """An expression that means nothing."""


class FilterTooSlow(BarnabasError):
    """A filter that keeps all who use the console waiting."""


class RecordFilter:
    """One expression."""

    def __init__(self, expression: str, topic: str) -> None:
        """Raises InvalidFilter, LibraryMissing."""
        if len(expression) > MOST_CHARACTERS:
            raise InvalidFilter(f"A filter may have {MOST_CHARACTERS} characters.")
        cel = load("cel_expr_python.cel", "console")
        self._topic = topic
        self._bool = cel.Type.BOOL
        try:
            environment = cel.NewEnv(variables={name: getattr(cel.Type, kind) for name, kind in VARIABLES.items()})
            self._program = environment.compile(expression)
            shape = shape_of(self._program.serialize())
        except (RuntimeError, ValueError) as error:
            raise InvalidFilter(_words(error)) from error
        except TypeError as error:  # its binding says so of text that is not Unicode
            raise InvalidFilter("The filter is not Unicode.") from error
        if shape.may_grow:
            raise InvalidFilter(
                "A filter adds numbers and times, and joins no texts or lists. Where it cannot be seen what is added, "
                "write it as in double(value.net) + double(value.tax)."
            )
        if shape.may_multiply:
            raise InvalidFilter(
                "Inside map(), filter(), exists() and the like a filter makes no lists or maps of several values, and "
                "no map() but of fields. Write x == a || x == b for x in [a, b]."
            )
        if shape.slow_in_loops > MOST_IN_LOOPS:
            raise InvalidFilter(
                f"Inside map(), filter(), exists() and the like a filter compares or calls {MOST_IN_LOOPS} times at "
                "most."
            )
        self._has_loop = shape.has_loop
        self.names = frozenset(name for name in VARIABLES if name in expression)
        """What the expression may speak of; the others need not be made."""
        self.failed = 0
        self.failure: str | None = None
        """How many records could not be told, and what was wrong with the first."""

    def fits(self, record: LoggedRecord, key: ShownContent, value: ShownContent, headers: dict[str, Any]) -> bool:
        """Whether a record is wanted. Raises FilterTooSlow."""
        is_large = record.size > LARGE
        if not is_large and not self._has_loop:  # which takes no time that is worth a look
            return self._evaluate(record, key, value, headers)
        if is_large and self._has_loop:
            self._count(f"it has more than {LARGE >> 10} KB, which is too much to go over lists in it")
            return False
        began = time.thread_time()
        fits = self._evaluate(record, key, value, headers)
        took = time.thread_time() - began
        if took > LONGEST_SECONDS:
            raise FilterTooSlow(
                f"The filter is too slow: the record at offset {record.offset} of partition {record.partition} took "
                f"{took:.1f} s. Write it with fewer loops."
            )
        return fits

    def _evaluate(self, record: LoggedRecord, key: ShownContent, value: ShownContent, headers: dict[str, Any]) -> bool:
        try:
            result = self._program.eval(
                data={
                    "topic": self._topic,
                    "partition": record.partition,
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": key.value,
                    "value": value.value,
                    "headers": headers,
                    "size": record.size,
                    "tombstone": record.value is None,
                    "transactional": record.transaction is not None,
                }
            )
        except (RuntimeError, ValueError, TypeError, OverflowError, RecursionError) as error:
            self._count(_words(error))
            return False
        if result.type() == self._bool:
            return bool(result.value())
        self._count(str(result.value()) if "ERROR" in str(result.type()) else "the filter is not true or false")
        return False

    def _count(self, failure: str) -> None:
        self.failed += 1
        self.failure = self.failure or failure


def _words(error: Exception) -> str:
    """What CEL says, without its codes and its copy of the expression."""
    lines = [line for line in str(error).splitlines() if not line.startswith(" |")]
    return " ".join(lines).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
