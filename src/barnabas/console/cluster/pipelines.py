"""What pipelines and loads have reported lately: read from their topic, a thousand reports of each partition."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from barnabas.console.messages.fetching import Leaders, fetch
from barnabas.model.ids import TopicPartition
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin

LOOK_BACK: Final = 2_000
MOST_BATCHES: Final = 120
"""Reports of one query that are shown."""
MOST_VALUE: Final = 64 << 10
MOST_LETTERS: Final = 20
"""Dead letters of which it is shown where they are."""
MOST_QUERIES: Final = 200
MOST_LISTED: Final = 50
"""Topics or steps of a query that are drawn."""
MOST_TEXT: Final = 500
"""Characters of a name."""
MOST_FIGURE: Final = 1 << 63
Reports: TypeAlias = dict[str, list[dict[str, Any]]]
"""Reports by query, the oldest first."""
_NUMBERS: Final = ("batch", "seconds", "rows", "rows_per_second", "lag", "state_rows", "files", "dead_letters")
_TEXTS: Final = ("at", "kind", "pipeline", "group", "sink", "format", "watermark", "letters_table")
_LISTS: Final = ("topics", "steps")


def read_reports(cluster: ClusterAdmin, topic: str, partitions: Sequence[int]) -> Reports:
    """The last reports by query, the oldest first. What is no report is passed over, and what is too much."""
    found: Reports = {}
    for report in _reports(cluster, topic, partitions):
        if report["query"] in found or len(found) < MOST_QUERIES:
            found.setdefault(report["query"], []).append(report)
    return {
        query: sorted(reports, key=lambda each: each.get("at", ""))[-MOST_BATCHES:]
        for query, reports in sorted(found.items())
    }


def _reports(cluster: ClusterAdmin, topic: str, partitions: Sequence[int]) -> Iterator[dict[str, Any]]:
    places = [TopicPartition(topic, number) for number in partitions]
    starts, ends = cluster.offsets.at(places, EARLIEST), cluster.offsets.at(places, LATEST)
    leaders = Leaders(cluster, topic)
    for place, end in ends.items():
        at = max(starts.get(place, 0), end - LOOK_BACK)
        while at < end:
            stretch = fetch(cluster, leaders, topic, place.partition, at, end=end)
            if stretch.next_offset <= at:
                break
            at = stretch.next_offset
            yield from filter(None, (parse_report(record.value) for record in stretch.records))


def parse_report(value: bytes | None) -> dict[str, Any] | None:
    """A report, of which only what is known and of the right kind is kept; None for anything else."""
    if value is None or len(value) > MOST_VALUE:
        return None
    try:
        given = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not isinstance(given.get("query"), str):
        return None
    report: dict[str, Any] = {"query": given["query"][:MOST_TEXT]}
    for name in _NUMBERS:
        if _is_figure(given.get(name)):
            report[name] = given[name]
    for name in _TEXTS:
        if isinstance(given.get(name), str):
            report[name] = given[name][:MOST_TEXT]
    for name in _LISTS:
        if isinstance(given.get(name), list):
            report[name] = [each[:MOST_TEXT] for each in given[name] if isinstance(each, str)][:MOST_LISTED]
    if isinstance(given.get("letters"), list):
        report["letters"] = [each for each in given["letters"][:MOST_LETTERS] if _is_place(each)]
    return report


def _is_figure(given: object) -> bool:
    """Whether this is a number that figures can have: Python reads words for infinity, too, and numbers without end."""
    return isinstance(given, int | float) and not isinstance(given, bool) and -MOST_FIGURE < given < MOST_FIGURE


def _is_place(given: object) -> bool:
    """Whether this is a topic, a partition and an offset."""
    match given:
        case [str(topic), int(partition), int(offset)]:
            return len(topic) <= MOST_TEXT and 0 <= partition < 1 << 31 and 0 <= offset < MOST_FIGURE
    return False
