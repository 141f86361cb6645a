"""How tasks that inferred the schema of their records side by side come to one schema. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.decode.evolution import merge_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from barnabas.pipelines.loading.tasks.task import TaskResult
    from barnabas.pipelines.spark.read.offsets import Piece

    Again = Callable[[Sequence[Piece], pa.Schema], Sequence[TaskResult]]


def agree(table: pa.Schema, results: Sequence[TaskResult], again: Again) -> tuple[list[TaskResult], pa.Schema]:
    """Results whose rows all have the schema that is given with them; tasks that inferred another one run again.

    So do those whose rows had no place in the table's partitions, as `again` has to see to: it raises an error if there
    is none by the schema that was agreed on.

    Whoever decodes again may find more: an object that was dead beside a number fits once the column is a STRUCT, and
    brings fields that nobody has seen. So the schemas are merged until all fit. What was agreed on stays, and there are
    only so many fields, so that ends.
    """
    found, agreed = list(results), table
    while True:
        merged = merge_schemas(agreed, [result.schema for result in found], [result.inferred for result in found])
        agreed = merged.schema
        misfits = [index for index, result in enumerate(found) if index in merged.misfits or not result.has_place]
        if not misfits:
            return found, agreed
        redone = again([found[index].piece for index in misfits], agreed)
        for index, result in zip(misfits, redone, strict=True):
            found[index] = result
