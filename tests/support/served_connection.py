"""A connection as far as the dispatcher knows of it, for tests that hand frames to it without a socket."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from barnabas.net.refusals import RefusalLog


def served_connection(listener: str = "PLAINTEXT") -> Any:
    """A connection whose first request is to come."""
    server = SimpleNamespace(refusals=RefusalLog(time.monotonic))
    return SimpleNamespace(
        listener=listener, address=("127.0.0.1", 1), state=None, certificate=None, on_close=None, server=server
    )
