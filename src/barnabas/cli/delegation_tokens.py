"""`barnabas delegation-tokens`: kafka-delegation-tokens, which makes, renews, expires and lists delegation tokens.

What differs from it, on purpose: the HMAC of a token, which is a password, can be typed or piped instead of standing on
the command line, and is not repeated in the output; periods have defaults.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.common.combinations import Actions
from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table
from barnabas.cli.common.values.numbers import SIGNED64

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from barnabas.clients.admin.delegation_tokens import DelegationToken

ACTIONS: Final = Actions(
    ("create", "renew", "expire", "describe"),
    goes_with={
        "owner_principal": ("create", "describe"),
        "renewer_principal": ("create",),
        "max_life_time_period": ("create",),
        "renew_time_period": ("renew",),
        "expiry_time_period": ("expire",),
        "hmac": ("renew", "expire"),
        "as_json": ("create", "describe"),
    },
)
COLUMNS: Final = ("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE")
WIDTHS: Final = (15, 30, 15, 15, 25, 15, 15, 15)
DEFAULT_PERIOD: Final = -1


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas delegation-tokens`."""

    create: bool
    renew: bool
    expire: bool
    describe: bool
    owner_principal: tuple[str, ...]
    renewer_principal: tuple[str, ...]
    max_life_time_period: int | None
    renew_time_period: int | None
    expiry_time_period: int | None
    hmac: str | None
    as_json: bool

    def check(self) -> None:
        """Refuse what does not go together."""
        ACTIONS.check(self)
        for principal in (*self.owner_principal, *self.renewer_principal):
            if not principal.partition(":")[2]:
                raise click.UsageError(f"{principal} is not a principal of the form User:NAME.")
        if self.create and len(self.owner_principal) > 1:
            raise click.UsageError("A token has one owner: give --owner-principal once.")


@click.command(
    "delegation-tokens",
    cls=Command,
    examples=[
        ("create a token for yourself", "barnabas delegation-tokens --create --command-config alice.properties"),
        (
            "for another user, which needs the permission CreateTokens on User:alice",
            "barnabas delegation-tokens --create --owner-principal User:alice --command-config admin.properties",
        ),
        ("list tokens", "barnabas delegation-tokens --describe --command-config alice.properties"),
        (
            "end a token; its HMAC is asked for",
            "barnabas delegation-tokens --expire --command-config alice.properties",
        ),
    ],
)
@option("--create", is_flag=True, help="Create a token.", section="Action")
@option("--renew", is_flag=True, help="Renew a token: it is valid for longer.", section="Action")
@option("--expire", is_flag=True, help="End a token.", section="Action")
@option("--describe", is_flag=True, help="List tokens.", section="Action")
@option(
    "--owner-principal",
    metavar="User:NAME",
    multiple=True,
    help="The owner of the token.  [default for --create: yourself; for --describe: all]",
    section="What",
)
@option(
    "--renewer-principal",
    metavar="User:NAME",
    multiple=True,
    help="A principal that may renew and end the token, besides its owner; repeatable.",
    section="What",
)
@option(
    "--max-life-time-period",
    type=SIGNED64,
    metavar="MS",
    help="How long the token can be renewed, from now on.  [default: -1, delegation.token.max.lifetime.ms]",
    section="What",
)
@option(
    "--renew-time-period",
    type=SIGNED64,
    metavar="MS",
    help="How long the renewed token is valid, from now on.  [default: -1, delegation.token.expiry.time.ms]",
    section="What",
)
@option(
    "--expiry-time-period",
    type=SIGNED64,
    metavar="MS",
    help="When the token ends, from now on.  [default: -1, at once]",
    section="What",
)
@option(
    "--hmac",
    metavar="HMAC",
    help="The HMAC of the token. Others on this machine can read a command line: left out, it is asked for, or read as "
    "a line of standard input.",
    section="What",
)
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """Create, renew, end and list delegation tokens. The flags are those of kafka-delegation-tokens.

    Whoever has a token can log in as its owner, by SCRAM: its id is the name, its HMAC the password.
    """
    hmac = _hmac(options) if options.renew or options.expire else b""
    with options.connect() as cluster:
        tokens = cluster.delegation_tokens
        if options.create:
            token = tokens.create(
                owner=options.owner_principal[0] if options.owner_principal else None,
                renewers=options.renewer_principal,
                lifetime_ms=_or_default(options.max_life_time_period),
            )
            _show([token], f"Created delegation token with tokenId : {token.token_id}", as_json=options.as_json)
        elif options.describe:
            found = tokens.describe(options.owner_principal or None)
            _show(found, f"Total number of tokens : {len(found)}", as_json=options.as_json)
        elif options.renew:
            until = tokens.renew(hmac, _or_default(options.renew_time_period))
            click.echo(f"Completed renew operation. New expiry date : {_date(until)}")
        else:
            until = tokens.expire(hmac, _or_default(options.expiry_time_period))
            click.echo(f"Completed expire operation. New expiry date : {_date(until)}")


def _or_default(period: int | None) -> int:
    return DEFAULT_PERIOD if period is None else period


def _hmac(options: Options) -> bytes:
    from barnabas.cli.users.passwords import read_secret

    text = options.hmac if options.hmac is not None else read_secret("HMAC of the token")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Failed("The HMAC is not base64, as `barnabas delegation-tokens --describe` shows it.") from None


def _show(tokens: Sequence[DelegationToken], title: str, *, as_json: bool) -> None:
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json([_json(token) for token in tokens])
        case Style.PLAIN:
            click.echo(f"{title}\n")
            for row in (COLUMNS, *map(_row, tokens)):
                click.echo(" ".join(f"{text:<{width}}" for text, width in zip(row, WIDTHS, strict=True)))
        case Style.TABLE:
            click.echo(title)
            print_table(COLUMNS, map(_row, tokens))


def _row(token: DelegationToken) -> tuple[str, ...]:
    times = map(_date, (token.issued, token.expires, token.ends))
    return (token.token_id, token.password, token.owner, token.requester, ",".join(token.renewers), *times)


def _json(token: DelegationToken) -> dict[str, Any]:
    return {
        "tokenId": token.token_id,
        "hmac": token.password,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": token.issued.isoformat(),
        "expires": token.expires.isoformat(),
        "ends": token.ends.isoformat(),
    }


def _date(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M")
