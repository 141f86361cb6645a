"""What a member of a share group says of a record, in ShareFetch and ShareAcknowledge."""

from __future__ import annotations

from enum import IntEnum


class Acknowledgement(IntEnum):
    """What a member says of a record, under Kafka's numbers."""

    GAP = 0
    """There is no such record in the log."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The lock begins anew (KIP-1222)."""
