"""The decoder of a topic source, as the check tries it and the run uses it. Reads the file of the schema."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.decode.choosing import choose_decoder

if TYPE_CHECKING:
    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.spec.model import Pipeline, TopicSource


def decoder_of(source: TopicSource, pipeline: Pipeline) -> Decoder:
    """The decoder of a source whose schema is in a file. Raises InvalidOption, SchemaRefused."""
    assert source.schema is not None, "the check has seen to it"
    return choose_decoder(source.decode, pipeline.located(source.schema), source.framing)
