"""How `barnabas consume` starts: wait for the topic, then subscribe to topics or take one partition."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common import connection
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import remark
from barnabas.cli.common.values.topic_patterns import parse_topics
from barnabas.machines.controller.names import check_name
from barnabas.model.base_error import BarnabasError
from barnabas.model.permissions import read_from

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.consume.options import Options
    from barnabas.clients.consumer.consumer import Consumer

WAIT_SECONDS: Final = 0.5
CREATES: Final = "allow.auto.create.topics"


def topic_is_there(options: Options, properties: dict[str, Any]) -> bool:
    """Whether the topic is there; waits for one that is not, for --timeout-ms. Raises Failed where nothing can come.

    A topic that is missing would look like one without records. Waiting does not make it, unless the property
    allow.auto.create.topics says so: then the consumer does.
    """
    topic = options.topic
    if topic is None or _is_listed(topic, options, properties):
        return True
    check_name(topic)
    refuse_forbidden(topic, options.address, properties)
    if options.until_end or options.partition is not None:
        raise Failed(f"There is no topic {topic}. `barnabas topics --list` shows all topics.")
    if properties.setdefault(CREATES, "false") == "true":
        remark(f"There is no topic {topic} yet: waiting for it.")
        return True
    remark(f"There is no topic {topic} yet: waiting for it. `barnabas topics --create --topic {topic}` makes it.")
    deadline = math.inf if options.quiet_seconds is None else time.monotonic() + options.quiet_seconds
    while time.monotonic() < deadline:
        time.sleep(min(WAIT_SECONDS, max(0.0, deadline - time.monotonic())))
        if _is_listed(topic, options, properties):
            properties.setdefault("auto.offset.reset", "earliest")  # all that is in it came after the start
            return True
    return False


def _is_listed(topic: str, options: Options, properties: Mapping[str, Any]) -> bool:
    """Whether the cluster has the topic; where it does not say, the consumer finds out."""
    from barnabas.clients.security import security_properties

    try:
        with connection.open_cluster(options.address, security_properties(properties)) as cluster:
            return any(each.name == topic for each in cluster.list_topics())
    except BarnabasError:
        return True


def refuse_forbidden(topic: str, bootstrap_server: str, properties: Mapping[str, Any]) -> None:
    """Raise RequestRefused for a topic that this user may not see."""
    from barnabas.clients.security import security_properties

    with connection.open_cluster(bootstrap_server, security_properties(properties)) as cluster:
        connection.refuse_forbidden(cluster, topic, read_from(topic, None))


def begin(consumer: Consumer[bytes, bytes], options: Options) -> None:
    """Subscribe to topics, or take one partition."""
    from barnabas.clients.consumer.seeking import BEGINNING, END
    from barnabas.clients.records import TopicPartition

    if options.topic is None:
        consumer.subscribe(parse_topics(options.pattern or "", "--include"))
        return
    if options.partition is None:
        consumer.subscribe(options.topic)
        return
    place = {"earliest": BEGINNING, "latest": END}.get(options.start)
    partition = TopicPartition(options.topic, options.partition)
    if partition not in (known := consumer.partitions(options.topic)):
        raise Failed(f"{options.topic} has no partition {options.partition}: its last one is {len(known) - 1}.")
    consumer.assign({partition: int(options.start) if place is None else place})
