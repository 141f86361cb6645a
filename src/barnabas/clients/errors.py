"""What can go wrong on the client's side of the wire.

BarnabasError
├── LibraryMissing       the extra `clients` is not installed
├── BrokerUnreachable    no broker answers: nothing was asked of it, or nobody knows what became of it
    │   └── BrokerSilent     something takes connections there, and does not answer
└── RequestRefused       a broker answered with an error code
"""

from __future__ import annotations

from barnabas.model.errors import BarnabasError, ErrorCode

__all__ = ["BrokerSilent", "BrokerUnreachable", "InvalidClientConfig", "LibraryMissing", "RequestRefused"]


class LibraryMissing(BarnabasError):
    """A library of the extra `clients` is not installed; the message says how to install it."""


class InvalidClientConfig(BarnabasError):
    """A client property that librdkafka does not know or take; the message names it."""


class BrokerUnreachable(BarnabasError):
    """No broker answered in time; the message says which addresses were tried and what happened at each."""


class BrokerSilent(BrokerUnreachable):
    """Something took the connection but did not answer in time; the message says how long we waited."""


class RequestRefused(BarnabasError):
    """A broker said no. `code` is Kafka's error code, the message is the broker's own."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
