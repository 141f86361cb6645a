"""`barnabas topics --list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.output import Style, choose_style, print_json, print_table, remark
from barnabas.cli.topics.matching import matching

if TYPE_CHECKING:
    from barnabas.cli.topics.options import Options
    from barnabas.clients.topic_list import ListedTopic


def listed(options: Options) -> list[ListedTopic]:
    """All topics by name: in the quick way where that works, else by the admin client, which knows what is wrong."""
    from barnabas.cli import connection
    from barnabas.clients import topic_list

    if options.command_config is None:
        found = topic_list.list_topics(options.bootstrap_server)
        if found is not None:
            return found
    with connection.open_admin(options.bootstrap_server, options.command_config) as admin:
        return [
            topic_list.ListedTopic(topic.name, len(topic.partitions), topic.replication_factor)
            for topic in admin.topics()
        ]


def show_list(found: list[ListedTopic], options: Options) -> None:
    """`--list`."""
    topics = {topic.name: topic for topic in found}
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
