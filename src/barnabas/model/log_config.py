"""What a log must know of its topic's configuration, resolved to plain numbers.

Topic overrides, dynamic broker settings and server.properties are merged by `model/config`; storage sees only this.
The defaults are Kafka's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

UNLIMITED = -1
NEVER = 2**63 - 1
"""As a time or a number of messages: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """A topic's effective settings; each field is the topic key of the same name (dots for underscores)."""

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    errors_deadletterqueue_group_enable: bool = False
    file_delete_delay_ms: int = 60_000
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    follower_replication_throttled_replicas: frozenset[str] = frozenset()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    max_compaction_lag_ms: int = NEVER
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = NEVER
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    unclean_leader_election_enable: bool = False
    as_is: bool = field(init=False, compare=False)
    """Whether no setting needs the batches of a client opened or changed before they are stored."""

    def __post_init__(self) -> None:
        as_is = (
            self.compression_type == "producer"
            and self.message_timestamp_type == "CreateTime"
            and self.message_timestamp_before_max_ms == NEVER
            and not self.compact
        )
        object.__setattr__(self, "as_is", as_is)

    @property
    def compact(self) -> bool:
        """Whether the last value of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """The age at which a segment is rolled; with compaction soon enough for max.compaction.lag.ms."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def delete(self) -> bool:
        """Whether old segments are removed by time and size."""
        return "delete" in self.cleanup_policy
