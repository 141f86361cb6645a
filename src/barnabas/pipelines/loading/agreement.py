"""How tasks that inferred the schema of their records side by side come to one schema. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.decode.evolution import merge_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from barnabas.pipelines.loading.task import Done
    from barnabas.pipelines.offsets import OffsetRange

    Again = Callable[[Sequence[OffsetRange], pa.Schema], Sequence[Done]]


def agree(table: pa.Schema, results: Sequence[Done], again: Again) -> tuple[list[Done], pa.Schema]:
    """Results whose rows all have the schema that is given with them; tasks that inferred another one run again.

    Whoever decodes again may find more: an object that was dead beside a number fits once the column is a STRUCT, and
    brings fields that nobody has seen. So the schemas are merged until all fit. What was agreed on stays, and there are
    only so many fields, so that ends.
    """
    found, agreed = list(results), table
    while True:
        merged = merge_schemas(agreed, [done.schema for done in found])
        agreed = merged.schema
        if not merged.misfits:
            return found, agreed
        redone = again([found[index].range for index in merged.misfits], agreed)
        for index, done in zip(merged.misfits, redone, strict=True):
            found[index] = done
