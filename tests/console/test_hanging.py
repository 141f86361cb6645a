"""A broker that hangs: the console says so, and goes on telling of the others."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients import Admin
from barnabas.testing import Cluster
from tests.support.consoles import ConsoleProcess, running_console
from tests.support.waiting import fastest, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOLD_SECONDS = 7.0
"""Three would do on a machine that is not busy, and none always is. Somebody who asks one broker after the other needs
more than eight each time."""


@contextmanager
def hanging(cluster: Cluster, number: int) -> Iterator[None]:
    """A broker that takes connections and answers nothing, for as long as the block lasts."""
    process = cluster.brokers[number].pid
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def overview(console: ConsoleProcess) -> dict[str, Any]:
    answer = console.ask("GET", "/api/overview")
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def is_fine(console: ConsoleProcess, number: int) -> bool:
    """Whether the console takes a broker for one that serves; a controller that hangs is replaced, and fenced."""
    found = overview(console)["brokers"][number]
    return bool(found["up"]) and found["silent"] is None


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_broker_that_hangs_is_told_of_soon_and_the_others_meanwhile(tmp_path: Path, number: int) -> None:
    """Any of three, among them the one that the console has asked so far, and the one that has the metadata store.

    It is fenced late, so the console has to see for itself.
    """
    config = {"broker.session.timeout.ms": 60_000, "offsets.topic.replication.factor": 3}
    with Cluster(config, brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("led", 6, 3)
        cluster.wait_until_in_sync("led")
        admin.commit_group_offsets("readers", {admin.partitions("led")[0]: 0})

        def seconds_of_telling() -> float:
            """How long a new console takes to tell of it, or for the snapshot after that, whichever is longer."""
            with running_console(tmp_path, cluster.bootstrap_servers) as console:
                wait_until(lambda: overview(console)["groups"] == 1 or None, "the console to know all")
                with hanging(cluster, number):
                    began = time.monotonic()
                    wait_until(lambda: not is_fine(console, number) or None, "the console to tell of it")
                    longest = time.monotonic() - began
                    at = overview(console)["at"]
                    began = time.monotonic()
                    wait_until(lambda: overview(console)["at"] > at or None, "the next snapshot")
                    longest = max(longest, time.monotonic() - began)
                    assert overview(console)["groups"] == 1, "what was known of groups stays"
                wait_until(lambda: is_fine(console, number) or None, "it to be there again")
                return longest

        assert fastest(seconds_of_telling, TOLD_SECONDS) < TOLD_SECONDS
