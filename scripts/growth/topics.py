"""Topics, made a few hundred at a time, as an operator's program would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.wire import Connection

CREATE_TOPICS: Final = 19
MINUTES: Final = 600_000
"""Milliseconds that a broker may take for a request."""


def create(connection: Connection, names: Sequence[str], partitions: int, replicas: int, at_once: int) -> None:
    """Make topics with so many partitions and replicas each."""
    for first in range(0, len(names), at_once):
        wanted = [
            {"name": each, "num_partitions": partitions, "replication_factor": replicas}
            for each in names[first : first + at_once]
        ]
        answer = connection.ask(CREATE_TOPICS, 7, {"topics": wanted, "timeout": MINUTES})
        refused = [each for each in answer.topics if each.error_code]
        if refused:
            raise RuntimeError(f"{len(refused)} topics were refused; the first: {refused[0]}")
