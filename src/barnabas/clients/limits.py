"""How large numbers can be that brokers and librdkafka are asked for.

librdkafka refuses what is beyond with errors of Python's own, which name neither the number nor the range.
"""

from __future__ import annotations

from typing import Final

MOST_PARTITIONS: Final = 100_000
"""librdkafka asks for no topic that is larger."""
MOST_REPLICAS: Final = 10_000
"""Nor for one with more copies of each partition."""


def within(what: str, number: int, least: int, most: int) -> int:
    """A number that is in its range; raises InvalidClientConfig for another, with the range."""
    if least <= number <= most:
        return number
    from barnabas.clients.errors import InvalidClientConfig

    raise InvalidClientConfig(f"{what}: {number} is not from {least} to {most}")
