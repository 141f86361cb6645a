"""Environment variables by which a program of ours tells the broker that it starts what it is for."""

from __future__ import annotations

from typing import Final

READY_FD: Final = "BARNABAS_READY_FD"
"""The pipe on which the broker says that it is ready."""
STARTER_FD: Final = "BARNABAS_STARTER_FD"
"""A pipe that closes when the program ends which started the broker: the broker stops then."""
LOG_PREFIX: Final = "BARNABAS_LOG_PREFIX"
"""What the broker's log lines begin with, where several brokers write to one place."""
FAULTS_SOCKET: Final = "BARNABAS_FAULTS_SOCKET"
"""The path of the socket over which a test sets faults; a broker without it has none."""
