"""A table keeps to the decoder that made it: with another one its rows would have other columns, and half of them null.

Above all a forgotten decoder, which means bytes, is found out before anything is written. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.decode.contract import METADATA
from barnabas.pipelines.tables.errors import SchemaConflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.decode.contract import Decoder


def check_decoder(kept: str | None, columns: pa.Schema, decoder: Decoder, location: str) -> None:
    """Raise SchemaConflict unless a decoder is of the kind that a table's note names.

    An older note names none: then the columns tell.
    """
    if kept is None:
        values = [field for field in columns if field.name not in METADATA.names]
        if not values or _could_have_made(decoder, values):
            return
        found = f"has the columns {', '.join(field.name for field in values)}"
    elif kept == decoder.kind:
        return
    else:
        found = f"was loaded with the decoder {kept}"
    raise SchemaConflict(f"{location} {found}, and this load has the decoder {decoder.kind}.").with_remedy(
        Remedy(RemedyKind.USE_DECODER, kept or "")
    )


def _could_have_made(decoder: Decoder, values: Sequence[pa.Field]) -> bool:
    if decoder.evolves:
        return not any(pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type) for field in values)
    return any(field.name in decoder.schema.names for field in values)
