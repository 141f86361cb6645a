"""What the names of directories in a log directory say: which partition one is, or was.

A name is a partition's only if a topic can be called so. Anything else, a copy that somebody made by hand for one, is
left alone: checkpoints and the metadata tree cannot hold it, and would be damaged, or fail, for all the others.
"""

from __future__ import annotations

import re
import uuid
from typing import Final, NamedTuple

from barnabas.model.ids import TopicPartition

_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]+)-(0|[1-9][0-9]{0,9})")
_MOVED: Final = re.compile(rf"{_PARTITION.pattern}\.[0-9a-f]{{32}}-(delete|future|stray)")
_NO_TOPICS: Final = (".", "..", "__cluster_metadata")
_MAX_NAME: Final = 255


class Moved(NamedTuple):
    """A directory that is no partition's any more."""

    topic: str
    """As the directory's name has it: of a long name, the beginning."""
    partition: int
    suffix: str
    """What it is: delete, future or stray."""


def partition_of(name: str) -> TopicPartition | None:
    """Whose directory has this name; None if it is no partition's."""
    match = _PARTITION.fullmatch(name)
    return None if match is None or match[1] in _NO_TOPICS else TopicPartition(match[1], int(match[2]))


def moved_from(name: str) -> Moved | None:
    """What a directory of this name was; None if it was not moved."""
    match = _MOVED.fullmatch(name)
    return None if match is None or match[1] in _NO_TOPICS else Moved(match[1], int(match[2]), match[3])


def moved_name(tp: TopicPartition, suffix: str) -> str:
    """A name that no directory has, for a partition's directory that is none any more."""
    ending = f"-{tp.partition}.{uuid.uuid4().hex}-{suffix}"
    return f"{tp.topic[: _MAX_NAME - len(ending)]}{ending}"
