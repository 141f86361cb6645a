"""Where a broker is between its start and its end, by Kafka's numbers."""

from __future__ import annotations

from enum import IntEnum


class BrokerState(IntEnum):
    """The states of a broker; Kafka's metric BrokerState and those who watch it know the numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    """Logs are being loaded."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """Other brokers take over what this one leads."""
    SHUTTING_DOWN = 7
