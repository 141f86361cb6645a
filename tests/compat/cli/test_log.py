"""`barnabas log` on files of a real broker, beside Apache Kafka's DumpLogSegments on the same files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.messages import CODECS, messages
from tests.support import java
from tests.support.brokers import Barnabas

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.cli.conftest import Cli


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory at rest, with a topic for each codec and producers that have left their mark."""
    with Barnabas(tmp_path_factory.mktemp("broker"), {"log.index.interval.bytes": "1024"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(codec, 1, 1) for codec in CODECS]).values():
            made.result(30)
        for codec in CODECS:
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "enable.idempotence": True}
            )
            for number, message in enumerate(messages(120)):
                producer.produce(
                    codec, message.value, message.key, timestamp=message.timestamp, headers=list(message.headers)
                )
                if number % 30 == 29:
                    assert producer.flush(30) == 0
        assert broker.stop() == 0
    return broker.data


@pytest.mark.parametrize("flags", [("--deep-iteration",), ("--deep-iteration", "--print-data-log")])
def test_dump_prints_what_kafkas_tool_prints(cli: Cli, data: Path, flags: tuple[str, ...]) -> None:
    for suffix in ("log", "index", "timeindex", "snapshot"):
        files = ",".join(str(data / f"{codec}-0" / name) for codec in CODECS for name in names(data, codec, suffix))
        ours = cli("log", "dump", *flags, "--files", files)
        assert (ours.returncode, ours.stderr) == (0, "")
        assert ours.stdout == java.tool("3.9.1", "dump-log", *flags, "--files", files)


def names(data: Path, codec: str, suffix: str) -> list[str]:
    found = sorted(path.name for path in (data / f"{codec}-0").glob(f"*.{suffix}"))
    assert found, f"no .{suffix} of {codec}"
    return found


def test_check_finds_nothing_and_then_the_damage(cli: Cli, data: Path) -> None:
    sound = cli("log", "check", data)
    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout.splitlines()[-1].endswith("0 errors, 0 warnings"), sound.stdout
    file = data / "gzip-0" / "00000000000000000000.log"
    whole = file.read_bytes()
    try:
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        damaged = cli("log", "check", data)
    finally:
        file.write_bytes(whole)
    assert damaged.returncode == 1
    assert str(file) in damaged.stdout
    assert "1 errors" in damaged.stdout
