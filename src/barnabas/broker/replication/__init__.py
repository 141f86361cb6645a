"""Replicas of this broker: partitions that it leads or follows, in-sync replicas, fetching, and logs that failed."""
