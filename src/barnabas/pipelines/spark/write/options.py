"""What a writing job asked for: the options of Spark's own Kafka sink, and `deliveryGuarantee`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark.client_properties import against_idempotence
from barnabas.pipelines.spark.options import GivenOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final = ("topic", "deliveryGuarantee")
WITHOUT_EFFECT: Final = ("includeHeaders",)
"""Headers are written where there is a column of that name."""
AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Everything that decides where rows go, and how surely."""

    client: Mapping[str, str]
    """Kafka's client properties, `bootstrap.servers` among them."""
    topic: str | None
    """Where all rows go; without it a column says so."""
    exactly_once: bool
    checkpoint: str | None = None
    """Where a stream keeps its checkpoint, if an option says so."""


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a sink. Raises InvalidOption."""
    options = GivenOptions.of(given, KNOWN, WITHOUT_EFFECT)
    guarantee = options.one_of("deliveryGuarantee", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE)
    client = options.client()
    if guarantee == EXACTLY_ONCE and (wrong := against_idempotence(client)):
        raise InvalidOption(
            f"option kafka.{wrong[0]} is {client[wrong[0]]!r}, with which nothing is written exactly once: leave it out"
        )
    return SinkOptions(
        client=client,
        topic=options.text("topic") or None,
        exactly_once=guarantee == EXACTLY_ONCE,
        checkpoint=options.text("checkpointLocation"),
    )
