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


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose topic t has a record, a batch of noise as brokers once stored it, and nothing after it."""
    folder = tmp_path_factory.mktemp("broker")
    with Barnabas(folder) as broker:
        make(broker.bootstrap, "t", b"good")
        make(broker.bootstrap, "noise-first", b"good")
        broker.stop()
        data = broker.data
    for topic, offset in (("t", 1), ("noise-first", 0)):
        write_noise(data / f"{topic}-0" / "00000000000000000000.log", offset)
    (data / ".kafka_cleanshutdown").unlink()
    with Barnabas(folder) as broker:
        yield broker.bootstrap


def make(bootstrap: str, topic: str, value: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def write_noise(log: Path, offset: int) -> None:
    """Let the batch at this offset be noise, with a header and a CRC that fit."""
    before = log.read_bytes() if offset else b""
    noise = bytearray(batch([b"x"], records=NOISE, base_offset=offset))
    noise[12:16] = bytes(4)  # the leader epoch
    log.write_bytes(before + noise)


@pytest.mark.parametrize("end", [("--timeout-ms", "500"), ("--until-end",), ("--max-messages", "2")])
@pytest.mark.parametrize(("topic", "offset"), [("t", 1), ("noise-first", 0)])
def test_consume_names_what_cannot_be_read_and_fails(
    bootstrap: str, cli: Cli, end: tuple[str, ...], topic: str, offset: int
) -> None:
    done = cli("consume", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", *end)
    assert done.returncode == 1
    assert f"{topic} partition 0: the batch at offset {offset} cannot be read" in done.stderr
    assert done.stdout.split() == ["good"] * offset


def test_consume_can_step_over_it(bootstrap: str, cli: Cli) -> None:
    words = ("--from-beginning", "--until-end", "--skip-message-on-error")
    done = cli("consume", "--bootstrap-server", bootstrap, "--topic", "t", *words)
    assert done.returncode == 0
    assert "Going on at offset 2" in done.stderr
    assert done.stdout.split() == ["good"]
