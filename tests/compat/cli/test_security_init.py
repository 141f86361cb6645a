"""`barnabas security init` and `barnabas start --secure`: a new user's walk, and what must not happen on it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli as program
from barnabas.cli.security import cluster, folder
from barnabas.cli.security.certificate import certificate
from barnabas.cli.security.plan import make_plan
from barnabas.cli.users.places import Tree
from barnabas.net.authority import hosts_of_certificate
from tests.support import java
from tests.support.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result


def barnabas(here: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas.cli.main", *words]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=120, **options)


def contents(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir()}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    """Three secured brokers in the background, by one command; where they are, their address, and what was said."""
    here = tmp_path_factory.mktemp("a new user's folder")
    address = f"localhost:{free_port()}"
    started = barnabas(here, "start", "--secure", "--brokers", "3", "--daemon", "--listen", address)
    try:
        assert started.returncode == 0, started.stderr
        yield here, address, started.stdout
    finally:
        stopped = barnabas(here, "stop", "--brokers", "3", "--secure")
    assert stopped.returncode == 0, stopped.stderr


def test_the_lines_that_are_printed_work_when_pasted(walk: tuple[Path, str, str]) -> None:
    here, _, told = walk
    lines = [line.strip() for line in told.splitlines() if line.startswith("  ")]
    assert [line.partition("barnabas ")[2].split()[0] for line in lines] == ["topics", "acls", "produce", "consume"]
    program = here / "bin" / "barnabas"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas.cli.main "$@"\n')
    program.chmod(0o755)
    shell = {"env": {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}, "cwd": here, "shell": True}
    for line in lines:
        done = subprocess.run(line, capture_output=True, text=True, timeout=120, **shell)  # type: ignore[call-overload]
        assert done.returncode == 0, (line, done.stderr)
    assert done.stdout == "hello\n"


def test_java_uses_the_properties_as_they_are(walk: tuple[Path, str, str]) -> None:
    here, address, _ = walk
    server = ("--bootstrap-server", address)
    admin = ("--command-config", str(here / "data.security" / "admin.properties"))
    java.tool("4.3.0", "acls", *server, *admin, "--add", "--allow-principal", "User:x", "--topic", "t")
    assert "User:x" in java.tool("4.3.0", "acls", *server, *admin, "--list")


def test_no_secret_is_in_a_log_or_in_the_list_of_processes(walk: tuple[Path, str, str]) -> None:
    here, _, told = walk
    files = "".join(file.read_text() for file in (here / "data.security").glob("*.properties"))
    secrets = set(re.findall(r"(?:password=\"?|secret\.key=|encoder\.secret=)([\w-]{16,})", files))
    assert len(secrets) == 5
    shown = told + "".join((here / "data" / str(number) / "barnabas.log").read_text() for number in range(3))
    for number in range(3):
        pid = (here / "data" / str(number) / "barnabas.pid").read_text().strip()
        for name in ("cmdline", "environ"):
            shown += Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    assert not [secret for secret in secrets if secret in shown]


def test_a_password_that_is_set_while_brokers_run_is_stored_encrypted(walk: tuple[Path, str, str]) -> None:
    here, address, _ = walk
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    name = "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config"
    login = f'{name}=[{module} username="x" password="set-meanwhile";]'
    admin = ("--bootstrap-server", address, "--command-config", "data.security/admin.properties")
    done = barnabas(here, "configs", "--alter", "--broker", "2", "--add-config", login, *admin)
    assert done.returncode == 0, done.stderr
    stored = b"".join(path.read_bytes() for path in here.rglob("*metadata*") if path.is_file())
    assert b"encryptedPassword:" in stored
    assert b"set-meanwhile" not in stored
    shown = barnabas(here, "configs", "--describe", "--broker", "2", *admin)
    assert name in shown.stdout
    assert "set-meanwhile" not in shown.stdout
    done = barnabas(here, "configs", "--alter", "--broker", "2", "--delete-config", name, *admin)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*words: str) -> Result:
    """`barnabas security init`, in this process."""
    return CliRunner().invoke(program, ["security", "init", *words])


def test_what_is_there_is_used_and_never_overwritten(here: Path) -> None:
    assert init().exit_code == 0
    before = contents(here / "data.security")
    again = init()
    assert (again.exit_code, again.output.count("\n")) == (1, 1)
    assert "Nothing was changed" in again.output
    assert contents(here / "data.security") == before
    for path in here.glob("data.metadata*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert (init().exit_code, contents(here / "data.security")) == (0, before), "only its users were missing"
    shutil.rmtree(here / "data.security")
    stranger = init()
    assert stranger.exit_code == 1
    assert "has a user admin and broker and client already" in stranger.output
    assert not (here / "data.security").exists()


def test_only_the_owner_reads_what_is_written_whatever_the_umask(here: Path) -> None:
    for mask in (0o000, 0o277):
        before = os.umask(mask)
        try:
            assert folder.write_folder(here / f"{mask:o}", {"a": "secret", "b": "secret"})
        finally:
            os.umask(before)
        assert stat.S_IMODE((here / f"{mask:o}").stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in (here / f"{mask:o}").iterdir()} == {0o600}


@pytest.mark.parametrize("kind", ["file", "folder", "dangling", "symlink"])
def test_something_else_of_that_name_is_left_alone(here: Path, kind: str) -> None:
    place, other = here / "data.security", here / "other"
    match kind:
        case "file":
            place.write_text("mine")
        case "folder":
            place.mkdir()
            (place / "mine").write_text("mine")
        case "dangling":
            place.symlink_to(other)
        case "symlink":
            other.mkdir()
            place.symlink_to(other)
    before = sorted(here.rglob("*"))
    done = init()
    assert (done.exit_code, done.output.count("\n")) == (1, 1), done.output
    assert sorted(here.rglob("*")) == before


def test_a_folder_that_cannot_be_written_is_one_line(here: Path) -> None:
    refused = init("--folder", "/proc/secured")
    assert (refused.exit_code, refused.output.count("\n")) == (1, 1), refused.output
    assert "/proc/" in refused.output
    assert not list(here.iterdir())


def test_two_at_once_make_one_folder(tmp_path: Path) -> None:
    plan = make_plan(data=tmp_path / "data")
    with ThreadPoolExecutor(4) as pool:
        made = [each.files for each in pool.map(lambda _: cluster.secure(plan), range(4))]
    assert made.count(True) == 1
    assert not list(tmp_path.glob(".*"))
    assert cluster.secure(plan) == (False, False)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fsync, 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        cluster.secure(make_plan(data=tmp_path / "data"))
    assert not list(tmp_path.iterdir())


def test_a_killed_init_is_made_up_for(here: Path) -> None:
    """Killed at some moments of its first second: the folder is whole or not there, and the next one ends it."""
    words = [sys.executable, "-m", "barnabas.cli.main", "security", "init"]
    for tenths in (3, 4, 5):
        victim = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(tenths / 10)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        place = here / "data.security"
        assert not place.exists() or len(list(place.iterdir())) == 8
    assert cluster.secure(make_plan()).users or place.exists()
    assert cluster.secure(make_plan()) == (False, False)


def test_a_store_with_some_of_the_users_gets_all_of_them(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(self: Tree, name: str, *rest: Any) -> None:
        if name == "broker":
            raise KeyboardInterrupt
        real(self, name, *rest)

    real = Tree.add
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Tree, "add", die)
        cluster.secure(make_plan())
    assert cluster.secure(make_plan()) == (False, True)
    assert cluster.secure(make_plan()) == (False, False)


def test_drafts_of_killed_processes_go_and_others_stay(here: Path) -> None:
    old, young, held = (here / f".place.{name}.draft" for name in ("old", "young", "held"))
    for draft in (old, young, held):
        draft.mkdir()
        (draft / "ca.key").write_text("secret")
    for draft in (old, held):
        os.utime(draft, (0, 0))
    lock = os.open(held, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert folder.write_folder(here / "place", {"a": "text"})
    finally:
        os.close(lock)
    assert [draft.exists() for draft in (old, young, held)] == [False, True, True]


def test_odd_hosts_are_named_or_refused(here: Path) -> None:
    plan = make_plan(listen="[::1]:9092", hosts=["MY_HOST", "münchen.example", "10.0.0.1"])
    assert {"::1", "my_host", "xn--mnchen-3ya.example", "10.0.0.1", "localhost"} <= set(plan.hosts)
    for host in ("a b", "fe80::1%lo", "x..y"):
        refused = init("--host", host)
        assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
    assert not list(here.iterdir())


def test_without_cryptography_it_is_said_what_to_install(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    refused = init()
    assert (refused.exit_code, "pip install 'barnabas[security]'" in refused.output) == (1, True)
    assert not list(here.iterdir())


def test_another_certificate_is_made_and_none_is_overwritten(here: Path) -> None:
    assert init().exit_code == 0
    words = ["security", "certificate", "alice", "--host", "alice.example", "--out", "alice.pem"]
    assert CliRunner().invoke(program, words).exit_code == 0
    before = (here / "alice.pem").read_bytes()
    again = CliRunner().invoke(program, words)
    assert (again.exit_code, (here / "alice.pem").read_bytes()) == (1, before)
    context = ssl.create_default_context(cafile=here / "data.security" / "ca.pem")
    context.load_cert_chain(here / "alice.pem")
    assert stat.S_IMODE((here / "alice.pem").stat().st_mode) == 0o600


def test_a_certificate_that_expires_is_replaced_as_the_help_says(here: Path) -> None:
    """The new one has all names of the old one: a broker refuses one that lacks some."""
    assert init("--host", "one.example").exit_code == 0
    old = here / "data.security" / "broker.pem"
    (example,) = (line for line in certificate.examples if "--like" in line[1])
    words = shlex.split(example[1].partition("&&")[0])
    assert CliRunner().invoke(program, words[1:]).exit_code == 0
    names = hosts_of_certificate(old.read_text())
    assert {"localhost", "127.0.0.1", "one.example"} < set(names)
    assert hosts_of_certificate((here / "new.pem").read_text()) == names
    refused = CliRunner().invoke(
        program, ["security", "certificate", "x", "--like", str(old.with_name("ca.key")), "--out", "x"]
    )
    assert (refused.exit_code, "no certificate that can be read" in refused.output) == (1, True)
