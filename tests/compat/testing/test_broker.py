"""A broker of one's own, without pytest's fixtures."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import AsyncProducer, Consumer, Producer
from barnabas.testing import Broker, BrokerFailed
from tests.support.brokers import Barnabas
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


def alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def listening_unix_sockets(pid: int) -> Iterator[str]:
    """The paths of the Unix sockets that a process listens on."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        target = ""
        with suppress(FileNotFoundError):  # it was closed meanwhile
            target = str(descriptor.readlink())
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        _, _, _, flags, _, _, inode, *path = line.split()
        if inode in inodes and int(flags, 16) & 0x10000:
            yield path[0] if path else ""


def values(broker: Broker, topic: str) -> list[bytes | None]:
    with Consumer(broker.bootstrap_servers, topic, auto_offset_reset="earliest") as consumer:
        return [record.value for record in consumer.until_end()]


def test_a_broker_serves_within_its_block_and_leaves_nothing_behind() -> None:
    with Broker() as broker:
        pid, data = broker.pid, broker.data
        assert broker.running
        assert data.is_dir()
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("greetings", b"hello")
        assert values(broker, "greetings") == [b"hello"]
    assert not alive(pid)
    assert not data.exists()
    assert not broker.running


async def test_a_broker_works_in_coroutines_too() -> None:
    async with Broker() as broker:
        async with broker.faults.fail("PRODUCE", "REQUEST_TIMED_OUT", times=1) as fault:
            async with AsyncProducer(broker.bootstrap_servers) as producer:
                stored = await (await producer.send("greetings", b"hello"))
            assert (stored.offset, fault.fired) == (0, 1)
        pid = broker.pid
    assert not alive(pid)


def test_settings_are_kafkas() -> None:
    config = {"num.partitions": 3, "auto.create.topics.enable": True}
    with Broker(config) as broker, Producer(broker.bootstrap_servers) as producer:
        assert producer.partitions("made-by-asking") == 3


def test_a_setting_that_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        Broker({"num.partitions": "many"}).start()
    assert list(tmp_path.iterdir()) == [], "nothing temporary is left"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerFailed, match=f"cannot listen on 127.0.0.1:{port}"):
            Broker(port=port).start()


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_a_broker_that_ended_comes_back_with_its_port_and_data(end: object) -> None:
    assert callable(end)
    with Broker() as broker:
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("greetings", b"before")
        port, pid = broker.port, broker.pid
        end(broker)
        assert not alive(pid)
        broker.start()
        assert (broker.port, broker.pid != pid) == (port, True)
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("greetings", b"after")
        assert values(broker, "greetings") == [b"before", b"after"]


def test_a_restart_ends_faults() -> None:
    with Broker() as broker:
        fault = broker.faults.fail("PRODUCE", "CLUSTER_AUTHORIZATION_FAILED")
        broker.restart()
        with Producer(broker.bootstrap_servers) as producer:
            producer.send("greetings", b"hello")
        fault.remove()


def test_data_can_be_kept(tmp_path: Path) -> None:
    with Broker(data=tmp_path / "kept") as broker, Producer(broker.bootstrap_servers) as producer:
        producer.send("greetings", b"hello")
    assert (tmp_path / "kept" / "greetings-0").is_dir()
    with Broker(data=tmp_path / "kept") as broker:
        assert values(broker, "greetings") == [b"hello"]


def test_what_is_asked_of_a_broker_that_is_not_there_says_so() -> None:
    broker = Broker()
    with pytest.raises(BrokerFailed, match="not started yet"):
        _ = broker.faults
    with broker:
        faults = broker.faults
    with pytest.raises(BrokerFailed, match="is it running"):
        faults.fail("PRODUCE", "REQUEST_TIMED_OUT")
    with pytest.raises(BrokerFailed, match="not running"):
        _ = broker.pid
    with pytest.raises(BrokerFailed, match="is closed"):
        broker.log()


def test_only_its_user_can_reach_the_private_socket() -> None:
    with Broker() as broker:
        (path,) = listening_unix_sockets(broker.pid)
        mode = Path(path).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


def test_a_broker_that_nobody_tests_with_has_no_private_socket(tmp_path: Path) -> None:
    with Barnabas(tmp_path) as broker:
        assert list(listening_unix_sockets(broker.pid)) == []


STARTS_A_BROKER = """
import sys
from barnabas.testing import Broker
broker = Broker()
broker.start()
print(broker.pid, flush=True)
sys.stdin.read()
"""


def test_a_broker_does_not_outlive_a_killed_test_run() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_BROKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        assert alive(pid)
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: not alive(pid), "the broker's end")
