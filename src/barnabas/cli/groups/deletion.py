"""`barnabas groups --delete` and `--delete-offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import Style, choose_style, print_json, print_table
from barnabas.cli.common.remedies import with_remedy, with_remedy_of
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.cli.groups.kinds import CONSUMER_GROUPS
from barnabas.cli.groups.listing import selected
from barnabas.cli.groups.scope import partitions_of
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.groups.kinds import GroupKind
    from barnabas.cli.groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.model.ids import TopicPartition

NEXT_STEPS = {
    ErrorCode.non_empty_group: "stop its consumers first",
    ErrorCode.group_subscribed_to_topic: "stop its consumers first",
}


def delete(cluster: ClusterAdmin, options: Options) -> None:
    """`--delete`: all that can be deleted; then fail for those that could not."""
    report_deletion(cluster.groups.delete(selected(cluster, options)), CONSUMER_GROUPS, as_json=options.as_json)


def report_deletion(results: Mapping[str, RequestRefused | None], kind: GroupKind, *, as_json: bool) -> None:
    """Say which groups were deleted; then fail for those that could not."""
    deleted = sorted(group_id for group_id, refusal in results.items() if refusal is None)
    refused = {group_id: refusal for group_id, refusal in sorted(results.items()) if refusal is not None}
    names = ", ".join(f"'{group_id}'" for group_id in deleted)
    if as_json:
        print_json({"deleted": deleted, "refused": {group_id: str(refusal) for group_id, refusal in refused.items()}})
    elif deleted and refused:
        click.echo(f"These {kind.name} groups were deleted successfully: {names}")
    elif not refused:
        click.echo(f"Deletion of requested {kind.name} groups ({names}) was successful.")
    if refused:
        reasons = (f"group '{group_id}': {reason(refusal, kind)}" for group_id, refusal in refused.items())
        told = f"Deletion of some {kind.name} groups failed: {'. '.join(reasons)}."
        raise Failed(with_remedy_of(told, refused.values()))


def reason(refusal: RequestRefused, kind: GroupKind = CONSUMER_GROUPS) -> str:
    """What the broker said, and what to do about it."""
    step = NEXT_STEPS.get(refusal.code)
    if refusal.code == ErrorCode.group_id_not_found:
        step = f"`barnabas {kind.command} --list` shows those that are there"
    return f"{refusal}; {step}" if step else str(refusal)


def delete_offsets(cluster: ClusterAdmin, options: Options) -> None:
    """`--delete-offsets`: whatever can be deleted; then fail if something could not."""
    (group_id,) = options.group
    partitions = partitions_of(cluster, options.topic)
    try:
        results = cluster.groups.delete_offsets(group_id, partitions)
    except RequestRefused as error:
        raise Failed(with_remedy(f"{reason(error)}.", error.remedy)) from error
    show_results(group_id, results, options)
    steps = {reason(refusal) for refusal in results.values() if refusal is not None}
    if steps:
        told = f"Some offsets of group '{group_id}' were not deleted: {'. '.join(sorted(steps))}."
        raise Failed(with_remedy_of(told, results.values()))


def show_results(group_id: str, results: Mapping[TopicPartition, RequestRefused | None], options: Options) -> None:
    """A line per partition."""
    rows = [
        (*partition, "Successful" if refusal is None else f"Error: {refusal}")
        for partition, refusal in sorted(results.items())
    ]
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json(
                {
                    "group": group_id,
                    "partitions": [
                        {
                            "topic": partition.topic,
                            "partition": partition.partition,
                            "error": None if refusal is None else str(refusal),
                        }
                        for partition, refusal in sorted(results.items())
                    ],
                }
            )
        case Style.PLAIN:
            if not any(results.values()):
                click.echo(f"Request succeeded for deleting offsets from group {group_id}.")
            click.echo()
            print_columns((Column("TOPIC", 15, grows=True), Column("PARTITION", 10), Column("STATUS", 15)), rows)
        case Style.TABLE:
            print_table(("Topic", "Partition", "Result"), rows)
