from __future__ import annotations

import logging
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from barnabas import __version__
from barnabas.broker.app import ReadyInfo
from barnabas.cli.start import service
from barnabas.cli.start.command import address_of_clients
from barnabas.model.config.listeners import Listener
from barnabas.model.environment import READY_FD
from barnabas.model.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.model.config.broker import BrokerConfig
    from tests.unit.cli.conftest import Run


class FakeBroker(ModuleType):
    """`barnabas.broker.app` without a broker: it is ready at once, and ends at once."""

    def __init__(self) -> None:
        super().__init__("barnabas.broker.app")
        self.code = 0
        self.failure: Exception | None = None
        self.configs: list[BrokerConfig] = []
        self.pid_when_ready: int | None = None

    def run(self, config: BrokerConfig, on_ready: Callable[[object], None]) -> int:
        self.configs.append(config)
        if self.failure is not None:
            raise self.failure
        config.log_dirs[0].mkdir(exist_ok=True)
        on_ready(
            SimpleNamespace(
                listeners=(Listener("PLAINTEXT", "localhost", 19092), Listener("OUTSIDE", "", 19093)),
                log_dirs=config.log_dirs,
                summary="2 partitions",
                seconds=0.1234,
                metrics_port=None,
            )
        )
        self.pid_when_ready = service.read_pid(config.log_dirs[0])
        return self.code


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    fake = FakeBroker()
    monkeypatch.setitem(sys.modules, "barnabas.broker.app", fake)
    monkeypatch.setattr("barnabas.broker.app", fake, raising=False)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    return fake


def test_the_ready_line_says_where_what_and_how_fast(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    data = tmp_path / "data"
    result = run("start", "--data", data)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"Barnabas {__version__} is ready on localhost:19092, *:19093; data in {data} (2 partitions); "
        "started in 0.12 s\n"
    )


OPEN = "starts without --secure. Whoever reaches it may do everything."


def test_a_secured_cluster_is_not_opened_to_everybody_without_a_word(
    run: Run, broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.security").mkdir()
    result = run("start", "--data", tmp_path / "data")
    assert result.exit_code == 0
    assert OPEN in result.stderr
    monkeypatch.setattr("barnabas.cli.start.several.run", lambda *_, **__: 0)
    result = run("start", "--data", tmp_path / "data", "--brokers", "2")
    assert result.exit_code == 0
    assert OPEN in result.stderr


def test_secrets_on_the_command_line_are_warned_of(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    name = "listener.name.plaintext.plain.sasl.jaas.config"
    words = ("--set", f"{name}=hunter2 required;", "--set", "telemetry.otlp.token=hunter2", "--set", "num.partitions=2")
    result = run("start", "--data", tmp_path, *words)
    assert result.exit_code == 0
    [warned] = [line for line in result.stderr.splitlines() if "in the list of processes" in line]
    assert f"the value of {name}, telemetry.otlp.token in" in warned
    assert "hunter2" not in result.stderr


def test_what_to_type_next_is_for_the_listener_with_logins() -> None:
    """With another listener beside it, both stood there with a comma and a blank between them."""
    first, login = Listener("CERTIFICATES", "::1", 9094, "SSL"), Listener("LOGINS", "", 9093, "SASL_SSL")
    info = ReadyInfo((first, login), (), "", 0.0)
    assert address_of_clients(info, secured=True) == "*:9093"
    assert address_of_clients(info, secured=False) == "[::1]:9094"


def test_the_pid_file_is_there_while_the_broker_runs(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    run("start", "--data", tmp_path)
    assert broker.pid_when_ready == os.getpid()
    assert service.read_pid(tmp_path) is None


def test_options_become_configuration(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\nlog.retention.hours=1\n")
    words = ("--set", "log.retention.hours=2", "--set", "num.io.threads=2", "--listen", "localhost:0")
    run("start", "--config", file, *words, "--data", tmp_path)
    (config,) = broker.configs
    assert config.number("num.partitions") == 3
    assert config.number("log.retention.hours") == 2
    assert [str(listener) for listener in config.listeners] == ["PLAINTEXT://localhost:0"]
    assert config.log_dirs == (tmp_path,)


def test_keys_without_effect_are_named(
    run: Run, broker: FakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run("start", "--data", tmp_path, "--set", "zookeeper.ssl.crl.enable=true")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "zookeeper.ssl.crl.enable" in caplog.text


def test_the_exit_code_is_the_brokers(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    broker.code = 1
    assert run("start", "--data", tmp_path).exit_code == 1


def test_what_keeps_a_broker_from_starting_is_told_in_one_line(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    broker.failure = StartupError("port 9092 is taken: choose another with --listen")
    result = run("start", "--data", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: port 9092 is taken: choose another with --listen\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--set", "num.partitions"), "'num.partitions' is not a setting: write it as key=value"),
        (("--set", "num.partitons=1"), "num.partitons is not a configuration key: did you mean num.partitions?"),
        (("--set", "num.partitions=many"), "num.partitions"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told_in_one_line(
    run: Run, broker: FakeBroker, tmp_path: Path, words: tuple[str, str], complaint: str
) -> None:
    result = run("start", "--data", tmp_path, *words)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert complaint in result.stderr
    assert broker.configs == []


def test_a_missing_file_is_wrong_usage(run: Run, broker: FakeBroker, tmp_path: Path) -> None:
    result = run("start", "--config", tmp_path / "nowhere.properties")
    assert result.exit_code == 2
    assert "nowhere.properties" in result.stderr


class TestBackground:
    """The broker itself is a small program here; tests/compat/cli has the real one."""

    @pytest.fixture
    def program(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
        """Let every program that `service` starts be this one."""

        def install(source: str) -> None:
            script = tmp_path / "program"
            script.write_text(f"#!{sys.executable}\n{source}")
            script.chmod(0o755)
            monkeypatch.setattr(sys, "executable", str(script))

        return install

    def test_returns_when_it_is_ready(self, program: Callable[[str], None], tmp_path: Path) -> None:
        program(
            "import os, sys\n"
            "print('log line')\n"
            "os.write(int(os.environ['BARNABAS_READY_FD']), ' '.join(sys.argv[3:]).encode())\n"
        )
        child, ready = service.start_in_background(["start", "--set", "a=b c"], tmp_path / "data")
        assert ready == "start --set a=b c"
        assert child.wait(60) == 0
        assert (tmp_path / "data" / "barnabas.log").read_text() == "log line\n"

    def test_its_last_words_are_told(self, run: Run, program: Callable[[str], None], tmp_path: Path) -> None:
        (tmp_path / "barnabas.log").write_text("Error: of an earlier run\n")
        program("import sys; sys.exit('INFO something\\nError: port 9092 is taken')")
        result = run("start", "--daemon", "--data", tmp_path)
        assert (result.exit_code, result.stdout, result.stderr) == (1, "", "Error: port 9092 is taken\n")

    def test_a_death_without_words_points_to_the_log(
        self, run: Run, program: Callable[[str], None], tmp_path: Path
    ) -> None:
        (tmp_path / "barnabas.log").write_text("Error: of an earlier run\n")
        program("raise SystemExit(9)")
        result = run("start", "--daemon", "--data", tmp_path)
        assert result.exit_code == 1
        assert result.stderr == (
            f"Error: the broker ended with code 9 before it was ready: see {tmp_path / 'barnabas.log'}\n"
        )

    def test_ctrl_c_ends_what_is_not_ready_yet(self, program: Callable[[str], None], tmp_path: Path) -> None:
        program(
            "import os, signal, time\n"
            "print(os.getpid(), flush=True)\n"
            "os.kill(os.getppid(), signal.SIGINT)\n"
            "time.sleep(60)\n"
        )
        with pytest.raises(KeyboardInterrupt):
            service.start_in_background(["start"], tmp_path)
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "barnabas.log").read_text()), 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--brokers", "1000000000"), "1000000000 is not from 1 to 100."),
        (("--brokers", "0"), "0 is not from 1 to 100."),
        (
            ("--brokers", "3", "--listen", "localhost:65534"),
            "--listen localhost:65534 leaves no room for 3 brokers: ports end at 65535.",
        ),
    ],
)
def test_more_brokers_than_a_machine_has_room_for_are_refused(run: Run, words: tuple[str, ...], told: str) -> None:
    result = run("start", *words)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"{told}\n")


@pytest.mark.parametrize("more", [(), ("--daemon",)])
def test_several_brokers_with_wrong_settings_leave_no_data_directory(
    run: Run, tmp_path: Path, more: tuple[str, ...]
) -> None:
    """One was made for the lock of the command that runs them."""
    result = run("start", "--brokers", "2", "--data", tmp_path / "data", "--set", "num.partitions=abc", *more)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "num.partitions" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_pid_file_says_since_when_a_broker_is_ready(tmp_path: Path) -> None:
    assert service.seconds_ready(tmp_path) > 1e9, "there is none that is waited for"
    service.write_pid(tmp_path)
    assert service.seconds_ready(tmp_path) < 600
    os.utime(tmp_path / service.PID_FILE, (0, 0))
    assert service.seconds_ready(tmp_path) > 1e9


def test_a_broker_is_ready_also_when_nobody_waits_for_that(
    run: Run, broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended without a word when the terminal of its `start --daemon` or `restart` was closed."""
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setenv(READY_FD, str(writer))
    assert run("start", "--data", tmp_path / "data").exit_code == 0
    assert broker.pid_when_ready == os.getpid()
