"""Long requests and long answers, served a part at a time, between other requests.

Twenty thousand topics take a fifth of a second to be told, and the event loop has other clients. Whatever goes over all
that a request names, or over all that a broker has, does so with `LongAnswers.each`: some items in each turn of the
event loop. Only one long answer has its part made in a turn, however many are under way.

What is told in parts has to be true all the same. An image never changes, and what is copied from a coordinator is
copied at once. Where neither is so, each item (a group, a producer, a partition) is told as it is at its moment, which
is what Kafka promises of such lists.

Metadata that names all topics is packed once, and kept for the next who asks, until there is another image.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from barnabas.protocol.messages.metadata import PackedTopics


class HasPartitions(Protocol):
    """A topic of a request, which is a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def partitions(self) -> tuple[Any, ...]:
        """What is asked for each of its partitions."""
        ...


Named = TypeVar("Named", bound=HasPartitions)
R = TypeVar("R")
T = TypeVar("T")

PART: Final = 200
"""Items in a part: some milliseconds of work. One request may name as many without being a long one."""
PORTION: Final = 200
"""Topics, or resources, that the controller decides about at once, if a request names more."""
DECISION: Final = 1000
"""Partitions whose offsets a coordinator decides about at once, if a request names more."""
MOST_KEPT: Final = 8
"""Answers that are kept: of each version that clients speak, on each listener."""


class LongAnswers:
    """Makes them, and keeps some."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        """Held by the one long answer that has a part made in the next turn of the event loop."""
        self._packing = asyncio.Lock()
        """Held while all topics are packed: who asks for the same meanwhile gets what comes of it."""
        self._image: object = None
        self._kept: dict[Hashable, PackedTopics] = {}
        """Of the image."""

    async def each(self, items: Iterable[T], do: Callable[[T], R], weigh: Callable[[T], int] | None = None) -> list[R]:
        """What `do` gives for each item; `weigh` tells how many items one stands for, or how much more work it is."""
        results: list[R] = []
        left = iter(items)
        is_done = _do_some(left, do, weigh, results)  # a short one does not wait for those that are long
        while not is_done:
            async with self._turn:
                await asyncio.sleep(0)
                is_done = _do_some(left, do, weigh, results)
        return results

    async def pack(
        self, topics: Sequence[T], pack: Callable[[Sequence[T]], bytes], weigh: Callable[[T], int]
    ) -> PackedTopics:
        """Topics as `pack` packs some of them; `weigh` tells how many partitions a topic has."""
        from barnabas.protocol.messages.metadata import PackedTopics  # here: the first Metadata request loads it

        parts = await self.each(_parts(topics, weigh), pack, lambda _: PART)
        return PackedTopics(len(topics), b"".join(parts))

    async def pack_all(
        self,
        image: object,
        kind: Hashable,
        topics: Sequence[T],
        pack: Callable[[Sequence[T]], bytes],
        weigh: Callable[[T], int],
    ) -> PackedTopics:
        """The same for all topics of an image; answers of one `kind` are the same."""
        async with self._packing:
            if image is not self._image:
                self._image = image
                self._kept.clear()
            if kind not in self._kept:
                packed = await self.pack(topics, pack, weigh)
                while len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[kind] = packed
            return self._kept[kind]


def portions(items: Sequence[T]) -> list[Sequence[T]]:
    """What one request wants from the controller, in decisions that do not take long; each item stands for itself."""
    return [items[start : start + PORTION] for start in range(0, len(items), PORTION)]


def divided(topics: Iterable[Named]) -> Iterator[tuple[Named, ...]]:
    """Topics with their partitions, in parts that a coordinator decides about at once."""
    part: list[Named] = []
    room = DECISION
    for topic in topics:
        partitions = topic.partitions
        while len(partitions) > room:
            part.append(replace(topic, partitions=partitions[:room]))
            yield tuple(part)
            part, partitions, room = [], partitions[room:], DECISION
        part.append(topic if partitions is topic.partitions else replace(topic, partitions=partitions))
        room -= len(partitions)
    if part:
        yield tuple(part)


def merged(topics: Iterable[Named], key: Callable[[Named], object]) -> tuple[Named, ...]:
    """Each topic once, with all its partitions. A request may name one topic in every element."""
    first: dict[object, Named] = {}
    partitions: dict[object, list[Any]] = {}
    for topic in topics:
        first.setdefault(key(topic), topic)
        partitions.setdefault(key(topic), []).extend(topic.partitions)
    return tuple(replace(topic, partitions=tuple(partitions[found])) for found, topic in first.items())


def _do_some(left: Iterator[T], do: Callable[[T], R], weigh: Callable[[T], int] | None, results: list[R]) -> bool:
    """Do one part; whether that was the last."""
    weight = 0
    for item in left:
        results.append(do(item))
        weight += 1 if weigh is None else 1 + weigh(item)
        if weight >= PART:
            return False
    return True


def _parts(topics: Iterable[T], weigh: Callable[[T], int]) -> Iterator[list[T]]:
    """Topics, some at a time."""
    part: list[T] = []
    weight = 0
    for topic in topics:
        part.append(topic)
        weight += 1 + weigh(topic)
        if weight >= PART:
            yield part
            part, weight = [], 0
    if part:
        yield part
