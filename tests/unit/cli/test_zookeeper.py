from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.zookeeper import servers
from barnabas.cli.zookeeper.command import PID_FILE, default_settings, read_settings, stop_server
from barnabas.cli.zookeeper.servers import MAIN_CLASS, find_java, find_server, java_release

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any ZooKeeper, and with a Java 17; tests put things into it."""
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    monkeypatch.setattr(servers, "DEBIAN_JARS", tmp_path / "java")
    monkeypatch.setattr(servers, "HOMEBREW_HOMES", (tmp_path / "brew",))
    monkeypatch.setattr(servers, "find_spec", lambda name: None)
    install_java(tmp_path, monkeypatch, "17.0.15")
    return tmp_path


def install_java(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Path:
    java = put(folder / "jdk" / "bin" / "java")
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder / "jdk"))
    return java


def put(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    return file


class PySpark:
    """What find_spec says of an installed package."""

    def __init__(self, folder: Path) -> None:
        put(folder / "jars" / "zookeeper-3.9.5.jar")
        self.submodule_search_locations = [str(folder)]


def test_the_one_of_zookeeper_home_comes_first(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bare_machine / "java" / "zookeeper.jar")
    put(bare_machine / "home" / "lib" / "zookeeper-3.9.5.jar")
    monkeypatch.setenv("ZOOKEEPER_HOME", str(bare_machine / "home"))
    found = find_server()
    assert found.origin == str(bare_machine / "home")
    assert found.class_path.split(os.pathsep) == [f"{bare_machine}/home/conf", f"{bare_machine}/home/lib/*"]


@pytest.mark.parametrize("jars", [["zookeeper-3.4.14.jar", "lib/slf4j-api-1.7.25.jar"], ["libs/zookeeper-3.8.4.jar"]])
def test_older_releases_and_kafkas(bare_machine: Path, monkeypatch: pytest.MonkeyPatch, jars: list[str]) -> None:
    for jar in jars:
        put(bare_machine / "home" / jar)
    monkeypatch.setenv("ZOOKEEPER_HOME", str(bare_machine / "home"))
    parts = find_server().class_path.split(os.pathsep)
    assert {f"{(bare_machine / 'home' / jar).parent}/*" for jar in jars} <= set(parts)


def test_a_home_without_a_zookeeper_is_an_error(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bare_machine / "java" / "zookeeper.jar")
    monkeypatch.setenv("ZOOKEEPER_HOME", str(bare_machine))
    with pytest.raises(Failed, match=r"holds no zookeeper-\*\.jar"):
        find_server()


def test_the_systems_package_comes_before_pyspark(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: PySpark(bare_machine / "pyspark"))
    assert find_server().origin == "pyspark"
    put(bare_machine / "brew" / "lib" / "zookeeper-3.9.4.jar")
    assert find_server().origin == str(bare_machine / "brew")
    put(bare_machine / "java" / "zookeeper.jar")
    assert find_server().origin == "the system's package"


def test_the_command(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda name: PySpark(bare_machine / "pyspark"))
    words = find_server().command(Path("zoo.cfg"))
    assert words[0] == str(bare_machine / "jdk" / "bin" / "java")
    assert words[-4:] == ["-cp", f"{bare_machine}/pyspark/jars/*", MAIN_CLASS, "zoo.cfg"]


def test_nothing_installed_says_what_to_install(run: Run) -> None:
    result = run("zookeeper", "start")
    assert result.exit_code == 1
    for advice in ("apt-get install zookeeper", "brew install zookeeper", "ZOOKEEPER_HOME=DIR", "pip install pyspark"):
        assert advice in result.stderr
    assert not Path("zookeeper").exists()


def test_no_java_says_what_to_install(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(bare_machine))
    with pytest.raises(Failed, match=r"JAVA_HOME=.* has no bin/java, and ZooKeeper needs it: `apt-get install default"):
        find_java(8)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Failed, match="Java is not installed, and ZooKeeper needs it"):
        find_java(8)


def test_an_old_java_is_told(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = install_java(bare_machine, monkeypatch, "1.8.0_412")
    assert find_java(8) == str(java)
    with pytest.raises(Failed, match="is Java 8; this ZooKeeper needs Java 17 or newer"):
        find_java(17)


@pytest.mark.parametrize(
    ("told", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_412"', 8),
        ('openjdk version "25-ea"', 25),
        ("", None),
    ],
)
def test_java_releases(told: str, release: int | None) -> None:
    assert java_release(told) == release


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "zookeeper.properties"
    file.write_text("# a comment\ndataDir = /var/zk \nclientPort=2181\n")
    assert read_settings(file) == (file, Path("/var/zk"), "localhost", 2181)
    file.write_text("dataDir=/var/zk\nsecureClientPort=2182\nclientPortAddress=10.0.0.5\n")
    assert read_settings(file)[2:] == ("10.0.0.5", 2182)


@pytest.mark.parametrize(("text", "complaint"), [("clientPort=1\n", "no dataDir"), ("dataDir=x\n", "no clientPort")])
def test_files_that_say_too_little(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "zookeeper.properties"
    file.write_text(text)
    with pytest.raises(Failed, match=complaint):
        read_settings(file)


def test_without_a_file_one_is_written(tmp_path: Path) -> None:
    settings = default_settings(tmp_path / "zk", 2345)
    assert read_settings(settings.file) == settings


def test_the_shipped_file_is_kafkas() -> None:
    settings = read_settings(Path(__file__).parents[3] / "config" / "zookeeper.properties")
    assert (settings.data, settings.port) == (Path("/tmp/zookeeper"), 2181)


def test_a_taken_port_is_told(bare_machine: Path, run: Run) -> None:
    put(bare_machine / "java" / "zookeeper.jar")
    with socket.create_server(("localhost", 0)) as taken:
        result = run("zookeeper", "start", "--data", bare_machine / "zk", "--port", taken.getsockname()[1])
    assert result.exit_code == 1
    assert "is taken, perhaps by another ZooKeeper" in result.stderr


def test_a_file_and_options_do_not_go_together(run: Run, tmp_path: Path) -> None:
    file = put(tmp_path / "zookeeper.properties")
    assert "leave out --data and --port" in run("zookeeper", "start", file, "--port", 1).stderr
    assert "leave out --data" in run("zookeeper", "stop", file, "--data", tmp_path).stderr


def test_a_pid_of_another_process_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / PID_FILE
    file.write_text(f"{os.getpid()}\n")
    assert stop_server(tmp_path) is None
    assert not file.exists()
