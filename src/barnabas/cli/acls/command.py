"""The command line of `barnabas acls`: the flags of kafka-acls, and what is done with them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.acls import rules
from barnabas.cli.common.combinations import Actions, all_given, at_most_one, flag, given, needs
from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table
from barnabas.machines.security.acls import OPERATIONS, SUPPORTED, Operation
from barnabas.model.config.authorizer import check_principal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.machines.security.acls import Acl, AclFilter

RESOURCES: Final = ("topic", "group", "cluster", "transactional_id", "delegation_token", "user_principal")
WHO: Final = ("allow_principal", "deny_principal")
ACTIONS: Final = Actions(
    ("add", "remove", "list_"),
    goes_with={
        "principal": ("list_",),
        "allow_principal": ("add", "remove"),
        "deny_principal": ("add", "remove"),
        "allow_host": ("add", "remove"),
        "deny_host": ("add", "remove"),
        "operation": ("add", "remove"),
        "producer": ("add", "remove"),
        "consumer": ("add", "remove"),
        "idempotent": ("add", "remove"),
    },
)
FILTERS_ONLY: Final = ("any", "match")


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions):
    """The options of `barnabas acls`."""

    add: bool
    remove: bool
    list_: bool
    topic: tuple[str, ...]
    group: tuple[str, ...]
    cluster: bool
    transactional_id: tuple[str, ...]
    delegation_token: tuple[str, ...]
    user_principal: tuple[str, ...]
    resource_pattern_type: str
    allow_principal: tuple[str, ...]
    deny_principal: tuple[str, ...]
    allow_host: tuple[str, ...]
    deny_host: tuple[str, ...]
    operation: tuple[str, ...]
    producer: bool
    consumer: bool
    idempotent: bool
    principal: tuple[str, ...]
    force: bool
    as_json: bool

    def check(self) -> None:
        """Raise UsageError for what does not go together."""
        ACTIONS.check(self)
        for name in ("allow_principal", "deny_principal", "principal"):
            for principal in getattr(self, name):
                _check_principal(flag(name), principal)
        needs(self, "allow_host", "allow_principal")
        needs(self, "deny_host", "deny_principal")
        needs(self, "idempotent", "producer")
        self._check_shorthands()
        self._check_operations()
        if not self.list_ and not all_given(self, RESOURCES):
            raise click.UsageError(
                "Say what the rule is for: --topic, --group, --cluster, --transactional-id, --delegation-token or "
                "--user-principal."
            )
        if self.add and not all_given(self, WHO):
            raise click.UsageError("--add needs --allow-principal or --deny-principal.")
        if self.add and self.resource_pattern_type in FILTERS_ONLY:
            raise click.UsageError(
                f"--resource-pattern-type {self.resource_pattern_type} is for --list and --remove; --add takes literal "
                "or prefixed."
            )
        if self.remove and all_given(self, WHO) and self.resource_pattern_type in FILTERS_ONLY:
            raise click.UsageError(
                f"--resource-pattern-type {self.resource_pattern_type} removes all rules of the resources that it "
                "matches: leave --allow-principal and --deny-principal out, or say literal or prefixed."
            )

    def _check_shorthands(self) -> None:
        for name in ("producer", "consumer"):
            if given(self, name):
                at_most_one(self, name, "operation")
                needs(self, name, "topic")
                if self.deny_principal:
                    raise click.UsageError(f"{flag(name)} allows: give --allow-principal, not --deny-principal.")
        if self.consumer:
            needs(self, "consumer", "group")

    def _check_operations(self) -> None:
        """Kafka's tool takes no rule about what cannot be done to a resource: it would allow and deny nothing."""
        for kind, flags in rules.FLAGS.items():
            possible = {Operation.ALL, *SUPPORTED[kind]}
            impossible = [name for name in self.operation if OPERATIONS[name] not in possible]
            if impossible and getattr(self, flags):
                raise click.UsageError(
                    f"{flag('operation')} {impossible[0]} does not go with {flag(flags)}, which takes "
                    f"{', '.join(each.label for each in sorted(possible))}."
                )


def _check_principal(name: str, principal: str) -> None:
    try:
        check_principal(principal)
    except ValueError:
        raise click.UsageError(f"{name} {principal} is no principal: write User:{principal}.") from None


def _many(name: str, metavar: str, words: str, section: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return option(name, metavar=metavar, multiple=True, help=f"{words}; repeatable.", section=section)


@click.command(
    cls=Command,
    examples=[
        (
            "let alice read the topic orders in the group billing",
            "barnabas acls --add --allow-principal User:alice --consumer --topic orders --group billing",
        ),
        (
            "let bob write to all topics whose names begin with team",
            "barnabas acls --add --allow-principal User:bob --producer --topic team --resource-pattern-type prefixed",
        ),
        (
            "deny writes to orders from one address",
            "barnabas acls --add --deny-principal 'User:*' --deny-host 198.51.100.3 --operation Write --topic orders",
        ),
        (
            "list all ACLs that apply to orders",
            "barnabas acls --list --topic orders --resource-pattern-type match",
        ),
        (
            "remove one of them",
            "barnabas acls --remove --allow-principal User:alice --operation Read --topic orders",
        ),
        ("remove all ACLs of a topic", "barnabas acls --remove --topic orders"),
    ],
)
@option("--add", is_flag=True, help="Add ACLs to the resources.", section="Action")
@option(
    "--remove",
    is_flag=True,
    help="Remove ACLs from the resources; all of them if no principal is given.",
    section="Action",
)
@option("--list", "list_", is_flag=True, help="List the ACLs of the resources, or of all resources.", section="Action")
@_many("--topic", "NAME", "A topic, or * for all", "Resources")
@_many("--group", "ID", "A group, or * for all", "Resources")
@option("--cluster", is_flag=True, help="The cluster itself.", section="Resources")
@_many("--transactional-id", "ID", "A transactional id, or * for all", "Resources")
@_many("--delegation-token", "ID", "A delegation token", "Resources")
@_many("--user-principal", "USER", "A user for whom others may create delegation tokens", "Resources")
@option(
    "--resource-pattern-type",
    type=click.Choice(["literal", "prefixed", "any", "match"], case_sensitive=False),
    default="literal",
    show_default=True,
    help="How names of resources match. literal: this resource. prefixed: all resources whose names begin with it. To "
    "list and remove, also any: ACLs of both types with this name, and match: all ACLs that apply to this resource.",
    section="Resources",
)
@_many("--allow-principal", "USER", "The principal to allow, as User:NAME", "ACLs")
@_many("--deny-principal", "USER", "The principal to deny, as User:NAME", "ACLs")
@_many("--allow-host", "ADDRESS", "The address to allow from; all if not given", "ACLs")
@_many("--deny-host", "ADDRESS", "The address to deny from; all if not given", "ACLs")
@option(
    "--operation",
    type=click.Choice(list(OPERATIONS), case_sensitive=False),
    multiple=True,
    metavar="OPERATION",
    help=f"The operation to allow or deny: {', '.join(OPERATIONS)}; repeatable.  [default: All]",
    section="ACLs",
)
@option(
    "--producer",
    is_flag=True,
    help="Allow what a producer needs on the topics and transactional ids, instead of --operation.",
    section="ACLs",
)
@option(
    "--consumer",
    is_flag=True,
    help="Allow what a consumer needs on the topics and groups, instead of --operation.",
    section="ACLs",
)
@option("--idempotent", is_flag=True, help="Also allow the producer to be idempotent (--producer).", section="ACLs")
@_many("--principal", "USER", "List only ACLs of this principal (--list)", "ACLs")
@option("--force", is_flag=True, help="Remove ACLs without asking; a terminal is asked otherwise.", section="Action")
@connection_options
@json_option
@takes(Options)
def command(options: Options) -> None:
    """List, add and remove ACLs: who may do what. The flags are those of kafka-acls.

    Brokers check ACLs if their authorizer.class.name is set.
    """
    with options.connect() as cluster:
        if options.list_:
            found = {acl: None for wanted in rules.filters(options) for acl in cluster.acls.matching(wanted)}
            _show(sorted(found), "Current ACLs for resource", as_json=options.as_json)
        elif options.add:
            wanted = rules.acls(options)
            cluster.acls.create(wanted)
            _show(wanted, "Adding ACLs for resource", as_json=options.as_json)
        else:
            exact = all_given(options, WHO)
            meant = [rules.exactly(acl) for acl in rules.acls(options)] if exact else rules.filters(options)
            if not options.force and sys.stdin.isatty():
                _ask(cluster, meant)
            _show(cluster.acls.delete(meant), "Removing ACLs for resource", as_json=options.as_json)


def _ask(cluster: ClusterAdmin, meant: Sequence[AclFilter]) -> None:
    """Go on only if somebody says so, unless there is nothing to remove."""
    found = {acl for each in meant for acl in cluster.acls.matching(each)}
    if found:
        names = ", ".join(sorted({f"{acl.pattern.resource_type.label} {acl.pattern.name}" for acl in found}))
        what = "this ACL" if len(found) == 1 else f"these {len(found)} ACLs"
        click.confirm(f"Remove {what} of {names}?", abort=True, err=True)


def _show(acls: Sequence[Acl], words: str, *, as_json: bool) -> None:
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json([_document(acl) for acl in acls])
        case Style.PLAIN:
            _print_lines(acls, words)
        case Style.TABLE:
            print_table(
                ("Resource", "Name", "Pattern", "Principal", "Host", "Operation", "Permission"),
                (tuple(_document(acl).values()) for acl in acls),
            )


def _document(acl: Acl) -> dict[str, str]:
    (kind, name, pattern_type), (principal, host, operation, permission) = acl
    return {
        "resourceType": kind.label,
        "name": name,
        "patternType": pattern_type.name.capitalize(),
        "principal": principal,
        "host": host,
        "operation": operation.label,
        "permissionType": permission.label,
    }


def _print_lines(acls: Sequence[Acl], words: str) -> None:
    """As kafka-acls prints them."""
    for (kind, name, pattern_type), same in groupby(acls, key=lambda acl: acl.pattern):
        click.echo(
            f"{words} `ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern_type.name})`: "
        )
        for _, (principal, host, operation, permission) in same:
            click.echo(
                f" \t(principal={principal}, host={host}, operation={operation.name}, permissionType={permission.name})"
            )
        click.echo()
