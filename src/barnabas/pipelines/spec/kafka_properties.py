"""Which properties of Kafka's clients a pipeline may have. Pure.

Some are decided by sources and sinks, as they are where a job uses the connector itself. What to set instead is
another thing here: a key of the pipeline's file, and no option of the connector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark import client_properties

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GROUP: Final = "progress is committed by each sink, to a group of its own, PIPELINE.SINK"
DECIDED: Final = {
    **client_properties.DECIDED,
    "auto.offset.reset": "`start` of a source says where reading begins",
    "enable.auto.commit": _GROUP,
    "enable.auto.offset.store": _GROUP,
    "key.deserializer": "keys are bytes; cast them in a step",
    "value.deserializer": "`decode` of a source says what values are",
    "key.serializer": "keys are bytes or text; cast them in a step",
    "value.serializer": "`encode` of a sink says what values become",
    "transactional.id": "a sink has one for each task",
}
"""What may not be set, and why."""


def property_problems(given: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with the properties of [kafka]."""
    for name in given:
        if name in DECIDED:
            yield f'"{name}" cannot be set in [kafka]: {DECIDED[name]}'
    try:
        client_properties.client_properties({name: given[name] for name in given if name not in DECIDED})
    except InvalidOption as error:
        yield str(error)
