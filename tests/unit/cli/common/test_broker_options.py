from __future__ import annotations

from pathlib import Path

import click
import pytest

from barnabas.cli.common.broker_options import load_config
from barnabas.model.errors import ConfigError


@pytest.fixture
def kafkas_file(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(
        "# as Kafka ships it\n"
        "listeners=PLAINTEXT://:9093\n"
        "advertised.listeners=PLAINTEXT://broker.example:9093\n"
        "log.dirs=/srv/a,/srv/b\n"
        "metadata.store=/srv/store\n"
        "num.partitions=4\n"
    )
    return file


def test_without_a_file_it_is_for_this_machine_only() -> None:
    config = load_config()
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://localhost:9092"]
    assert config.log_dirs == (Path.cwd() / "data",)


def test_a_file_brings_kafkas_settings_and_defaults(kafkas_file: Path) -> None:
    config = load_config(kafkas_file)
    assert [str(listener) for listener in config.advertised] == ["PLAINTEXT://broker.example:9093"]
    assert config.log_dirs == (Path("/srv/a"), Path("/srv/b"))
    assert config.number("num.partitions") == 4
    kafkas_file.write_text("num.partitions=2\n")
    assert [listener.host for listener in load_config(kafkas_file).listeners] == [""]


def test_options_replace_all_that_the_file_says_of_the_same_thing(kafkas_file: Path, tmp_path: Path) -> None:
    config = load_config(kafkas_file, (), "127.0.0.1:0", tmp_path / "d")
    assert [str(listener) for listener in config.advertised] == ["PLAINTEXT://127.0.0.1:0"]
    assert config.log_dirs == (tmp_path / "d",)
    assert config.metadata_store == tmp_path / "d.metadata"


def test_set_is_the_strongest(kafkas_file: Path, tmp_path: Path) -> None:
    settings = ("num.partitions=8", "log.dirs=/srv/c", "listeners=PLAINTEXT://localhost:7")
    config = load_config(kafkas_file, settings, "localhost:1", tmp_path)
    assert config.number("num.partitions") == 8
    assert config.log_dirs == (Path("/srv/c"),)
    assert [listener.port for listener in config.listeners] == [7]


def test_set_alone_keeps_the_other_defaults() -> None:
    config = load_config(settings=("listeners=PLAINTEXT://localhost:7",))
    assert [listener.port for listener in config.listeners] == [7]
    assert config.log_dirs == (Path.cwd() / "data",)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="a port is a number from 0 to 65535"):
        load_config(listen="localhost:70000")


@pytest.mark.parametrize("listen", ["localhost", "9092", "localhost:http", "localhost:"])
def test_where_to_listen_is_a_host_and_a_port(listen: str) -> None:
    with pytest.raises(click.UsageError, match=f"--listen {listen} is not of the form HOST:PORT"):
        load_config(listen=listen)
