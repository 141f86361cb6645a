"""What a client that was closed, or that came with a fork, has in place of librdkafka's."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Protocol
from weakref import WeakSet

from barnabas.clients.errors import ClientClosed


class Closed:
    """Whatever is asked of it raises ClientClosed."""

    def __init__(self, what: str, why: str = "is closed") -> None:
        """`what` and `why` are the words of the error: "the consumer" "is closed"."""
        self._words = f"{what} {why}"

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        raise ClientClosed(self._words)


class Owner(Protocol):
    """What has a client of librdkafka."""

    def forked(self) -> None:
        """Give it up, in a child of the process that opened it: its threads are not here."""


_owners: WeakSet[Owner] = WeakSet()


def watch_forks(owner: Owner) -> None:
    """Call `owner.forked()` in each child that is forked while it lives."""
    _owners.add(owner)


def left_in_parent(what: str, client: object) -> Closed:
    """What a child has instead of a client, which is never freed there: that would wait for its threads."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    return Closed(what, "was opened by the parent of this process, and its threads are there: open another one here")


def _leave_clients_in_parent() -> None:
    owners = list(_owners)
    _owners.clear()
    for owner in owners:
        owner.forked()


os.register_at_fork(after_in_child=_leave_clients_in_parent)
