"""Slowing down what is copied to replicas that are being moved, so that clients keep their share of disk and network.

The leader holds back what a follower outside the ISR asks for, the follower does not ask for what it is behind with;
each counts for itself. A replica in sync is never slowed down. Which replicas are meant is a setting of their topic
(leader., follower.replication.throttled.replicas), how fast they may be copied one of each broker
(leader., follower.replication.throttled.rate).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.replication_quota import ReplicationQuota, is_named

if TYPE_CHECKING:
    from barnabas.model.config.values import Values
    from barnabas.storage.log import Log


class ReplicationThrottle:
    """One side's share of one broker."""

    def __init__(self, broker_id: int, settings: Values, *, leads: bool) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._leads = leads
        self._rate = "leader.replication.throttled.rate" if leads else "follower.replication.throttled.rate"
        self._quota = ReplicationQuota(
            settings.number("replication.quota.window.num"), settings.number("replication.quota.window.size.seconds")
        )

    def is_for(self, log: Log, partition: int) -> bool:
        """Whether this broker's replica is to be slowed down."""
        config = log.config
        named = (
            config.leader_replication_throttled_replicas
            if self._leads
            else config.follower_replication_throttled_replicas
        )
        return is_named(named, partition, self._broker_id)

    def is_exhausted(self, now: float) -> bool:
        """Whether nothing more may be copied at the moment."""
        return self._quota.is_exceeded(self._settings.number(self._rate), now)

    def record(self, size: int, now: float) -> None:
        """So many bytes were copied for replicas that are slowed down."""
        self._quota.record(size, now)
