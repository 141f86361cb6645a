"""`python -m tests.history.expiry`: what an idempotent librdkafka producer does when records expire that it was not
answered for, told of Barnabas and of Apache Kafka 4.3.0.

The broker stores two batches and its answers are lost. It is away until the first record has expired
(`message.timeout.ms`) and the second has not. librdkafka then takes the first for failed, begins a new epoch, and sends
the second again, with a sequence number of that epoch: no broker can know it for the one it has. Both records are in
the log, the first though its producer was told that it failed, the second twice.

That is so while the producer knows of a broker, as it does in a cluster of which others are left. Where none is, it
begins anew with its bootstrap servers (`metadata.recovery.strategy=rebootstrap`), keeps its epoch, and repeats nothing;
so the strategy is `none` here, where there is one broker.

So no history in which records expire says anything about repetitions, and producers of histories are given more time
than a cluster is ever away (`tests/history/clients`). The broker's promise holds for records that are answered, or
sent again in the epoch in which they were sent first: `tests/crash/test_kill9.py` holds it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers import Barnabas, KafkaKRaft
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError, Message

TOPIC: Final = "expiring"
EXPIRY: Final = 4.0
"""Seconds after which records expire."""
FIRST, EXPIRED, REPEATED = "before", "expired", "sent again"


class Told(NamedTuple):
    """What a producer was told of its records, and what is in the log."""

    reports: dict[str, str]
    log: list[str]


def tell(proxy: Proxy, log: Path) -> Told:
    """Let a record expire whose answer was lost; `log` is the file that the broker stores it in."""
    bootstrap: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0}
    admin = AdminClient(bootstrap)
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    reports: dict[str, str] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        reports[(message.value() or b"").decode()] = "acknowledged" if error is None else error.name()

    producer = Producer(
        {
            **bootstrap,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": int(EXPIRY * 1000),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 100,
            "metadata.recovery.strategy": "none",
        }
    )

    def wait(condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: producer.poll(0.02) >= 0 and condition(), what, 60)

    def send(value: str) -> None:
        size = _size(log)
        producer.produce(TOPIC, value, partition=0, on_delivery=note)
        wait(lambda: _size(log) > size, f"{value!r} to be stored")

    send(FIRST)
    wait(lambda: FIRST in reports, "the first answer")
    proxy.swallow()
    send(EXPIRED)
    younger = time.monotonic() + EXPIRY / 2
    wait(lambda: time.monotonic() > younger, "half of a record's time to pass")
    send(REPEATED)
    target, proxy.target = proxy.target, 0
    proxy.cut()
    wait(lambda: EXPIRED in reports, "a record to expire")
    proxy.let_through()
    proxy.target = target
    producer.flush(60)
    return Told(reports, _read(bootstrap, log))


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _read(bootstrap: Mapping[str, str | int | float | bool], log: Path) -> list[str]:
    reader = Consumer({**bootstrap, "group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True})
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    deadline = time.monotonic() + 60
    while (message := reader.poll(1)) is None or message.error() is None:
        assert time.monotonic() < deadline, f"{log} could not be read to its end"
        if message is not None:
            found.append((message.value() or b"").decode())
    reader.close()
    return found


def with_barnabas(folder: Path) -> Told:
    """The story with Barnabas."""
    with Proxy() as proxy, Barnabas(folder, _behind(proxy)) as broker:
        proxy.target = broker.port
        return tell(proxy, _log(broker.data))


def with_kafka(folder: Path) -> Told:
    """The story with Apache Kafka."""
    with Proxy() as proxy, KafkaKRaft(folder, _behind(proxy)) as broker:
        proxy.target = int(broker.bootstrap.rpartition(":")[2])
        return tell(proxy, _log(broker.data))


def _behind(proxy: Proxy) -> dict[str, str]:
    return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}


def _log(data: Path) -> Path:
    return data / f"{TOPIC}-0" / f"{0:020}.log"


def main() -> int:
    """Tell the story of both brokers; the exit code is 1 if they differ."""
    told: list[Told] = []
    for name, story in (("Barnabas", with_barnabas), ("Apache Kafka 4.3.0", with_kafka)):
        with tempfile.TemporaryDirectory(prefix="expiry-") as folder:
            told.append(story(Path(folder)))
        print(f"{name}: the producer was told {told[-1].reports}, and the log has {told[-1].log}", flush=True)
    return 0 if told[0] == told[1] else 1


if __name__ == "__main__":
    sys.exit(main())
