"""Whoever puts a secret on the command line is told that others can read it there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.common.broker_options import BrokerCommandOptions
from barnabas.cli.common.values.secrets import warn_of_secrets
from barnabas.model.environment import READY_FD

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

JAAS = "listener.name.sasl_ssl.plain.sasl.jaas.config"
TOLD = "Warning: other users of this machine can read the value of %s in the list of processes. Put it elsewhere.\n"


@pytest.mark.parametrize(
    "name",
    [
        "ssl.key.password",
        "listener.name.internal.ssl.keystore.password",
        JAAS,
        "password.encoder.secret",
        "delegation.token.secret.key",
        "zookeeper.auth.password",
        "metrics.token",
        "sasl.password",
    ],
)
def test_a_secret_is_known_by_its_definition(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_secrets({name: "x", "log.dirs": "/data"}, "Put it elsewhere.")
    assert capsys.readouterr() == ("", TOLD % name)


def test_several_are_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_secrets({"ssl.key.password": "x", "node.id": "1", JAAS: "y"}, "Put it elsewhere.")
    assert capsys.readouterr().err == TOLD % f"ssl.key.password, {JAAS}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "6"),
        ("ssl.keystore.location", "/key.pem"),
        ("no.such.key", "x"),
        ("ssl.key.password", ""),
        ("ssl.key.password", "${env:KEY_PASSWORD}"),
        (JAAS, 'ScramLoginModule required username="b" password="${file:/run/secrets/b.properties:password}";'),
    ],
)
def test_nothing_is_said_of_what_is_no_secret_or_stands_elsewhere(
    name: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_secrets({name: value}, "Put it elsewhere.")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("started_by_another", [False, True])
def test_a_start_says_it_once_however_many_brokers_it_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], started_by_another: bool
) -> None:
    monkeypatch.delenv(READY_FD, raising=False)
    if started_by_another:
        monkeypatch.setenv(READY_FD, "3")
    options = BrokerCommandOptions(
        config=None,
        settings=("ssl.key.password=x",),
        listen=None,
        data=None,
        brokers=None,
        first_id=0,
        daemon=False,
        secure=False,
        console=None,
        metrics=None,
    )
    options.warn_of_secrets()
    told = capsys.readouterr().err
    assert ("ssl.key.password" in told and "--config" in told and "config.providers" in told) is not started_by_another


def test_properties_of_clients_are_looked_at_too(run: Run) -> None:
    result = run(
        "produce", "--topic", "t", "--command-property", "sasl.password=x", "--bootstrap-server", "localhost:1"
    )
    assert (
        "can read the value of sasl.password in the list of processes. Put it into the file of --command-config."
        in (click.unstyle(result.stderr))
    )
