"""A topic full of values that newer ones replaced, and the moment at which the cleaner is through with it.

The topic is filled while it is not compacted and changed to compact then, so that the cleaner finds everything at once.
Both brokers note in `cleaner-offset-checkpoint` how far they cleaned.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Message

DUPLICATES: Final = 5
_SEGMENT: Final = 8_000_000
_VALUE: Final = 100
_DEADLINE: Final = 300.0
_POLL: Final = 0.005


def prepare(port: int, topic: str) -> None:
    """Let the topic have segments of a size that leaves little in the active one, which is never cleaned."""
    _alter(port, topic, {"segment.bytes": str(_SEGMENT), "min.cleanable.dirty.ratio": "0.01"})


def fill(port: int, topic: str, records: int) -> None:
    """Put so many records into partition 0, five of each key, in no order."""
    chance = random.Random(records)
    keys = [b"key %08d" % number for number in range(records // DUPLICATES)] * DUPLICATES
    chance.shuffle(keys)
    values = [chance.randbytes(_VALUE) for _ in range(1_000)]
    failed: list[str] = []

    def report(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 20, "log_level": 2})
    for number, key in enumerate(keys):
        while True:
            try:
                producer.produce(topic, values[number % 1_000], key, partition=0, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(120) or failed:
        raise RuntimeError(f"{len(failed)} records were not delivered; {failed[:3]}")


def start(port: int, topic: str) -> None:
    """Let the cleaner have it."""
    _alter(port, topic, {"cleanup.policy": "compact"})


def closed_segments(data: Path, topic: str) -> tuple[int, int]:
    """Bytes in the segments that can be cleaned, and the offset behind them."""
    *closed, active = sorted((data / f"{topic}-0").glob("*.log"))
    return sum(path.stat().st_size for path in closed), int(active.stem)


def is_clean(data: Path, topic: str, end: int) -> bool:
    """Whether the cleaner has come to this offset."""
    with suppress(FileNotFoundError):
        for line in (data / "cleaner-offset-checkpoint").read_text().splitlines():
            if line.startswith(f"{topic} 0 "):
                return int(line.rpartition(" ")[2]) >= end
    return False


def wait_until_clean(data: Path, topic: str, end: int) -> None:
    """Wait for the cleaner."""
    deadline = time.monotonic() + _DEADLINE
    while not is_clean(data, topic, end):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the cleaner did not come to offset {end} of {topic} within {_DEADLINE:.0f} seconds")
        time.sleep(_POLL)


def _alter(port: int, topic: str, configs: dict[str, str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 2})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result()
