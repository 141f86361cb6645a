"""A topic that holds what no client can read: `barnabas consume` says so, and does not end as if all was well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.brokers import Barnabas
from tests.support.wire import batch, varint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.compat.cli.conftest import Cli

NOISE = varint(20) + b"\xff" * 20
GZIP = 1
TOPICS = {"t": (1, 0), "noise-first": (0, 0), "packed": (1, GZIP)}
"""The offset of the batch that is noise, and its attributes. Behind that of `packed` is a record that can be read."""
TIMEOUT = ("--timeout-ms", "1500")
UNTIL_END = ("--until-end",)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose topics have a batch of noise, as brokers once stored it."""
    folder = tmp_path_factory.mktemp("broker")
    with Barnabas(folder) as broker:
        for topic in TOPICS:
            make(broker.bootstrap, topic, b"good")
        broker.stop()
        data = broker.data
    for topic, (offset, attributes) in TOPICS.items():
        log = data / f"{topic}-0" / "00000000000000000000.log"
        write_noise(log, offset, attributes)
        if topic == "packed":
            log.write_bytes(log.read_bytes() + of_epoch_0(batch([b"after"], base_offset=offset + 1)))
    (data / ".kafka_cleanshutdown").unlink()
    with Barnabas(folder) as broker:
        yield broker.bootstrap


def make(bootstrap: str, topic: str, value: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def write_noise(log: Path, offset: int, attributes: int) -> None:
    """Let the batch at this offset be noise, with a header and a CRC that fit."""
    before = log.read_bytes() if offset else b""
    log.write_bytes(before + of_epoch_0(batch([b"x"], records=NOISE, base_offset=offset, attributes=attributes)))


def of_epoch_0(data: bytes) -> bytes:
    return data[:12] + bytes(4) + data[16:]


@pytest.mark.parametrize(
    ("topic", "end"),
    [
        ("t", UNTIL_END),
        ("t", TIMEOUT),
        ("t", ("--max-messages", "2")),
        ("noise-first", UNTIL_END),
        ("packed", TIMEOUT),
        ("packed", UNTIL_END),
    ],
)
def test_consume_names_what_cannot_be_read_and_fails(
    bootstrap: str, cli: Cli, topic: str, end: tuple[str, ...]
) -> None:
    offset, _ = TOPICS[topic]
    done = cli("consume", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", *end)
    assert done.returncode == 1, done.stderr
    assert f"{topic} partition 0: the batch at offset {offset} cannot be read" in done.stderr
    assert done.stdout.split() == ["good"] * offset


@pytest.mark.parametrize(
    ("topic", "end", "readable"),
    [("t", UNTIL_END, ["good"]), ("packed", UNTIL_END, ["good", "after"]), ("packed", TIMEOUT, ["good", "after"])],
)
def test_consume_can_step_over_it(
    bootstrap: str, cli: Cli, topic: str, end: tuple[str, ...], readable: list[str]
) -> None:
    words = ("--from-beginning", "--skip-message-on-error", *end)
    done = cli("consume", "--bootstrap-server", bootstrap, "--topic", topic, *words)
    assert done.returncode == 0, done.stderr
    assert "Going on at offset 2" in done.stderr
    assert done.stdout.split() == readable
