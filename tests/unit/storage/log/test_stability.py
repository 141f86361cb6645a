"""Up to where readers of committed data may read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.records.control import ControlType, EndOfTransaction, build_marker
from tests.support.logs import NOW, append, batch, new_log, recovered, reopened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from barnabas.storage.log.log import Log


class TestStability:
    def end(self, log: Log, kind: ControlType = ControlType.COMMIT) -> None:
        log.append(build_marker(EndOfTransaction(kind, 0), timestamp=NOW, producer_id=7, producer_epoch=0), 0, NOW)

    @pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
    def test_a_transaction_is_over_when_its_end_is_committed(self, tmp_path: Path, kind: ControlType) -> None:
        log = new_log(tmp_path)
        append(log, batch(2))
        append(log, batch(2, producer_id=7, transactional=True))
        assert [log.last_stable_offset(committed) for committed in (1, 3, 4)] == [1, 2, 2]
        self.end(log, kind)
        append(log, batch(2))
        assert [log.last_stable_offset(committed) for committed in (1, 3, 4, 5, 7)] == [1, 2, 2, 5, 7]

    @pytest.mark.parametrize("restarted", [reopened, recovered])
    @pytest.mark.parametrize("rolled_at", [0, 2, 4, 5])
    def test_that_an_end_is_not_committed_is_known_after_a_restart(
        self, tmp_path: Path, restarted: Callable[[Log], Log], rolled_at: int
    ) -> None:
        log = new_log(tmp_path)
        for write in (
            lambda: append(log, batch(2)),
            lambda: append(log, batch(2, producer_id=7, transactional=True)),
            lambda: self.end(log),
            lambda: append(log, batch(2)),
        ):
            if log.log_end_offset == rolled_at:
                log.roll(NOW)
            write()
        log.high_watermark = 4
        again = restarted(log)
        again.high_watermark = 4
        again.open()
        assert again.producers.first_unstable_offset is None
        assert [again.last_stable_offset(committed) for committed in (1, 3, 4, 5, 7)] == [1, 2, 2, 5, 7]

    def test_an_end_that_was_cut_away_is_none(self, tmp_path: Path) -> None:
        log = new_log(tmp_path)
        append(log, batch(2, producer_id=7, transactional=True))
        self.end(log)
        log.truncate_to(2)
        append(log, batch(2))
        assert log.last_stable_offset(4) == 0
        self.end(log)
        assert [log.last_stable_offset(committed) for committed in (4, 5)] == [0, 5]

    def test_nothing_is_stable_before_the_log_begins(self, tmp_path: Path) -> None:
        log = new_log(tmp_path)
        append(log, batch(2, producer_id=7, transactional=True))
        self.end(log)
        log.high_watermark = 2
        log.delete_records_before(1)
        assert log.last_stable_offset(2) == 1
