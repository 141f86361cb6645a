from __future__ import annotations

import pytest

from barnabas.cli.reassign.progress import DirectoryProgress, PartitionProgress, ongoing_lines
from barnabas.clients.admin.replicas import Reassignment, Replica
from barnabas.model.ids import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (PartitionProgress(T0, (1, 2), (2,), True), "Reassignment of partition t-0 is still in progress."),
        (PartitionProgress(T0, (1, 2), (1, 2), False), "Reassignment of partition t-0 is completed."),
        (
            PartitionProgress(T0, (2, 1), (1, 2), False),
            "There is no active reassignment of partition t-0, but replica set is 2,1 rather than 1,2.",
        ),
    ],
)
def test_partitions(progress: PartitionProgress, text: str) -> None:
    assert progress.text == text


@pytest.mark.parametrize(
    ("current", "future", "text", "moving"),
    [
        (None, None, "Partition t-0 cannot be found in any live log directory on broker 1.", True),
        ("/b", None, "Reassignment of replica t-0-1 completed successfully.", False),
        ("/a", "/b", "Reassignment of replica t-0-1 is still in progress.", True),
        ("/a", "/c", "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.", True),
        ("/a", None, "Partition t-0 on broker 1 is not being moved from log dir /a to /b.", False),
    ],
)
def test_directories(current: str | None, future: str | None, text: str, moving: bool) -> None:
    progress = DirectoryProgress(Replica(1, T0), current, "/b", future)
    assert (progress.text, progress.moving) == (text, moving)


def test_moves_under_way() -> None:
    ongoing = {
        TopicPartition("u", 0): Reassignment((1,), (), ()),
        T0: Reassignment((3, 1), (3,), (1,)),
        TopicPartition("t", 1): Reassignment((1, 2), (2,), ()),
    }
    assert ongoing_lines(ongoing) == [
        "t-0: replicas: 3,1. adding: 3. removing: 1.",
        "t-1: replicas: 1,2. adding: 2.",
        "u-0: replicas: 1.",
    ]
