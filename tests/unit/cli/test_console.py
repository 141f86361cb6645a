"""What `barnabas console` makes of its options before it opens anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.console import command as console
from barnabas.cli.start import console_child
from barnabas.cli.start.command import command as start

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.console.settings import ConsoleSettings


def settings_of(*words: str) -> ConsoleSettings:
    """The settings that the options stand for."""
    context = console.command.make_context("console", list(words))
    options = console.Options(**context.params)
    options.check()
    return console._settings(options, 8080)


@pytest.mark.parametrize(
    ("words", "read_only"),
    [
        ((), False),
        (("--listen", "localhost:1"), False),
        (("--listen", "127.0.0.2:1"), False),
        (("--listen", "[::1]:1"), False),
        (("--read-only",), True),
        (("--listen", "0.0.0.0:1"), True),
        (("--listen", "console.example.com:1"), True),
        (("--listen", "0.0.0.0:1", "--allow-changes"), False),
        (("--listen", "localhost:1", "--behind-proxy"), True),
        (("--listen", "localhost:1", "--behind-proxy", "--allow-changes"), False),
    ],
)
def test_a_console_outside_loopback_changes_nothing_unless_it_is_told_to(
    words: tuple[str, ...], read_only: bool
) -> None:
    assert settings_of(*words).read_only is read_only


@pytest.mark.parametrize("address", ["8080", "localhost:", "localhost:http", "localhost:65536"])
def test_an_address_that_is_none_is_refused_before_anything_is_started(tmp_path: Path, address: str) -> None:
    with pytest.raises(click.UsageError, match=f"--listen {address} is not of the form HOST:PORT"):
        settings_of("--listen", address)
    words = ["--console", address, "--data", str(tmp_path / "data"), "--listen", "localhost:0", "--secure"]
    with pytest.raises(click.UsageError, match=f"--console {address} is not of the form HOST:PORT"):
        start.main(words, standalone_mode=False)
    assert not list(tmp_path.iterdir())


def test_passwords_and_tokens_do_not_cross_a_network_as_they_are() -> None:
    words = ("--oidc-issuer", "https://login.example.com", "--oidc-client-id", "console")
    outside = (*words, "--listen", "0.0.0.0:1")
    console._refuse_plain_logins(settings_of(*words))
    console._refuse_plain_logins(settings_of(*outside, "--behind-proxy"))
    with pytest.raises(Failed, match="unencrypted"):
        console._refuse_plain_logins(settings_of(*outside))
    with pytest.raises(Failed, match="https://"):
        settings_of("--oidc-issuer", "http://login.example.com", "--oidc-client-id", "console")
    with pytest.raises(click.UsageError):
        settings_of("--oidc-issuer", "https://login.example.com")


@pytest.mark.parametrize(
    "name",
    ["ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location", "ssl.keystore.certificate.chain"],
)
def test_a_certificate_is_not_lent_to_everybody_who_reaches_the_console(tmp_path: Path, name: str) -> None:
    """Brokers that ask for a certificate ask for no login: everybody elsewhere read all records in its name.

    So did everybody who came by a proxy to a console on a loopback address.
    """
    (file := tmp_path / "console.properties").write_text(f"security.protocol=SSL\n{name}=x\n")
    given = ("--command-config", str(file), "--listen")
    console._refuse_open_certificate(settings_of(*given, "localhost:1"), anonymous=False)
    for outside in (("0.0.0.0:1",), ("localhost:1", "--behind-proxy", "--name", "console.example.com")):
        settings = settings_of(*given, *outside)
        console._refuse_open_certificate(settings, anonymous=True)
        with pytest.raises(Failed, match="Nobody logs in"):
            console._refuse_open_certificate(settings, anonymous=False)
    file.write_text(f"security.protocol=SASL_SSL\n{name}=x\n")
    console._refuse_open_certificate(
        settings_of("--command-config", str(file), "--listen", "0.0.0.0:1"), anonymous=False
    )
    console._refuse_open_certificate(settings_of("--listen", "0.0.0.0:1"), anonymous=False)


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        ("security.protocol=SSL", None),
        ("security.protocol=SASL_SSL", "has no user of its own"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=x\nsasl.password=y", None),
        (
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=x password=y;",
            None,
        ),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.method=oidc", "OAUTHBEARER"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "GSSAPI"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config=nonsense", "cannot be used"),
    ],
)
def test_the_console_says_why_it_does_not_get_in_itself(tmp_path: Path, lines: str, failure: str | None) -> None:
    """It said of every login that is none by name and password that there is no user."""
    (file := tmp_path / "console.properties").write_text(f"{lines}\n")
    found = settings_of("--command-config", str(file)).own_login_failure
    assert found is None if failure is None else failure in str(found)


def test_metrics_of_clients_are_taken_on_request_and_with_a_token_where_one_is_given(tmp_path: Path) -> None:
    token, empty = tmp_path / "token", tmp_path / "empty"
    token.write_text("secret\n")
    empty.write_text("\n")
    assert settings_of().telemetry is None
    taken = settings_of("--telemetry").telemetry
    assert taken is not None and taken.token is None
    taken = settings_of("--telemetry", "--telemetry-token-file", str(token), "--behind-proxy").telemetry
    assert taken is not None and taken.token == "secret"
    with pytest.raises(Failed, match="holds no token"):
        settings_of("--telemetry", "--telemetry-token-file", str(empty))
    with pytest.raises(Failed, match="proxy"):
        settings_of("--telemetry", "--behind-proxy")
    with pytest.raises(click.UsageError):
        settings_of("--telemetry-token-file", str(token))


@pytest.mark.parametrize(
    ("listen", "given", "settings"),
    [
        ("localhost:8080", (), ("endpoint=http://localhost:8080/v1/metrics", "interval.ms=10000")),
        ("0.0.0.0:80", (), ("endpoint=http://127.0.0.1:80/v1/metrics", "interval.ms=10000")),
        ("localhost:8080", ("telemetry.interval.ms",), ("endpoint=http://localhost:8080/v1/metrics",)),
        ("localhost:8080", ("telemetry.otlp.endpoint",), ()),
        ("localhost:0", (), ()),
        ("10.0.0.7:8080", (), ()),
        ("nonsense", (), ()),
    ],
)
def test_brokers_push_to_the_console_that_is_started_with_them(
    listen: str, given: tuple[str, ...], settings: tuple[str, ...]
) -> None:
    wired = console_child.telemetry_settings(listen, given)
    assert tuple(each.removeprefix("telemetry.").removeprefix("otlp.") for each in wired) == settings
