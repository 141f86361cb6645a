"""`barnabas topics --list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import Style, choose_style, print_json, print_table, remark
from barnabas.cli.topics.matching import matching

if TYPE_CHECKING:
    from barnabas.cli.topics.options import Options
    from barnabas.clients.admin.cluster_admin import ClusterAdmin


def show_list(cluster: ClusterAdmin, options: Options) -> None:
    """`--list`."""
    topics = {topic.name: topic for topic in cluster.list_topics()}
    names = matching(topics, options.topic, exclude_internal=options.exclude_internal)
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json(names)
        case Style.PLAIN:
            for name in names:
                click.echo(name)
        case Style.TABLE if not names:
            remark("No topics.")
        case Style.TABLE:
            print_table(
                ("Topic", "Partitions", "Replicas"),
                (topics[name] for name in names),
            )
