"""A data directory that an earlier tree wrote, with tables and a checkpoint of Spark, for what reads them today.

`written.tar.gz` was made by `python -m tests.support.earlier.write FOLDER` in the tree before the packages were moved
(commit 9b190f2). It is not made anew when the format of our files stays: that is what it is there to show.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

ARCHIVE: Final = Path(__file__).with_name("written.tar.gz")
KEEPING: Final = {"log.retention.ms": "-1", "offsets.retention.minutes": "2147483647"}
"""A broker with these settings keeps what was written long ago."""


def unpack(folder: Path) -> dict[str, Any]:
    """Put the directory into `folder`, and return what was written into it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    known: dict[str, Any] = json.loads((folder / "known.json").read_text())
    return known


def committed(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[str | None, str | None]]:
    """The keys and values that readers of committed data see in a partition, from its beginning to its end."""
    settings = {"group.id": "nobody", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "isolation.level": "read_committed", **settings})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((_text(message.key()), _text(message.value())))
    assert message is not None, f"the end of {topic} was not reached"
    consumer.close()
    return found


def _text(data: bytes | str | None) -> str | None:
    return data.decode() if isinstance(data, bytes) else data
