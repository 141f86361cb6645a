"""The markers that end transactions: a commit is answered before they are written, here as with Kafka."""

from __future__ import annotations

from barnabas.clients.admin.admin import Admin
from tests.support.waiting import wait_until


def wait_for_markers(bootstrap: str, topic: str) -> None:
    """Wait until readers of committed records get to the end of the topic."""
    with Admin(bootstrap) as admin:
        places = admin.partitions(topic)
        wait_until(lambda: admin.end_offsets(places, committed=True) == admin.end_offsets(places), "all markers")
