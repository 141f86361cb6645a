"""What kafka-python and aiokafka have in common: the names of their settings, and how they tell of a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.support.members.member import Joining, Member


def settings(joining: Joining, assignors: Mapping[str, type]) -> dict[str, Any]:
    """How a consumer is made that joins so."""
    return {
        "bootstrap_servers": joining.bootstrap,
        "group_id": joining.group,
        "auto_offset_reset": joining.reset,
        "enable_auto_commit": joining.commit_every_ms > 0,
        "auto_commit_interval_ms": joining.commit_every_ms or 1_000,
        "partition_assignment_strategy": [assignors[name] for name in joining.assignors],
        "group_instance_id": joining.instance,
        "session_timeout_ms": joining.session_ms,
        "heartbeat_interval_ms": min(200, joining.session_ms // 3),
        "max_poll_interval_ms": max(joining.poll_interval_ms, joining.session_ms),
        "metadata_max_age_ms": 500,
        "fetch_max_wait_ms": 50,
        "retry_backoff_ms": 50,
    }


class Listener:
    """Tells a member what its client was given or lost."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Note what was taken."""
        self._member.changed(False, revoked)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Note what was given."""
        self._member.changed(True, assigned)
