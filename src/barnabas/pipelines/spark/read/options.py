"""What a reading job asked for: the options of Spark's own Kafka source, and `progressGroup`. Pure."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark.options import GivenOptions
from barnabas.pipelines.spark.read.offsets import from_text
from barnabas.pipelines.spark.read.positions import AtMoment, AtMoments, AtOffsets, Edge, Position
from barnabas.pipelines.spark.read.selection import Selection
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

SELECTING: Final = ("subscribe", "subscribePattern", "assign")
STARTING: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
STRATEGY: Final = "startingOffsetsByTimestampStrategy"
GROUP: Final = "progressGroup"
TUNING: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "groupIdPrefix",
)
"""Options that say how records are read, not which."""
KNOWN: Final = (*SELECTING, *STARTING, STRATEGY, *ENDING, *TUNING, GROUP)
WITHOUT_EFFECT: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
)
"""Options that tune the JVM clients of Spark's own source."""
OF_STREAMS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", GROUP)
"""Options that a batch has no use for."""
DELAY_SECONDS: Final = 900.0
"""How long too little data waits for more, as in Spark: 15 minutes."""
log = logging.getLogger("barnabas.pipelines")

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Everything that decides what a source reads."""

    client: Mapping[str, str]
    """Kafka's client properties, `bootstrap.servers` among them."""
    selection: Selection
    starting: Position
    ending: Position = Edge.LATEST
    too_late_is_end: bool = False
    """Whether a starting moment after the last record means the end; otherwise it is an error."""
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay: float = DELAY_SECONDS
    min_partitions: int | None = None
    max_records: int | None = None
    """How many offsets a task reads at most."""
    fail_on_data_loss: bool = True
    include_headers: bool = False
    progress_group: str | None = None


def batch_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a batch, which by default reads all there is. Raises InvalidOption."""
    options = GivenOptions.of(given, KNOWN, WITHOUT_EFFECT)
    for name in OF_STREAMS:
        if options.text(name) is not None:
            log.warning("The option %s has no effect in a batch: it is for streams.", name)
    starting = _position(options, STARTING, Edge.EARLIEST)
    if starting is Edge.LATEST or (isinstance(starting, AtOffsets) and LATEST in starting.offsets.values()):
        raise InvalidOption("option startingOffsets is latest (-1), and a batch that begins at the end has no records")
    ending = _position(options, ENDING, Edge.LATEST)
    if ending is Edge.EARLIEST or (isinstance(ending, AtOffsets) and EARLIEST in ending.offsets.values()):
        raise InvalidOption("option endingOffsets is earliest (-2), and a batch that ends there has no records")
    return _options(options, starting, ending)


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a stream, which by default begins at the end. Raises InvalidOption."""
    options = GivenOptions.of(given, KNOWN, WITHOUT_EFFECT)
    for name in ENDING:
        if options.text(name) is not None:
            raise InvalidOption(
                f"option {name} is for batches: a stream has no end (Trigger.AvailableNow gives it one)"
            )
    return _options(options, _position(options, STARTING, Edge.LATEST), Edge.LATEST)


def _options(options: GivenOptions, starting: Position, ending: Position) -> SourceOptions:
    found = SourceOptions(
        client=_client(options),
        selection=_selection(options),
        starting=starting,
        ending=ending,
        too_late_is_end=options.one_of(STRATEGY, ("error", "latest"), "error") == "latest",
        max_offsets=options.positive("maxOffsetsPerTrigger"),
        min_offsets=options.positive("minOffsetsPerTrigger"),
        max_delay=_seconds(options, "maxTriggerDelay", DELAY_SECONDS),
        min_partitions=options.positive("minPartitions"),
        max_records=options.positive("maxRecordsPerPartition"),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        include_headers=options.flag("includeHeaders", False),
        progress_group=options.text(GROUP) or None,
    )
    if found.min_offsets and found.max_offsets and found.min_offsets > found.max_offsets:
        raise InvalidOption("option minOffsetsPerTrigger is larger than maxOffsetsPerTrigger")
    return found


def _client(options: GivenOptions) -> dict[str, str]:
    """The client's properties. No group is joined, but a cluster may allow only some names to be used at all."""
    found = options.client()
    prefix = options.text("groupIdPrefix")
    return {"group.id": f"{prefix}-source"} | found if prefix else found


def _selection(options: GivenOptions) -> Selection:
    given = [name for name in SELECTING if options.text(name)]
    if len(given) != 1:
        what = "are given together" if given else "are missing"
        raise InvalidOption(f"options {', '.join(given or SELECTING)} {what}: exactly one of them says what to read")
    value = options.text(given[0]) or ""
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not topics:
            raise InvalidOption(f"option subscribe is {value!r}, and should be names of topics, as orders,returns")
        return Selection(topics=topics)
    if given[0] == "assign":
        return Selection(assigned=_assigned(value))
    try:
        return Selection(pattern=re.compile(value))
    except re.error as error:
        raise InvalidOption(f"option subscribePattern is no regular expression: {error}") from error


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        topics = json.loads(text)
        found = [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]
    except (ValueError, AttributeError, TypeError) as error:
        raise _no_assignment(text) from error
    if not found or not all(isinstance(each.partition, int) and each.partition >= 0 for each in found):
        raise _no_assignment(text)
    return tuple(sorted(set(found)))


def _no_assignment(text: str) -> InvalidOption:
    return InvalidOption(f'option assign is {text!r}, and should be JSON like {{"topic": [0, 1]}}')


def _position(options: GivenOptions, names: tuple[str, str, str], default: Edge) -> Position:
    """A moment goes before moments by partition, and those before offsets, as in Spark."""
    by_offset, by_moment, by_moments = names
    if (moment := options.text(by_moment)) is not None:
        if not moment.isdecimal():
            raise InvalidOption(f"option {by_moment} is {moment!r}, and should be milliseconds since 1970")
        return AtMoment(int(moment))
    if (moments := options.text(by_moments)) is not None:
        return AtMoments(_by_partition(by_moments, moments, lowest=0))
    text = options.text(by_offset)
    if text is None:
        return default
    if text.lower() in (Edge.EARLIEST.value, Edge.LATEST.value):
        return Edge(text.lower())
    return AtOffsets(_by_partition(by_offset, text, lowest=EARLIEST))


def _by_partition(name: str, text: str, *, lowest: int) -> dict[TopicPartition, int]:
    try:
        found = from_text(text)
    except ValueError as error:
        words = "" if "Timestamp" in name else "earliest, latest or "
        raise InvalidOption(f'option {name} should be {words}JSON like {{"topic":{{"0":23}}}}, and {error}') from error
    for partition, number in found.items():
        if number < lowest:
            raise InvalidOption(f"option {name} has {number} for {partition}, which means nothing")
    return found


def _seconds(options: GivenOptions, name: str, default: float) -> float:
    value = options.text(name)
    if value is None:
        return default
    parts = re.fullmatch(r"(\d+)\s*([a-z]*)", value.lower())
    if parts is None or (parts[2] or "ms") not in _UNITS:
        raise InvalidOption(f"option {name} is {value!r}, and should be a time like 30s or 15m")
    return int(parts[1]) * _UNITS[parts[2] or "ms"]
