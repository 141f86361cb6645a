"""kcat in groups (`-G`), with an older librdkafka than confluent-kafka's."""

from __future__ import annotations

import json
import re
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.compat.kcat.test_kcat import kcat
from tests.support import jars
from tests.support.group_scenarios import send
from tests.support.processes import Process
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.conftest import TopicMaker

SETTINGS = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200", "-X", "session.timeout.ms=6000")


def test_a_group_resumes(bootstrap: str, new_topic: TopicMaker) -> None:
    topic, group = new_topic(2), f"g-{uuid.uuid4().hex[:12]}"
    first = send(bootstrap, topic, 2, 30)
    read = (*SETTINGS, "-G", group, "-q", "-J", "-e", topic)
    printed = [json.loads(line) for line in kcat(bootstrap, *read).splitlines()]
    assert sorted(record["payload"].encode() for record in printed) == sorted(first)
    later = send(bootstrap, topic, 2, 6, "later")
    printed = [json.loads(line) for line in kcat(bootstrap, *read).splitlines()]
    assert sorted(record["payload"].encode() for record in printed) == sorted(later)


class Reader(Process):
    """A kcat that stays in a group; its output tells what it was given."""

    def __init__(self, bootstrap: str, group: str, topic: str, log: Path, *settings: str) -> None:
        command = [jars.program("kcat"), "-b", bootstrap, *SETTINGS, *settings, "-u", "-G", group, topic]
        super().__init__("kcat", command, log)

    def owned(self) -> set[int]:
        """The partitions of the last assignment (cooperative ones only tell what is added)."""
        told = re.findall(r"rebalanced .*?: (assigned|revoked): (.*)", self.output())
        if not told or told[-1][0] == "revoked":
            return set()
        return {int(number) for number in re.findall(r"\[(\d+)\]", told[-1][1])}


def test_two_share_and_one_takes_over_from_one_that_was_killed(
    bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, group = new_topic(4), f"g-{uuid.uuid4().hex[:12]}"
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(
                Reader(bootstrap, group, topic, tmp_path / f"{number}.log", "-X", "session.timeout.ms=2000")
            )
            for number in range(2)
        )
        wait_until(lambda: len(one.owned()) == len(two.owned()) == 2 and not one.owned() & two.owned(), "two shares")
        one.kill()
        wait_until(lambda: two.owned() == {0, 1, 2, 3}, "all partitions")
        sent = send(bootstrap, topic, 4, 20)
        wait_until(lambda: {value.decode() for value in sent} <= set(two.output().splitlines()), "the records")
        assert two.stop() == 0
