"""Looks through a topic for records to show, some at a time, so that whoever waits sees how far it is and can stop it.

Backwards from the newest, a window of each partition at a time; or forwards from an offset or a time to where the topic
ended when the search began; or on and on, for those who follow a topic. A search ends when it has found enough, has
looked at enough, or has taken long enough, and says where it could go on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from barnabas.console.messages.decoding import NOTHING, ROW_CHARACTERS
from barnabas.console.messages.fetching import FETCH_BYTES, Leaders, fetch, fetch_new
from barnabas.model.ids import TopicPartition
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.console.messages.decoding import ContentDecoder
    from barnabas.console.messages.fetching import LoggedRecord, Stretch
    from barnabas.console.messages.filtering import RecordFilter

NEWEST: Final = "newest"
OLDEST: Final = "oldest"
OFFSET: Final = "offset"
TIME: Final = "time"
FOLLOW: Final = "follow"
WAYS: Final = (NEWEST, OLDEST, OFFSET, TIME, FOLLOW)
STEP_SECONDS: Final = 0.25
"""How long a search works before it says how far it is."""
FIRST_BYTES: Final = 128 << 10
"""Bytes of an answer where all records are shown: a few are enough."""
FEW: Final = 1_000
MOST_WINDOW: Final = 20_000
FOLLOW_SECONDS: Final = 0.25
MOST_FOLLOWED: Final = 200
"""Records that are shown of one look at a topic that is followed; the others are counted."""
MOST_BEHIND: Final = 50_000
"""Records of a partition that somebody who follows it may have yet to see."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is looked for."""

    topic: str
    partitions: tuple[int, ...]
    way: str
    at: int = 0
    """The offset or the time, for ways that begin at one."""
    positions: dict[int, int] = field(default_factory=dict)
    """Where an earlier search has stopped."""
    limit: int
    most_records: int
    most_seconds: float


class TopicScan:
    """One search; used by one thread at a time."""

    def __init__(
        self, cluster: ClusterAdmin, wanted: Wanted, decoder: ContentDecoder, filter: RecordFilter | None
    ) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._decoder = decoder
        self._filter = filter
        self._leaders = Leaders(cluster, wanted.topic)
        self._began = time.monotonic()
        self._reported_at = self._began
        self._scanned = self._bytes = self._found = self._skipped = 0

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What happens: `records`, `progress`, and at last `done`. Raises BarnabasError."""
        if self._wanted.way == FOLLOW:
            yield from self._follow()
        elif self._wanted.way == NEWEST:
            yield from self._backwards()
        else:
            yield from self._forwards()

    def _offsets(self, timestamp: int) -> dict[int, int]:
        places = [TopicPartition(self._wanted.topic, number) for number in self._wanted.partitions]
        found = self._cluster.offsets.at(places, timestamp)
        return {place.partition: offset for place, offset in found.items()}

    def _over(self) -> str | None:
        """Why the search ends, if it does."""
        if self._found >= self._wanted.limit:
            return "limit"
        if self._scanned >= self._wanted.most_records:
            return "records"
        if time.monotonic() - self._began >= self._wanted.most_seconds:
            return "time"
        return None

    def _backwards(self) -> Iterator[tuple[str, dict[str, Any]]]:
        starts = self._offsets(EARLIEST)
        tops = {number: self._wanted.positions.get(number, end) for number, end in self._offsets(LATEST).items()}
        window = max(10, min(self._wanted.limit, 5_000 // max(1, len(tops))))
        reason = _end(tops, starts) or self._over()
        while reason is None:
            matches: list[LoggedRecord] = []
            low = dict(tops)
            for number, top in tops.items():
                low[number] = max(starts[number], top - window)
                if low[number] < top:
                    yield from self._read(number, low[number], top, matches)
            matches, tops = self._newest(matches, low)
            yield from self._show(matches)
            window = min(MOST_WINDOW, window * 2)
            reason = _end(tops, starts) or self._over()
        yield self._end_event(reason, tops if reason != "end" else None)

    def _newest(self, matches: list[LoggedRecord], low: dict[int, int]) -> tuple[list[LoggedRecord], dict[int, int]]:
        """The newest records, as many as are wanted, and where each partition goes on: what is older is read again."""
        in_order = sorted(matches, key=_by_time, reverse=True)
        left = self._wanted.limit - self._found
        onward = dict(low)
        for record in in_order[left:]:
            onward[record.partition] = max(onward[record.partition], record.offset + 1)
        return in_order[:left], onward

    def _forwards(self) -> Iterator[tuple[str, dict[str, Any]]]:
        starts, ends = self._offsets(EARLIEST), self._offsets(LATEST)
        at = self._begin(starts, ends)
        reason = _end(ends, at) or self._over()
        while reason is None:
            behind = [number for number in at if at[number] < ends[number]]
            matches: list[LoggedRecord] = []
            room = max(1, -(-(self._wanted.limit - self._found) // len(behind)))
            for number in behind:
                stretch = self._fetch(number, at[number], ends[number])
                at[number] = self._take(stretch.records, stretch.next_offset, at[number], ends[number], room, matches)
                if event := self._progress():
                    yield event
                if self._over() or self._found + len(matches) >= self._wanted.limit:
                    break
            yield from self._show(sorted(matches, key=_by_time))
            reason = _end(ends, at) or self._over()
        yield self._end_event(reason, at if reason != "end" else None)

    def _take(
        self,
        records: list[LoggedRecord],
        next_offset: int,
        begin: int,
        end: int,
        room: int,
        matches: list[LoggedRecord],
    ) -> int:
        """Take what fits of a stretch, at most `room`; returns where to go on."""
        for record in records:
            if record.offset >= end:
                return end
            if self._fits(record):
                matches.append(record)
                room -= 1
                if not room:
                    return record.offset + 1
        return next_offset if next_offset > begin else end  # nothing came: what is left was compacted away

    def _begin(self, starts: dict[int, int], ends: dict[int, int]) -> dict[int, int]:
        """Where a search forwards begins in each partition, inside its log."""
        wanted = self._wanted
        if wanted.positions:
            found = {number: wanted.positions.get(number, starts[number]) for number in starts}
        elif wanted.way == TIME:
            found = {
                number: offset if offset >= 0 else ends[number] for number, offset in self._offsets(wanted.at).items()
            }
        elif wanted.way == OFFSET:
            found = dict.fromkeys(starts, wanted.at)
        else:
            found = dict(starts)
        return {number: min(max(offset, starts[number]), ends[number]) for number, offset in found.items()}

    def _follow(self) -> Iterator[tuple[str, dict[str, Any]]]:
        at = self._offsets(LATEST)
        yield "progress", self._figures()
        while True:
            matches: list[LoggedRecord] = []
            for number, stretch in fetch_new(self._cluster, self._leaders, self._wanted.topic, at).items():
                matches += filter(self._fits, stretch.records)
                at[number] = self._keep_up(stretch)
            matches.sort(key=_by_time)
            self._skipped += max(0, len(matches) - MOST_FOLLOWED)
            yield from self._show(matches[-MOST_FOLLOWED:])
            yield self._progress() or ("progress", self._figures())
            if not matches:
                time.sleep(FOLLOW_SECONDS)

    def _keep_up(self, stretch: Stretch) -> int:
        """Where to go on; who looks at records slower than they come passes some over rather than show old ones."""
        behind = stretch.end - stretch.next_offset
        if behind <= MOST_BEHIND:
            return stretch.next_offset
        self._skipped += behind
        return stretch.end

    def _read(
        self, number: int, begin: int, end: int, matches: list[LoggedRecord]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Read a window of a partition; tells of progress meanwhile."""
        at = begin
        while at < end:
            stretch = self._fetch(number, at, end)
            at = self._take(stretch.records, stretch.next_offset, at, end, MOST_WINDOW * 2, matches)
            if event := self._progress():
                yield event

    def _fetch(self, number: int, at: int, end: int) -> Stretch:
        few = self._filter is None or end - at < FEW
        size = FIRST_BYTES if few else FETCH_BYTES
        return fetch(self._cluster, self._leaders, self._wanted.topic, number, at, end=end, most_bytes=size)

    def _fits(self, record: LoggedRecord) -> bool:
        self._scanned += 1
        self._bytes += record.size
        if record.control is not None or record.damage is not None:
            return self._filter is None
        if self._filter is None:
            return True
        names, decoder = self._filter.names, self._decoder.of(record.headers)
        key = decoder.key(record.key, ROW_CHARACTERS) if "key" in names else NOTHING
        value = decoder.value(record.value, ROW_CHARACTERS) if "value" in names else NOTHING
        given = record.headers if "headers" in names else ()
        headers = {name: decoder.header(name, data, ROW_CHARACTERS).value for name, data in given}
        return self._filter.fits(record, key, value, headers)

    def _show(self, records: list[LoggedRecord]) -> Iterator[tuple[str, dict[str, Any]]]:
        if records:
            self._found += len(records)
            yield "records", {"records": [record_row(record, self._decoder) for record in records]}

    def _progress(self) -> tuple[str, dict[str, Any]] | None:
        now = time.monotonic()
        if now - self._reported_at < STEP_SECONDS:
            return None
        self._reported_at = now
        return "progress", self._figures()

    def _figures(self) -> dict[str, Any]:
        return {
            "scanned": self._scanned,
            "bytes": self._bytes,
            "found": self._found,
            "skipped": self._skipped,
            "seconds": round(time.monotonic() - self._began, 2),
            "failed": 0 if self._filter is None else self._filter.failed,
            "failure": None if self._filter is None else self._filter.failure,
        }

    def _end_event(self, reason: str, at: dict[int, int] | None) -> tuple[str, dict[str, Any]]:
        positions = None if at is None else {str(number): offset for number, offset in at.items()}
        return "done", {**self._figures(), "reason": reason, "positions": positions}


def _end(upper: dict[int, int], lower: dict[int, int]) -> str | None:
    """Whether nothing lies between two offsets any more, in all partitions."""
    return None if any(offset > lower[number] for number, offset in upper.items()) else "end"


def _by_time(record: LoggedRecord) -> tuple[int, int, int]:
    return record.timestamp, record.partition, record.offset


def record_row(record: LoggedRecord, decoder: ContentDecoder, most: int = ROW_CHARACTERS) -> dict[str, Any]:
    """A record as the page gets it, its texts cut to `most` characters."""
    row: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "size": record.size,
    }
    if record.control is not None:
        return {**row, "control": record.control.name.lower(), "producer": record.batch.producer_id}
    if record.damage is not None:
        return {**row, "damage": record.damage}
    decoder = decoder.of(record.headers)
    row["key"] = decoder.key(record.key, most).document()
    row["value"] = decoder.value(record.value, most).document()
    if record.headers:
        shown = record.headers[:100]
        row["headers"] = [[name[:most], decoder.header(name, data, most).document()] for name, data in shown]
    if record.transaction is not None:
        row["transaction"] = record.transaction
    return row
