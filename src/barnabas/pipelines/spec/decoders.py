"""The decoder of a topic source, as the check tries it and the run uses it. Reads the file of the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.decode.tombstones import MarkedTombstones

if TYPE_CHECKING:
    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.spec.model import Pipeline, TopicSource


def decoder_of(source: TopicSource, pipeline: Pipeline) -> Decoder:
    """The decoder of a source whose values may not fit. Raises InvalidOption, SchemaRefused."""
    schema = source.schema
    if schema is not None and not (source.decode == "json" and " " in schema.strip()):
        schema = pipeline.located(schema)
    decoder = choose_decoder(source.decode, schema, source.framing)
    return MarkedTombstones(decoder) if source.mark_tombstones else decoder
