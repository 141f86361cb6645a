"""`barnabas console`: a web console for a cluster, as a process of its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.broker_options import DEFAULT_CONSOLE
from barnabas.cli.common.combinations import at_most_one, needs
from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.log_format import LOG_FORMAT
from barnabas.cli.common.options import takes
from barnabas.cli.common.remedies import with_remedy
from barnabas.cli.common.values.addresses import check_listen_address
from barnabas.cli.common.values.files import FILE, FOLDER, NEW_FOLDER

if TYPE_CHECKING:
    import socket

    from barnabas.console.oidc import OidcSettings
    from barnabas.console.settings import ConsoleSettings, TelemetrySettings


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas console`."""

    listen: str
    allow_changes: bool
    read_only: bool
    names: tuple[str, ...]
    tls_certificate: Path | None
    tls_key: Path | None
    behind_proxy: bool
    anonymous: bool
    data: Path | None
    masks: tuple[str, ...]
    schemas: Path | None
    registry: str | None
    metrics: tuple[str, ...]
    metrics_token_file: Path | None
    metrics_ca_file: Path | None
    telemetry: bool
    telemetry_token_file: Path | None
    oidc_issuer: str | None
    oidc_client_id: str | None
    oidc_client_secret_file: Path | None
    oidc_scope: str
    oidc_claim: str
    oidc_ca_file: Path | None
    ends_with_input: bool
    start_again: str | None
    started_brokers: tuple[int, ...]

    def check(self) -> None:
        """Refuse what contradicts itself."""
        at_most_one(self, "allow_changes", "read_only")
        for one, other in (("tls_certificate", "tls_key"), ("oidc_issuer", "oidc_client_id")):
            needs(self, one, other)
            needs(self, other, one)
        needs(self, "telemetry_token_file", "telemetry")
        check_listen_address(self.listen, "--listen")


@click.command(
    cls=Command,
    examples=[
        ("show the cluster on localhost:9092", "barnabas console    # then open http://localhost:8080"),
        ("start a broker and the console with it", "barnabas start --console"),
        ("show another cluster", "barnabas console --bootstrap-server broker1:9092,broker2:9092"),
        (
            "a cluster with TLS and logins; people log in with the cluster's users",
            "barnabas console --bootstrap-server broker1:9092 --command-config console.properties",
        ),
        (
            "for other machines, with TLS; it changes nothing unless --allow-changes is given",
            "barnabas console --listen 0.0.0.0:8443 --name console.example.com "
            "--tls-certificate console.pem --tls-key console.key",
        ),
        (
            "let people log in with an OpenID provider, whose tokens the cluster takes by OAUTHBEARER",
            "barnabas console --command-config console.properties --oidc-issuer https://login.example.com/realms/data "
            "--oidc-client-id barnabas-console --oidc-client-secret-file secret",
        ),
        (
            "show the metrics that clients push; brokers are started with --set "
            "telemetry.otlp.endpoint=http://localhost:8080/v1/metrics",
            "barnabas console --telemetry",
        ),
        ("hide card numbers", "barnabas console --mask 'payments*:value.card.number' --mask 'users:key'"),
    ],
)
@option(
    "--listen",
    metavar="HOST:PORT",
    default=DEFAULT_CONSOLE,
    show_default=True,
    help="Where browsers reach the console. Port 0 takes a free port.",
)
@option("--allow-changes", is_flag=True, help="Let people change the cluster. The default on a loopback address.")
@option("--read-only", is_flag=True, help="Let nobody change anything. The default on any other address.")
@option(
    "--name",
    "names",
    metavar="HOST",
    multiple=True,
    help="A host name that browsers know the console by, besides that of --listen; repeatable.",
)
@option("--tls-certificate", type=FILE, help="A certificate chain in PEM: browsers then speak HTTPS.")
@option("--tls-key", type=FILE, help="The private key of --tls-certificate, in PEM.")
@option(
    "--behind-proxy",
    is_flag=True,
    help="A proxy in front of the console encrypts: logins over HTTP are allowed, and no address counts as loopback.",
)
@option(
    "--anonymous",
    is_flag=True,
    help="Outside loopback, or behind a proxy, let everybody look at the cluster in the name of the certificate in "
    "--command-config.",
)
@option(
    "--data",
    type=NEW_FOLDER,
    metavar="DIR",
    help="The directory of the history and of the audit log.  [default: ~/.local/state/barnabas/console]",
)
@option(
    "--mask",
    "masks",
    metavar="TOPIC:PATH",
    multiple=True,
    help="Hide a field of records, as orders:value.card.number, users*:key or *:headers.token; repeatable.",
    section="Records",
)
@option(
    "--schemas",
    type=FOLDER,
    metavar="DIR",
    help="Schemas of topics without a registry, as orders-value.avsc, orders-key.desc or orders-value.proto.",
    section="Records",
)
@option("--registry", metavar="URL", help="A schema registry, for records that name a schema.", section="Records")
@option(
    "--metrics",
    metavar="URL",
    multiple=True,
    help="The URL of a broker's metrics, if its metrics.listener cannot be reached from here; repeatable.",
    section="Connection",
)
@option(
    "--metrics-token-file",
    type=FILE,
    help="A file with the token of brokers' metrics (metrics.token).",
    section="Connection",
)
@option(
    "--metrics-ca-file",
    type=FILE,
    help="The CA certificates, in PEM, to trust for metrics with TLS.",
    section="Connection",
)
@option(
    "--telemetry",
    is_flag=True,
    help="Take metrics of clients, which brokers push to /v1/metrics (telemetry.otlp.endpoint).",
    section="Metrics of clients",
)
@option(
    "--telemetry-token-file",
    type=FILE,
    help="A file with the token of these brokers (telemetry.otlp.token); without one, only those on this machine push.",
    section="Metrics of clients",
)
@option(
    "--oidc-issuer",
    metavar="URL",
    help="An OpenID provider with which people log in; its tokens are passed on to brokers by OAUTHBEARER.",
    section="Logins by OpenID Connect",
)
@option(
    "--oidc-client-id",
    metavar="ID",
    help="The client id of the console at the provider. Its redirect URI there ends with /login/callback.",
    section="Logins by OpenID Connect",
)
@option(
    "--oidc-client-secret-file",
    type=FILE,
    help="A file with the client's secret; without one the console is a public client.",
    section="Logins by OpenID Connect",
)
@option(
    "--oidc-scope",
    metavar="SCOPE",
    default="openid",
    show_default=True,
    help="The scopes that the console asks the provider for, as 'openid kafka'.",
    section="Logins by OpenID Connect",
)
@option(
    "--oidc-claim",
    metavar="NAME",
    default="sub",
    show_default=True,
    help="The claim of a token that holds the user name; that of the brokers (sasl.oauthbearer.sub.claim.name).",
    section="Logins by OpenID Connect",
)
@option(
    "--oidc-ca-file",
    type=FILE,
    help="The CA certificates, in PEM, to trust for the provider.",
    section="Logins by OpenID Connect",
)
@option("--ends-with-input", is_flag=True, hidden=True)
@option("--start-again", hidden=True)
@option("--started-broker", "started_brokers", type=int, multiple=True, hidden=True)
@connection_options
@takes(Options)
def command(options: Options) -> None:
    """Run a web console: what flows, what lags, what is wrong, and what to do.

    It asks brokers over the wire, like any other client. Where brokers ask for a login, people log in to the console
    with the same users, and may do what the cluster lets them. The file of --command-config says how to reach brokers;
    a user in it is the one in whose name the console keeps its history.
    """
    try:
        from barnabas.console import server
    except ImportError as error:
        raise Failed(
            f"The console needs packages that are not installed ({error}). Install them with: "
            "pip install 'barnabas[console]', or pip install '.[clients,console]' in a checkout."
        ) from error
    _write_log()
    listener = _bind(options)
    settings = _settings(options, listener.getsockname()[1])
    if not settings.read_only and not settings.is_local:
        click.echo("Anybody who reaches this address can change the cluster as far as it lets them.", err=True)
    _refuse_plain_logins(settings)
    _refuse_open_certificate(settings, anonymous=options.anonymous)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    mode = "read-only" if settings.read_only else "with changes allowed"
    click.echo(
        f"The console of {options.address} is on {settings.scheme}://{host}:{settings.port} ({mode}); "
        f"history and audit log in {settings.folder}"
    )
    sys.stdout.flush()
    if options.ends_with_input:
        threading.Thread(target=_end_with_input, daemon=True).start()
    server.run(settings, listener)


def _end_with_input() -> None:
    """Stop when whoever started this has closed its end of the pipe, or is gone."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _bind(options: Options) -> socket.socket:
    from barnabas.console import server

    host, _, port = options.listen.rpartition(":")
    try:
        return server.bind(host.strip("[]"), int(port))
    except OSError as error:
        raise Failed(f"Cannot listen on {options.listen}: {(error.strerror or str(error)).lower()}.") from error


def _settings(options: Options, port: int) -> ConsoleSettings:
    from barnabas.clients.scraping import MetricsAccess
    from barnabas.console.messages.masking import InvalidMask, parse_rule
    from barnabas.console.settings import ConsoleSettings, is_local

    host = options.listen.rpartition(":")[0].strip("[]")
    try:
        masks = tuple(map(parse_rule, options.masks))
    except InvalidMask as error:
        raise Failed(f"{error}.") from error
    return ConsoleSettings(
        bootstrap_servers=options.address,
        host=host,
        port=port,
        properties=options.client_properties(),
        folder=(options.data or Path.home() / ".local" / "state" / "barnabas" / "console").absolute(),
        read_only=options.read_only or not (options.allow_changes or is_local(host, options.behind_proxy)),
        hosts=tuple(name.lower() for name in options.names),
        certificate=options.tls_certificate,
        key=options.tls_key,
        masks=masks,
        schemas=options.schemas,
        registry=options.registry,
        metrics=options.metrics,
        metrics_access=MetricsAccess(_secret(options.metrics_token_file), options.metrics_ca_file),
        telemetry=_telemetry(options),
        oidc=_oidc(options),
        behind_proxy=options.behind_proxy,
        with_remedy=with_remedy,
        start_again={} if options.start_again is None else dict.fromkeys(options.started_brokers, options.start_again),
    )


def _telemetry(options: Options) -> TelemetrySettings | None:
    from barnabas.console.settings import TelemetrySettings

    if not options.telemetry:
        return None
    token = _secret(options.telemetry_token_file)
    if token is not None and not (token.isascii() and token.isprintable() and token.split() == [token]):
        raise Failed(f"{options.telemetry_token_file} holds no token: it is one line of visible ASCII characters.")
    if token is None and options.behind_proxy:
        raise Failed(
            "Behind a proxy anybody seems to be on this machine: give --telemetry-token-file with --telemetry."
        )
    return TelemetrySettings(token)


def _secret(file: Path | None) -> str | None:
    return None if file is None else file.read_text(encoding="utf-8").strip()


def _oidc(options: Options) -> OidcSettings | None:
    from barnabas.console.oidc import OidcFailed, OidcSettings, check_address

    if options.oidc_issuer is None or options.oidc_client_id is None:
        return None
    try:
        issuer = check_address(options.oidc_issuer, "--oidc-issuer")
    except OidcFailed as error:
        raise Failed(f"{error}, unless it is on this machine.") from error
    return OidcSettings(
        issuer=issuer,
        client_id=options.oidc_client_id,
        client_secret=_secret(options.oidc_client_secret_file),
        scope=options.oidc_scope,
        claim=options.oidc_claim,
        authority=options.oidc_ca_file,
    )


def _refuse_plain_logins(settings: ConsoleSettings) -> None:
    """A password must not cross a network as it is."""
    asks = settings.properties.get("security.protocol", "").upper().startswith("SASL") or settings.oidc is not None
    if asks and not (settings.browsers_encrypt or settings.is_local):
        raise Failed(
            "People would send their passwords unencrypted: give --tls-certificate and --tls-key, or --behind-proxy "
            "if a proxy in front of the console encrypts."
        )


def _refuse_open_certificate(settings: ConsoleSettings, *, anonymous: bool) -> None:
    """Where brokers ask for a certificate, they ask for no login: all who came would see what the console may see."""
    if settings.shows_own_certificate and not (anonymous or settings.is_local):
        raise Failed(
            "Nobody logs in to this console, since the file of --command-config names a certificate and no login: "
            "everybody who reaches it would see the cluster as the console may. Let it reach brokers by a listener "
            "that asks for a login (security.protocol=SASL_SSL), or give --anonymous if that is meant."
        )


def _write_log() -> None:
    import logging

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
