"""The settings that the rules of the share coordinator read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareCoordinatorSettings:
    """What holds for all share partitions of a broker."""

    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    prune_interval_ms: int = 300_000
    """share.coordinator.state.topic.prune.interval.ms"""
    cold_snapshot_interval_ms: int = 300_000
    """share.coordinator.cold.partition.snapshot.interval.ms"""
