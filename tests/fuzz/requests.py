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
"""The share of requests that are newly made; the others are earlier ones, mutated again."""


class Frame(NamedTuple):
    """A request without its length."""

    target: Target
    data: bytes


def requests(seed: int, wild: float = 0.8) -> Iterator[Frame]:
    """Requests without end, a share of them `wild`, the others valid; the same seed gives the same."""
    random = Random(seed)
    bodies: dict[Target, bytes] = {}
    correlation_id = 0
    while True:
        correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        target = random.choice(targets())
        body = bodies.get(target)
        if random.random() >= wild:
            body = bodies[target] = Encoder(random).encode(target.message)
            yield Frame(target, header(target, correlation_id, random, 0.0) + body)
            continue
        crooked = random.choice(CROOKED)
        if body is None or random.random() < FRESH:
            body = bodies[target] = Encoder(random, crooked).encode(target.message)
        data = header(target, correlation_id, random, crooked / 2) + body
        if random.random() < 0.6:
            data = mutated(data, random)
        yield Frame(target, data)
