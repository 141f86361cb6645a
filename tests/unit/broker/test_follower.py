"""What a follower does with its log when it compares it with its leader's."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.broker.follower import Follower
from barnabas.model.ids import TopicPartition
from tests.support.logs import append, batch, new_log

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("answer", "agrees"), [((3, 2), True), ((4, 9), False)], ids=["an epoch that both have", "one it never saw"]
)
def test_an_epoch_without_records_is_forgotten_even_when_nothing_is_cut(
    tmp_path: Path, answer: tuple[int, int], agrees: bool
) -> None:
    """Otherwise it would ask for its end for ever, or take the next records for that epoch's."""
    log = new_log(tmp_path)
    append(log, batch(2), epoch=3)
    log.assign_epoch(6, log.log_end_offset)
    follower = Follower(TopicPartition("t", 0), UUID(int=1), log, leader_id=2, leader_epoch=7)
    follower.compare(6, *answer)
    assert (log.log_end_offset, log.latest_epoch, follower.agrees) == (2, 3, agrees)
