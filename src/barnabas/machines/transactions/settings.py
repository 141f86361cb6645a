"""The settings that the rules of transactions read."""

from __future__ import annotations

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """What holds for all transactional ids."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    expiration_check_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
