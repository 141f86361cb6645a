"""The member of a share group: heartbeats to the coordinator, and which broker leads what is assigned, in one thread.

The coordinator assigns partitions, which members may share. A member that the coordinator does not know any more joins
again; it keeps its id for its whole life.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from barnabas.clients.admin.configs import Configs, EntityType
from barnabas.clients.config import log
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.clients.queue.leader import FINAL, RETRY_SECONDS, Leader
from barnabas.clients.queue.session import SharePartitionId
from barnabas.clients.wire.connection import Node
from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.permissions import read_from
from barnabas.protocol.apis import ConfigSource

if TYPE_CHECKING:
    from barnabas.clients.queue.engine import QueueEngine
    from barnabas.clients.wire.connection import WireClient

JOINING: Final = 0
LEAVING: Final = -1
JOIN_AGAIN: Final = frozenset({ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch})
CANNOT_JOIN: Final = FINAL | {
    ErrorCode.unsupported_version,
    ErrorCode.invalid_group_id,
    ErrorCode.inconsistent_group_protocol,
    ErrorCode.group_id_not_found,
    ErrorCode.invalid_request,
}
CLOSE_SECONDS: Final = 10.0
LEADERS_EVERY: Final = 30.0
"""How often the leaders are looked up though nobody said that they changed, in seconds."""
NEW_GROUP_SECONDS: Final = 5.0
FIRST_HEARTBEATS_EVERY: Final = 0.25
FIRST_HEARTBEATS_FOR: Final = 15.0
"""A member gets its partitions by a heartbeat after the one that it joined by, once their state is stored. At the usual
interval of 5 seconds the first message would take 10: so heartbeats come more often, for so many seconds."""
OFFSET_RESET: Final = "share.auto.offset.reset"


class Membership:
    """Joins the group, and starts and ends the threads of leaders."""

    def __init__(self, engine: QueueEngine, wire: WireClient) -> None:
        self._engine = engine
        self._wire = wire
        self._epoch = JOINING
        self._assigned: frozenset[SharePartitionId] = frozenset()
        self._leaders: dict[Node, Leader] = {}
        self._heartbeat_at = 0.0
        self._joined_at = 0.0
        self._leaders_at = 0.0
        self._thread = threading.Thread(target=self._run, name="barnabas-queue", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait until it has left the group."""
        self._thread.join(timeout)

    def _run(self) -> None:
        engine = self._engine
        try:
            while not engine.closing:
                try:
                    self._step()
                except BarnabasError as error:
                    if isinstance(error, RequestRefused) and error.code in CANNOT_JOIN:
                        engine.fail(error)
                        return
                    level = log.info if isinstance(error, BrokerUnreachable) else log.warning
                    level("Group %s is asked again in a moment: %s", engine.settings.group_id, error)
                    self._pause()
        except Exception as error:
            log.exception("The thread that keeps the membership of group %s failed.", engine.settings.group_id)
            engine.fail(error)
        finally:
            self._leave()

    def _step(self) -> None:
        now = time.monotonic()
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self._heartbeat()
        if self._engine.leaders_unknown or now - self._leaders_at >= LEADERS_EVERY:
            self._find_leaders()
            self._leaders_at = now
            if self._engine.leaders_unknown:
                self._pause()  # a leader may be about to be elected
                return
        self._wait(self._heartbeat_at - time.monotonic())

    def _wait(self, seconds: float) -> None:
        engine = self._engine
        with engine.changed:
            engine.changed.wait_for(lambda: engine.closing or engine.leaders_unknown, max(seconds, 0.01))

    def _pause(self) -> None:
        """Let a moment pass, whatever is known of leaders, so that brokers are not asked without an end."""
        engine = self._engine
        with engine.changed:
            engine.changed.wait_for(lambda: engine.closing, RETRY_SECONDS)

    def _heartbeat(self) -> float:
        """Say that this member lives; returns seconds until the next time."""
        settings = self._engine.settings
        answer = self._ask(self._epoch, settings.topics if self._epoch == JOINING else None)
        if answer.error_code in JOIN_AGAIN:
            log.info(
                "The coordinator of group %s does not know this member any more: it joins again.", settings.group_id
            )
            self._epoch = JOINING
            return 0.0
        if answer.error_code != ErrorCode.none:
            raise RequestRefused(
                answer.error_code,
                answer.error_message or answer.error_code.name.upper(),
                settings.action,
            )
        if self._epoch == JOINING:
            self._joined_at = time.monotonic()
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assigned = frozenset(
                SharePartitionId(topic.topic_id, partition)
                for topic in answer.assignment.topic_partitions
                for partition in topic.partitions
            )
            with self._engine.changed:
                self._engine.leaders_unknown = True
        if not self._assigned and time.monotonic() - self._joined_at < FIRST_HEARTBEATS_FOR:
            return FIRST_HEARTBEATS_EVERY
        return float(answer.heartbeat_interval.total_seconds())

    def _ask(self, epoch: int, topics: tuple[str, ...] | None) -> Any:
        from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

        settings = self._engine.settings
        request = ShareGroupHeartbeatRequest(
            group_id=GroupId(settings.group_id),
            member_id=settings.member_id,
            member_epoch=i32(epoch),
            rack_id=settings.properties.get("client.rack"),
            subscribed_topic_names=None if topics is None else tuple(map(TopicName, topics)),
        )
        answers = self._wire.ask_coordinators(
            [settings.group_id],
            lambda _: request,
            lambda response: [(settings.group_id, response.error_code, response)],
            at_least=1,
            action=lambda _: settings.action,
        )
        return answers[settings.group_id][2]

    def _find_leaders(self) -> None:
        """Give each leader the partitions that are assigned here; those without a leader are looked for again."""
        from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

        wanted = tuple(
            MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in self._engine.settings.topics
        )
        answer = self._wire.ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=True, include_topic_authorized_operations=False)
        )
        nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port) for broker in answer.brokers}
        self._wire.remember(nodes.values())
        found: dict[Node, dict[SharePartitionId, TopicPartition]] = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                place = SharePartitionId(topic.topic_id, partition.partition_index)
                node = nodes.get(partition.leader_id)
                if place in self._assigned and node is not None:
                    found.setdefault(node, {})[place] = TopicPartition(topic.name, partition.partition_index)
        for node in found.keys() - self._leaders.keys():
            self._leaders[node] = Leader(self._engine, node)
            self._leaders[node].start()
        for node, leader in self._leaders.items():
            leader.lead(found.get(node, {}))
        with self._engine.changed:
            self._engine.leaders_unknown = sum(map(len, found.values())) < len(self._assigned)

    def _leave(self) -> None:
        """End the sessions, and leave the group."""
        deadline = time.monotonic() + CLOSE_SECONDS
        self._engine.close()
        for leader in self._leaders.values():
            leader.join(max(deadline - time.monotonic(), 0))
        try:
            if self._epoch != JOINING:
                self._ask(LEAVING, None)
        except BarnabasError as error:
            log.info(
                "Could not leave group %s. Its coordinator removes the member when the session times out: %s",
                self._engine.settings.group_id,
                error,
            )
        finally:
            self._wire.__exit__()


def begin_with_what_is_there(wire: WireClient, group_id: str) -> None:
    """Let a group that does not exist yet begin with the first record of each partition.

    Kafka's default is what comes after the first worker, so that what was sent before would be passed over. A group
    that exists, or has the setting already, is left as it is.
    """
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

    request = ShareGroupDescribeRequest(group_ids=(GroupId(group_id),), include_authorized_operations=False)
    described = wire.ask_coordinators(
        [group_id],
        lambda _: request,
        lambda response: ((group.group_id, group.error_code, group) for group in response.groups),
        at_least=1,
        action=lambda group: read_from(None, group),
    )
    if described[group_id][1] != ErrorCode.group_id_not_found:
        return
    configs = Configs(wire)
    try:
        if _reset_of(configs, group_id) is not None:
            return
        configs.alter(EntityType.GROUPS, group_id, add={OFFSET_RESET: "earliest"}, delete=())
        deadline = time.monotonic() + NEW_GROUP_SECONDS
        while _reset_of(configs, group_id) is None and time.monotonic() < deadline:
            time.sleep(0.02)  # Kafka's controller answers before its brokers know
    except RequestRefused as error:
        log.warning(
            "Could not set %s of the new group %s, which therefore gets only messages that are sent from now on: %s",
            OFFSET_RESET,
            group_id,
            error,
        )


def _reset_of(configs: Configs, group_id: str) -> str | None:
    """What was set for the group itself; None if nothing was."""
    for setting in configs.describe(EntityType.GROUPS, [group_id]).get(group_id, []):
        if setting.name == OFFSET_RESET and setting.source is ConfigSource.DYNAMIC_GROUP_CONFIG:
            return setting.value
    return None
