"""Answers that name so many topics that they are made a part at a time, between other requests.

Twenty thousand topics take a fifth of a second to be told, and the event loop has other clients. Such answers are made
one after the other, a part in each turn, from one image, which never changes. What names all topics is kept for the
next who asks, until there is another image.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.protocol.metadata import PackedTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")

PART: Final = 200
"""Topics in a part, or partitions: some milliseconds of work."""
MOST_KEPT: Final = 8
"""Answers that are kept: of each version that clients speak, on each listener."""


class LongAnswers:
    """Makes them, and keeps some."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._image: object = None
        self._kept: dict[Hashable, PackedTopics] = {}
        """Of the image."""

    async def pack(
        self, topics: Sequence[T], pack: Callable[[Sequence[T]], bytes], weigh: Callable[[T], int]
    ) -> PackedTopics:
        """Topics as `pack` packs some of them; `weigh` tells how many partitions a topic has."""
        async with self._turn:
            return await _pack(topics, pack, weigh)

    async def pack_all(
        self,
        image: object,
        kind: Hashable,
        topics: Sequence[T],
        pack: Callable[[Sequence[T]], bytes],
        weigh: Callable[[T], int],
    ) -> PackedTopics:
        """The same for all topics of an image; answers of one `kind` are the same."""
        async with self._turn:
            if image is not self._image:
                self._image = image
                self._kept.clear()
            if kind not in self._kept:
                packed = await _pack(topics, pack, weigh)
                while len(self._kept) >= MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[kind] = packed
            return self._kept[kind]


async def _pack(topics: Sequence[T], pack: Callable[[Sequence[T]], bytes], weigh: Callable[[T], int]) -> PackedTopics:
    pieces: list[bytes] = []
    part: list[T] = []
    weight = 0
    for topic in topics:
        part.append(topic)
        weight += 1 + weigh(topic)
        if weight >= PART:
            pieces.append(pack(part))
            part, weight = [], 0
            await asyncio.sleep(0)
    if part:
        pieces.append(pack(part))
    return PackedTopics(len(topics), b"".join(pieces))
