"""A data directory of a broker that was stopped, with a bit of everything: what damage is done to.

Two logs of several segments, one of them compacted, one with transactions that were committed and aborted, committed
offsets, indexes, snapshots of producers, checkpoints, and the metadata tree in SQLite.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.fuzz.broker import running_broker
from tests.fuzz.canary import create_topic

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT: Final = str(1 << 20)
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.compaction.lag.ms": "0",
}
TREE: Final = "tree.sqlite"
"""The metadata tree, which a broker has beside its data, and which is damaged like everything else."""
PLAIN, COMPACTED, TRANSACTIONAL = "plain", "compacted", "transactional"
VALUE: Final = bytes(range(256)) * 120


def build(directory: Path) -> Path:
    """Make the directory, and return it."""

    async def main() -> None:
        async with running_broker(directory, SETTINGS) as broker:
            await asyncio.to_thread(_fill, broker.bootstrap)
            checkpoint = directory / "data" / "cleaner-offset-checkpoint"
            deadline = time.monotonic() + 60
            while not (checkpoint.exists() and f"{COMPACTED} 0" in checkpoint.read_text()):
                await asyncio.sleep(0.05)
                assert time.monotonic() < deadline, "nothing was compacted within 60 s"

    asyncio.run(main())
    shutil.copy(directory / "data.metadata", directory / "data" / TREE)
    return directory / "data"


def _fill(bootstrap: str) -> None:
    shared = {"segment_bytes": SEGMENT, "index_interval_bytes": "1000"}
    create_topic(bootstrap, PLAIN, **shared)
    create_topic(bootstrap, COMPACTED, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **shared)
    create_topic(bootstrap, TRANSACTIONAL, **shared)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "enable.idempotence": True, "linger.ms": 0})
    for number in range(45):
        producer.produce(PLAIN, b"%d " % number + VALUE, b"%d" % number, partition=0)
        producer.produce(COMPACTED, b"%d " % number + VALUE, b"%d" % (number % 7), partition=0)
        producer.flush()
    _transact(bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "group.id": "readers"})
    for offset in range(1, 20):
        consumer.commit(offsets=[TopicPartition(PLAIN, 0, offset)], asynchronous=False)
    consumer.close()


def _transact(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(60)
    for number in range(14):
        producer.begin_transaction()
        for part in range(3):
            producer.produce(TRANSACTIONAL, b"%d.%d " % (number, part) + VALUE, partition=0)
            producer.flush()
        if number % 3 == 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
