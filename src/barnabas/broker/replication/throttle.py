"""Throttled replication: replicas that are being moved are copied slowly, so that clients keep disk and network.

The leader holds back records that a follower outside the ISR fetches. The follower does not fetch partitions in which
it lags. Each side counts its own bytes. A replica in sync is never throttled. Topic settings name the replicas
(leader.replication.throttled.replicas, follower.replication.throttled.replicas). Broker settings limit the rate
(leader.replication.throttled.rate, follower.replication.throttled.rate).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.replication_quota import ReplicationQuota, is_named

if TYPE_CHECKING:
    from barnabas.model.config.values import Values
    from barnabas.storage.log.log import Log


class ReplicationThrottle:
    """The throttle of one broker as leader, or as follower."""

    def __init__(self, broker_id: int, settings: Values, *, leads: bool) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._leads = leads
        self._rate = "leader.replication.throttled.rate" if leads else "follower.replication.throttled.rate"
        self._quota = ReplicationQuota(
            settings.number("replication.quota.window.num"), settings.number("replication.quota.window.size.seconds")
        )

    def is_for(self, log: Log, partition: int) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        config = log.config
        named = (
            config.leader_replication_throttled_replicas
            if self._leads
            else config.follower_replication_throttled_replicas
        )
        return is_named(named, partition, self._broker_id)

    def is_exhausted(self, now: float) -> bool:
        """Whether the rate is used up for now."""
        return self._quota.is_exceeded(self._settings.number(self._rate), now)

    def record(self, size: int, now: float) -> None:
        """Count bytes that were copied for throttled replicas."""
        self._quota.record(size, now)
