"""Whether Spark agrees that rows of a sink come from one record each: its own plan has the last word.

Before Spark starts that is guessed by the words of SQL and by what functions promise (`spec.flows`). A sink that is
kept by offsets has no checkpoint, so state that Spark kept for it all the same would be gone with every run: windows
would be torn, and duplicates come back. So such a plan is refused before it runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.spec.places import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from barnabas.pipelines.spec.flows import Flow
    from barnabas.pipelines.spec.model import TableSink

_REMEMBERING: Final = re.compile(
    "Aggregate|Distinct|Deduplicate.*|GlobalLimit|Intersect.*|Except.*|.*GroupsWithState|.*GroupsInPandasWithState|"
    "TransformWithState.*"
)
"""Names of the nodes of a plan for which a stream has state."""


def check_stateless(frame: DataFrame, sink: TableSink, flow: Flow) -> None:
    """Raise SpecError if a sink is kept by offsets and Spark has to remember rows for it."""
    reason = _remembers(frame, streams=len(flow.topics)) if flow.by_offsets else None
    if reason is not None:
        raise SpecError(
            [
                Problem(
                    sink.place.at("from"),
                    f'sink "{sink.name}" was taken for one whose rows come from one record each, and Spark {reason}. '
                    "A function that does so must not promise to be stateless; SQL that does so can be in such a "
                    'function: `return orders.sparkSession.sql("...")`',
                )
            ]
        )


def _remembers(frame: DataFrame, streams: int) -> str | None:
    """What a plan does that needs memory of a stream, as the end of a sentence."""
    nodes = list(_streaming(frame._jdf.queryExecution().analyzed()))
    for node in nodes:
        name = str(node.nodeName())
        if _REMEMBERING.fullmatch(name):
            return f"keeps state for it ({name})"
        if name == "Join" and node.left().isStreaming() and node.right().isStreaming():
            return "keeps state for it (a join of streams)"
    read = sum(1 for node in nodes if str(node.nodeName()).startswith("StreamingRelation"))
    return f"reads {read} streams for it, of {streams}" if read > streams else None


def _streaming(node: Any) -> Iterator[Any]:
    """The nodes of a plan through which a stream flows; Spark takes no streams in subqueries of expressions."""
    if node.isStreaming():
        yield node
        children = node.children()
        for index in range(children.size()):
            yield from _streaming(children.apply(index))
