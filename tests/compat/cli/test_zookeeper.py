"""`barnabas zookeeper start` and `stop` with a real server: that of a folder, and that of a package like pyspark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import jars
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

BARNABAS: Final = [sys.executable, "-m", "barnabas.cli.main"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """ZooKeeper as it is unpacked: jars in lib."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "lib").symlink_to(jars.kafka("3.9.1"))
    return os.environ | {"ZOOKEEPER_HOME": str(tmp_path / "home")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Kafka's zookeeper.properties, with another port and folder."""
    path = tmp_path / "zookeeper.properties"
    path.write_text(f"dataDir={tmp_path / 'data'}\nclientPort={free_port()}\nadmin.enableServer=false\n")
    return path


def serves(port: int) -> bool:
    try:
        with socket.create_connection(("localhost", port), 1) as connection:
            connection.sendall(b"srvr")
            return connection.recv(1000).startswith(b"Zookeeper version: 3.")
    except OSError:
        return False


def test_in_the_foreground_until_sigterm(tmp_path: Path, file: Path, environment: dict[str, str]) -> None:
    port = int(file.read_text().split("clientPort=")[1].split()[0])
    command = [*BARNABAS, "zookeeper", "start", str(file)]
    with Process("zookeeper", command, tmp_path / "log", env=environment) as process:
        wait_until(lambda: serves(port), "ZooKeeper to serve", 60)
        where = f"on localhost:{port}; data in {tmp_path / 'data'}"
        assert process.output().startswith(f"ZooKeeper of {tmp_path / 'home'} {where}\n")
        process.stop()
    assert not serves(port)


def test_in_the_background(tmp_path: Path, environment: dict[str, str]) -> None:
    port, data = free_port(), tmp_path / "data"

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [*BARNABAS, "zookeeper", *map(str, words), "--data", str(data)]
        return subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment)

    started = run("start", "--port", port, "--daemon")
    try:
        assert started.returncode == 0, started.stderr
        assert f"its log is {data / 'zookeeper.log'}" in started.stdout
        wait_until(lambda: serves(port), "ZooKeeper to serve", 60)
        again = run("start", "--port", port, "--daemon")
        assert (again.returncode, again.stderr.count("is taken")) == (1, 1)
    finally:
        stopped = run("stop")
    assert stopped.stdout.startswith(f"Stopped the ZooKeeper on {data} (process ")
    assert not serves(port)
    assert run("stop").stdout == f"No ZooKeeper is running on {data}.\n"


def test_a_server_that_cannot_start_is_told(tmp_path: Path, file: Path, environment: dict[str, str]) -> None:
    file.write_text(file.read_text() + "tickTime=soon\n")
    command = [*BARNABAS, "zookeeper", "start", str(file), "--daemon"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environment)
    assert done.returncode == 1
    assert "before it listened: see" in done.stderr
    assert "Invalid config" in (tmp_path / "data" / "zookeeper.log").read_text()


def test_the_one_inside_of_pyspark(tmp_path: Path) -> None:
    """A package of that name with jars, of which one is ZooKeeper's: what pyspark looks like from outside."""
    package = tmp_path / "site" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "jars").symlink_to(jars.kafka("3.9.1"))
    port = free_port()
    environment = {"ZOOKEEPER_HOME": "", "PYTHONPATH": str(tmp_path / "site")}
    code = (
        "from pathlib import Path\n"
        "from barnabas.cli.zookeeper import servers\n"
        "servers.DEBIAN_JARS, servers.HOMEBREW_HOMES = Path('/nowhere'), ()\n"
        "from barnabas.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "zookeeper", "start", "--data", str(tmp_path / "data"), "--port", str(port)]
    with Process("zookeeper", command, tmp_path / "log", env=environment) as process:
        wait_until(lambda: serves(port), "ZooKeeper to serve", 60)
        assert "ZooKeeper of pyspark on localhost" in process.output()
