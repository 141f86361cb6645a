"""A request as faults see it: its API, its client, and the topics and groups that it names.

Its body is decoded when a fault is for a topic or a group, and then once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.broker.serving.registry import BY_KEY
from barnabas.protocol.apis import ApiKey, ResourceType
from barnabas.protocol.wire import codec, framing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.registry import Api
    from barnabas.protocol.wire.framing import RequestHeader

GROUP_COORDINATOR: Final = 0

NAME_TOPICS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.OFFSET_DELETE,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""APIs whose requests say which topics they are about."""

GROUP_FIELDS: Final = {
    ApiKey.OFFSET_COMMIT: "group_id",
    ApiKey.OFFSET_FETCH: "groups",
    ApiKey.FIND_COORDINATOR: "coordinator_keys",
    ApiKey.JOIN_GROUP: "group_id",
    ApiKey.HEARTBEAT: "group_id",
    ApiKey.LEAVE_GROUP: "group_id",
    ApiKey.SYNC_GROUP: "group_id",
    ApiKey.DESCRIBE_GROUPS: "groups",
    ApiKey.DELETE_GROUPS: "groups_names",
    ApiKey.OFFSET_DELETE: "group_id",
    ApiKey.ADD_OFFSETS_TO_TXN: "group_id",
    ApiKey.TXN_OFFSET_COMMIT: "group_id",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "group_id",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "group_ids",
    ApiKey.SHARE_GROUP_HEARTBEAT: "group_id",
    ApiKey.SHARE_GROUP_DESCRIBE: "group_ids",
    ApiKey.SHARE_FETCH: "group_id",
    ApiKey.SHARE_ACKNOWLEDGE: "group_id",
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: "group_id",
    ApiKey.READ_SHARE_GROUP_STATE: "group_id",
    ApiKey.WRITE_SHARE_GROUP_STATE: "group_id",
    ApiKey.DELETE_SHARE_GROUP_STATE: "group_id",
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "group_id",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "groups",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "group_id",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "group_id",
}
"""APIs whose requests say which groups they are about, and the field that does."""


class InterceptedRequest:
    """One request of an API and version that this broker serves."""

    def __init__(self, broker: BrokerContext, api: Api, frame: memoryview) -> None:
        self.api = api
        self.frame = frame
        self.header: RequestHeader = framing.read_header(
            frame, framing.HEADER.unpack_from(frame)[1] >= api.format.flexible_from
        )
        self.version = self.header.version
        self._broker = broker

    @staticmethod
    def of(broker: BrokerContext, frame: memoryview) -> InterceptedRequest | None:
        """The request in a frame; None if it is not served, which faults leave to the dispatcher to say."""
        key, version, *_ = framing.HEADER.unpack_from(frame)
        api = BY_KEY.get(key)
        return (
            InterceptedRequest(broker, api, frame) if api is not None and api.oldest <= version <= api.newest else None
        )

    @property
    def client_id(self) -> str | None:
        """The client's name for itself."""
        raw = self.header.client_id
        return None if raw is None else raw.decode(errors="replace")

    @cached_property
    def request(self) -> Any:
        """The request as its handler knows it; raises InvalidFrame."""
        return codec.decode(self.api.key, self.version, self.api.newest, self.frame, self.header.body)

    def is_about_topic(self, name: str) -> bool:
        """Whether the request names the topic, or all topics."""
        if self.api.key not in NAME_TOPICS:
            return False
        named = self._topics()
        return named is None or name in named

    def is_about_group(self, group_id: str) -> bool:
        """Whether the request names the group."""
        field = GROUP_FIELDS.get(self.api.key)
        if field is None or (field == "coordinator_keys" and self.request.key_type != GROUP_COORDINATOR):
            return False
        named = getattr(self.request, field)
        if isinstance(named, str):
            return named == group_id
        return any(group_id in (one, getattr(one, "group_id", None)) for one in named)

    def _topics(self) -> set[str] | None:
        """The names of the topics that the request is about; None for all."""
        request, key = self.request, self.api.key
        if key is ApiKey.PRODUCE:
            return self._names(topic for topic, *_ in request.partitions)
        if key is ApiKey.FETCH:
            session = self._broker.fetch_sessions.partitions_of(request.session_id)
            return self._names([*(one.topic for one in request.partitions), *(one.topic for one in session)])
        if hasattr(request, "resources"):
            return {one.resource_name for one in request.resources if one.resource_type == ResourceType.TOPIC}
        named: set[str] = set()
        for part in getattr(request, "groups", (request,)):
            if part.topics is None or (key is ApiKey.DESCRIBE_TOPIC_PARTITIONS and not part.topics):
                return None
            named |= self._names(_topic_of(topic) for topic in part.topics)
        return named

    def _names(self, topics: Iterable[str | bytes | UUID]) -> set[str]:
        return set(self._resolved(topics))

    def _resolved(self, topics: Iterable[str | bytes | UUID]) -> Iterator[str]:
        for topic in topics:
            if isinstance(topic, str):
                yield topic
                continue
            found = self._broker.metadata.topic_by_id(UUID(bytes=topic) if isinstance(topic, bytes) else topic)
            if found is not None:
                yield found.name


def _topic_of(element: Any) -> str | UUID:
    """How an element of a request names its topic."""
    names = (getattr(element, field, None) for field in ("name", "topic", "topic_name", "topic_id"))
    return next((name for name in names if name), "")
