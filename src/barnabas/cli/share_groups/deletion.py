"""`barnabas share-groups --delete` and `--delete-offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import Style, choose_style, print_json, print_table
from barnabas.cli.common.remedies import with_remedy, with_remedy_of
from barnabas.cli.groups.columns import Column, print_columns
from barnabas.cli.groups.deletion import reason, report_deletion
from barnabas.cli.groups.kinds import SHARE_GROUPS
from barnabas.cli.share_groups.listing import selected
from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cli.share_groups.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin


def delete(cluster: ClusterAdmin, options: Options) -> None:
    """`--delete`: all that can be deleted; then fail for those that could not.

    DeleteGroups deletes groups of any type, so that those which are no share groups are not even asked for.
    """
    there = {listing.group_id for listing in cluster.share_groups.listing()}
    wanted = selected(cluster, options)
    absent = RequestRefused(ErrorCode.group_id_not_found, "there is no such share group")
    results: dict[str, RequestRefused | None] = {group_id: absent for group_id in wanted if group_id not in there}
    results |= cluster.share_groups.delete(group_id for group_id in wanted if group_id in there)
    report_deletion(results, SHARE_GROUPS, as_json=options.as_json)


def delete_offsets(cluster: ClusterAdmin, options: Options) -> None:
    """`--delete-offsets`: whatever can be deleted; then fail if something could not."""
    (group_id,) = options.group
    try:
        results = cluster.share_groups.delete_offsets(group_id, sorted(set(options.topic)))
    except RequestRefused as error:
        raise Failed(with_remedy(f"{reason(error, SHARE_GROUPS)}.", error.remedy)) from error
    errors = {topic: None if refusal is None else str(refusal) for topic, refusal in sorted(results.items())}
    rows = [(topic, "Successful" if error is None else f"Error: {error}") for topic, error in errors.items()]
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            topics = [{"topic": topic, "error": error} for topic, error in errors.items()]
            print_json({"group": group_id, "topics": topics})
        case Style.PLAIN:
            click.echo()
            print_columns((Column("TOPIC", 15, grows=True), Column("STATUS")), rows)
        case Style.TABLE:
            print_table(("Topic", "Result"), rows)
    steps = sorted({reason(refusal, SHARE_GROUPS) for refusal in results.values() if refusal is not None})
    if steps:
        told = f"Some offsets of group '{group_id}' were not deleted: {'. '.join(steps)}."
        raise Failed(with_remedy_of(told, results.values()))
