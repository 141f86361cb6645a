"""A stream of requests from one seed: valid, crooked and mutated ones of all APIs and versions."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.fuzz.mutations import mutated
from tests.fuzz.schemas import Encoder, Target, header, targets

if TYPE_CHECKING:
    from collections.abc import Iterator

CROOKED: Final = (0.0, 0.02, 0.1, 0.3)
FRESH: Final = 0.2
"""The share of requests that are newly made, and cost most of the time; the others are earlier ones, mutated again."""


class Frame(NamedTuple):
    """A request without its length."""

    target: Target
    data: bytes


def requests(seed: int, wild: float = 0.8) -> Iterator[Frame]:
    """Requests without end, a share of them `wild`, the others valid; the same seed gives the same."""
    random = Random(seed)
    chance, choose, everything = random.random, random.choice, targets()
    valid: dict[Target, bytes] = {}
    bodies: dict[Target, bytes] = {}
    correlation_id = 0
    while True:
        correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        target = choose(everything)
        fresh = chance() < FRESH
        if chance() >= wild:
            if fresh or target not in valid:
                valid[target] = bodies[target] = Encoder(random).encode(target.message)
            yield Frame(target, header(target, correlation_id, random, 0.0) + valid[target])
            continue
        crooked = choose(CROOKED)
        if fresh or target not in bodies:
            bodies[target] = Encoder(random, crooked).encode(target.message)
        data = header(target, correlation_id, random, crooked / 2) + bodies[target]
        if chance() < 0.6:
            data = mutated(data, random)
        yield Frame(target, data)
