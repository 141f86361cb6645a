"""What a run yields: the samples of both brokers for each metric, and what they say about each other.

A metric states its own target, so that the table, the picture and the JSON agree on what was reached. Samples are kept
whole: a median without its spread is no figure.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class Better(StrEnum):
    """Which way a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"


class Kind(StrEnum):
    """What a metric speaks of; the picture groups by it."""

    THROUGHPUT = "throughput"
    CPU = "broker CPU"
    LATENCY = "latency"
    START = "start"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Target:
    """A limit on the ratio to Kafka, or on Barnabas' own value; the metric knows from which side."""

    limit: float
    relative: bool = True
    goal: float | None = None
    """A further limit that is hoped for, not asked."""


THROUGHPUT: Final = Target(1.3)
"""Where the client leaves room."""
OF_THE_CLIENT: Final = Target(1.0, goal=1.3)
"""Where the client takes as long for a record as the broker, or longer."""
CPU_PRODUCE: Final = Target(0.5)
CPU_CONSUME: Final = Target(0.5)
LATENCY: Final = Target(0.5)
START: Final = Target(0.125)
IDLE_MEMORY: Final = Target(60.0, relative=False)
LOADED_MEMORY: Final = Target(150.0, relative=False)


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a row."""

    key: str
    label: str
    unit: str
    kind: Kind
    better: Better
    target: Target | None = None
    caption: str = ""
    """Its name in the picture, where the row's title would not do."""
    detail: bool = False
    """Kept in the JSON, left out of the table and the picture."""


def throughput(unit: str = "records/s", target: Target = THROUGHPUT) -> Metric:
    """Records, or bytes, per second."""
    return Metric("throughput", "throughput", unit, Kind.THROUGHPUT, Better.HIGHER, target)


def cpu(target: Target | None, unit: str = "s/GB") -> Metric:
    """Seconds of processor time that the broker spent per GB of payload, or per million records."""
    return Metric("cpu", "broker CPU", unit, Kind.CPU, Better.LOWER, target)


PEAK: Final = Metric("peak", "memory", "MB", Kind.MEMORY, Better.LOWER, detail=True)
"""The highest Pss_Anon that was seen while the row ran."""
LOADED: Final = Metric("loaded", "under load", "MB", Kind.MEMORY, Better.LOWER, LOADED_MEMORY, "under load")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of one row, measured on both brokers."""

    row: str
    metric: Metric
    kafka: tuple[float, ...]
    barnabas: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Barnabas' median over Kafka's; above 1 is a larger value, not a better one."""
        kafka = statistics.median(self.kafka)
        return statistics.median(self.barnabas) / kafka if kafka else float("inf")

    @property
    def advantage(self) -> float:
        """How many times better Barnabas is, whichever way the metric improves."""
        if self.metric.better is Better.HIGHER:
            return self.ratio
        return 1 / self.ratio if self.ratio else float("inf")

    def reaches(self, limit: float) -> bool:
        """Whether the measured side of the target keeps to this limit."""
        target = self.metric.target
        measured = self.ratio if target is None or target.relative else statistics.median(self.barnabas)
        return measured >= limit if self.metric.better is Better.HIGHER else measured <= limit

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None when there is none."""
        target = self.metric.target
        return None if target is None else self.reaches(target.limit)


def improvement(samples: Sequence[float], better: Better) -> float:
    """How many times better the later half of the samples is than the earlier: above 1, something still warmed up."""
    half = len(samples) // 2
    if half == 0:
        return 1.0
    early, late = statistics.median(samples[:half]), statistics.median(samples[-half:])
    if better is Better.LOWER:
        early, late = late, early
    return late / early if early else 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that one run found out."""

    when: str
    form: str
    repetitions: int
    machine: dict[str, str]
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    """Rows that could not be measured, each with its reason."""

    def shown(self) -> list[Comparison]:
        """The comparisons that belong in the table."""
        return [comparison for comparison in self.comparisons if not comparison.metric.detail]


def loaded_memory(comparisons: Iterable[Comparison]) -> Comparison | None:
    """The highest memory of each repetition over all rows that load the broker, as a row of its own."""
    kafka: defaultdict[int, list[float]] = defaultdict(list)
    barnabas: defaultdict[int, list[float]] = defaultdict(list)
    for comparison in comparisons:
        if comparison.metric.key == PEAK.key:
            for peaks, samples in ((kafka, comparison.kafka), (barnabas, comparison.barnabas)):
                for repetition, sample in enumerate(samples):
                    peaks[repetition].append(sample)
    if not kafka or not barnabas:
        return None
    return Comparison("memory", LOADED, *(tuple(map(max, peaks.values())) for peaks in (kafka, barnabas)))


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least this share of all samples does not exceed (nearest rank)."""
    ordered = sorted(samples)
    rank = -(-len(ordered) * share // 1)
    return ordered[min(len(ordered) - 1, max(0, int(rank) - 1))]


def save(run: Run, path: Path) -> None:
    """Write a run as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = asdict(run)
    for entry, comparison in zip(document["comparisons"], run.comparisons, strict=True):
        entry |= {"ratio": comparison.ratio, "met": comparison.met}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Run:
    """Read a run that `save` wrote."""
    document = json.loads(path.read_text())
    comparisons = tuple(map(_comparison, document["comparisons"]))
    return Run(**document | {"comparisons": comparisons, "notes": tuple(document["notes"])})


def merge(runs: Sequence[Run], order: Sequence[str]) -> Run:
    """Several runs as one with its rows in this order; a later run's row replaces an earlier one's."""
    rows: dict[str, list[Comparison]] = {}
    failures: dict[str, str] = {}
    for run in runs:
        measured: dict[str, list[Comparison]] = {}
        for comparison in run.comparisons:
            measured.setdefault(comparison.row, []).append(comparison)
        rows |= measured
        failures = {row: why for row, why in failures.items() if row not in measured} | run.failures
    comparisons = [comparison for row in order for comparison in rows.get(row, [])]
    memory = loaded_memory(comparisons)
    last = runs[-1]
    brokers = ", ".join(dict.fromkeys(run.machine["barnabas"] for run in runs))
    return Run(
        when=last.when,
        form=last.form,
        repetitions=min(run.repetitions for run in runs),
        machine=last.machine | {"barnabas": brokers},
        comparisons=(*comparisons, *([memory] if memory else [])),
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
        failures=failures,
    )


def _comparison(entry: dict[str, Any]) -> Comparison:
    metric = entry["metric"]
    target = metric["target"]
    restored = metric | {
        "kind": Kind(metric["kind"]),
        "better": Better(metric["better"]),
        "target": None if target is None else Target(**target),
    }
    return Comparison(entry["row"], Metric(**restored), tuple(entry["kafka"]), tuple(entry["barnabas"]))
