"""Comparisons to test with."""

from __future__ import annotations

from bench.results import Better, Comparison, Kind, Metric, Run, Target

RATE = Metric("throughput", "throughput", "records/s", Kind.THROUGHPUT, Better.HIGHER, Target(1.0, goal=1.1))
CPU = Metric("cpu", "broker CPU", "s/GB", Kind.CPU, Better.LOWER, Target(0.6))
IDLE = Metric("idle", "idle memory", "MB", Kind.MEMORY, Better.LOWER, Target(60.0, relative=False), "idle")
FREE = Metric("seek", "seek", "µs", Kind.LATENCY, Better.LOWER)


def compare(metric: Metric, kafka: float, barnabas: float, row: str = "produce") -> Comparison:
    return Comparison(row, metric, (kafka, kafka * 1.2, kafka * 0.9), (barnabas, barnabas * 0.8, barnabas * 1.1))


def run(*comparisons: Comparison, notes: tuple[str, ...] = (), failures: dict[str, str] | None = None) -> Run:
    return Run(
        when="2026-01-02T03:04:05+00:00",
        form="full",
        repetitions=3,
        machine={"processor": "2 × a processor", "memory": "8 GiB", "barnabas": "Barnabas 1.0"},
        comparisons=comparisons,
        notes=notes,
        failures=failures or {},
    )
