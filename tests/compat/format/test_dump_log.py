"""Apache Kafka 3.9.1's DumpLogSegments reads every kind of file that Barnabas writes, and finds nothing wrong.

The directory has seen segments roll, a kill -9 with recovery, and a clean stop. One topic per codec.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.format.contents import produce, text_messages
from tests.compat.messages import CODECS, Message
from tests.support import java
from tests.support.brokers import Barnabas

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 1_500
"""Of a kilobyte each, before and after the kill: two to three segments of a megabyte."""
COMPLAINTS = re.compile(r"mismatch|corrupt|out of order|not found|failed|invalid|exception|error", re.IGNORECASE)


@pytest.fixture(scope="module")
def sent() -> dict[str, list[Message]]:
    return {codec: text_messages(COUNT * 2, 1_000, seed) for seed, codec in enumerate(CODECS)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, sent: dict[str, list[Message]]) -> Path:
    """A log directory of Barnabas with a topic for each codec."""
    folder = tmp_path_factory.mktemp("written")
    settings = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "1024"}
    for half in (slice(0, COUNT), slice(COUNT, 2 * COUNT)):
        with Barnabas(folder, settings) as broker:
            if half.start == 0:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
                for made in admin.create_topics([NewTopic(codec, 1, 1) for codec in CODECS]).values():
                    made.result(30)
            for codec, messages in sent.items():
                producer = Producer(
                    {
                        "bootstrap.servers": broker.bootstrap,
                        "compression.type": codec,
                        "enable.idempotence": True,
                        "linger.ms": 5,
                        "batch.num.messages": 50,
                    }
                )
                produce(producer, codec, 0, messages[half])
            if half.start == 0:
                broker.kill()
            else:
                assert broker.stop() == 0
    return broker.data


def files(directory: Path, suffix: str) -> list[Path]:
    found = sorted(directory.glob(f"*-0/*.{suffix}"))
    assert len(found) >= len(CODECS)
    return found


def dump(paths: list[Path], *flags: str) -> str:
    return java.tool("3.9.1", "dump-log", *flags, "--files", ",".join(map(str, paths)), seconds=120)


def test_records_of_every_codec_are_read_back(directory: Path, sent: dict[str, list[Message]]) -> None:
    logs = files(directory, "log")
    assert len(logs) >= 3 * len(CODECS), "segments did not roll"
    printed = dump(logs, "--deep-iteration", "--print-data-log")
    assert not COMPLAINTS.search(re.sub(r"payload: \w+", "", printed))
    found: dict[str, list[Message]] = {codec: [] for codec in CODECS}
    topic = ""
    for line in printed.splitlines():
        if line.startswith("Dumping "):
            topic = line.rsplit("/", 2)[1].removesuffix("-0")
        elif line.startswith("| offset: "):
            record = re.fullmatch(
                r"\| offset: (\d+) CreateTime: (\d+) keySize: \d+ valueSize: \d+ sequence: -?\d+ "
                r"headerKeys: \[number\] key: (.*?) payload: (\w+)",
                line,
            )
            assert record, line
            number = len(found[topic])
            assert int(record[1]) == number
            found[topic].append(
                Message(record[3].encode(), record[4].encode(), int(record[2]), (("number", b"%d" % number),))
            )
        else:
            batch = re.search(r" isvalid: (\w+) ", line)
            assert batch is None or batch[1] == "true", line
    assert found == sent


@pytest.mark.parametrize("flags", [("--index-sanity-check",), ()], ids=["sanity", "contents"])
def test_indexes_are_sane_and_agree_with_their_logs(directory: Path, flags: tuple[str, ...]) -> None:
    indexes = files(directory, "index") + files(directory, "timeindex")
    printed = dump(indexes, *flags)
    assert not COMPLAINTS.search(printed), printed[-2_000:]
    if flags:
        assert printed.count("passed sanity check.") == len(indexes)
    else:
        assert printed.count("offset: ") > 20 * len(indexes) / 2, "the indexes are all but empty"


def test_producer_snapshots_are_read(directory: Path) -> None:
    snapshots = files(directory, "snapshot")
    printed = dump(snapshots)
    assert not COMPLAINTS.search(printed), printed[-2_000:]
    last = {path.parent: path for path in snapshots}
    for path in last.values():
        part = printed.split(f"Dumping {path}")[1].split("Dumping ")[0]
        producers = re.findall(r"producerId: \d+ producerEpoch: \d+ .* lastTimestamp: (\d+)", part)
        assert len(producers) == 2, part
