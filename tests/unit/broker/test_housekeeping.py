"""Scheduled tasks run again and again, and one that fails does not end them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.broker.housekeeping import Housekeeping
from barnabas.storage.manager import LogManager
from tests.support.parts import append, make_topic, running_parts
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_700_000_000_000
OFTEN = {
    "log.retention.check.interval.ms": "5",
    "replica.high.watermark.checkpoint.interval.ms": "5",
    "log.flush.scheduler.interval.ms": "5",
}


async def test_retention_and_checkpoints_come_round(tmp_path: Path) -> None:
    async with running_parts(tmp_path, OFTEN) as broker:
        await make_topic(broker, "t", retention_ms="1000")
        partition = broker.replicas.get("t", 0)
        assert partition is not None
        append(partition, [NOW])
        clock: Any = broker.clock
        housekeeping = Housekeeping(broker)
        housekeeping.start()
        checkpoint = tmp_path / "data" / "replication-offset-checkpoint"
        await until(lambda: checkpoint.exists() and "t 0 1" in checkpoint.read_text())
        clock.advance(10_000)
        await until(lambda: partition.log.log_start_offset == 1)
        await housekeeping.stop()


async def test_a_task_that_fails_runs_again(tmp_path: Path) -> None:
    calls: list[int] = []

    class FailingRetention(LogManager):
        def retention_pass(self, now_ms: int) -> int:
            calls.append(now_ms)
            raise OSError("no such luck")

    async with running_parts(tmp_path, OFTEN, make_logs=FailingRetention) as broker:
        housekeeping = Housekeeping(broker)
        housekeeping.start()
        await until(lambda: len(calls) >= 3)
        await housekeeping.stop()


async def test_expired_tokens_are_removed_at_the_next_time_whatever_failed_before(tmp_path: Path) -> None:
    calls: list[int] = []

    async def fail() -> None:
        calls.append(1)
        raise ValueError("no such luck")

    settings = {
        "delegation.token.secret.key": "sesame",
        "delegation.token.expiry.check.interval.ms": "5",
    }
    async with running_parts(tmp_path, settings) as broker:
        tokens: Any = SimpleNamespace(remove_expired=fail)
        housekeeping = Housekeeping(replace(broker, tokens=tokens))
        housekeeping.start()
        await until(lambda: len(calls) >= 3)
        await housekeeping.stop()
