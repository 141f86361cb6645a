"""One line for each API: how its messages stand on the wire, and what is special about them.

Most APIs need no more than kio's schemas: `protocol/wire/codec` reads and writes any version, and converts it to and
from the newest one by the names of its fields. A line says so for the others:

    unpack, pack        functions that read requests and write responses by hand, because the API is asked for often
    up, down            functions for a shape or a meaning that changed between versions
    request, response   classes that handlers know the messages by, where no class of kio's holds all versions
    errors              where a response has its error: once at the top, or with each thing that the request named

Functions and classes are named as "module:name" below `barnabas.protocol` and imported when the API is first asked
for. What the broker does with an API (versions, handler, who may ask) is the registry's: `broker/serving/registry`.
"""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping

NEVER: Final = 1 << 15
"""More than any version: the API has no flexible ones."""

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class AtTop(NamedTuple):
    """The response has one error, in its field `error_code`."""

    values: Mapping[str, object] = _NOTHING
    """Values that Kafka sends with an error, where they are not the fields' defaults."""


class Each(NamedTuple):
    """The response has an error for each element of a field of the request."""

    request_field: str
    """The request's field; the response has an element for each of its elements."""
    response_field: str
    """The response's field that has those elements."""
    name: str = ""
    """The field of the response's element that has the request's element, where that is a plain value, or its name."""
    inside: Each | None = None
    """The fields of these elements, where their elements have the error."""
    within: str = ""
    """The request's field whose elements have `request_field`, where the response has one level less."""
    values: Mapping[str, object] = _NOTHING
    """Values that Kafka sends with an error, where they are not the fields' defaults."""
    also: str = ""
    """Another field of the request whose elements the response has as well."""


class ApiFormat(NamedTuple):
    """How one API's messages are read and written."""

    flexible_from: int
    """The first version whose messages and headers have tagged fields."""
    errors: AtTop | Each | None
    """Where a response has its error; None where the handler alone knows how to pack one."""
    errors_before: tuple[int, Each] | None = None
    """A version, and where responses of older versions have the error."""
    unpack: str = ""
    unpack_usual: str = ""
    """Reads the form of a request that nearly all have, and gives None for any other."""
    pack: str = ""
    up: str = ""
    down: str = ""
    request: str = ""
    response: str = ""
    inter_broker: bool = False
    """Whether kio has no schemas for it, and `protocol/messages/inter_broker` declares them."""
    plain_response_header: bool = False
    """Whether responses have a header without tagged fields in all versions."""
    repeated: bool = False
    """Whether the handler answers with one object as long as nothing changes: then its bytes are kept.

    Not with `pack`.
    """


_TOP: Final = AtTop()
_TOPICS: Final = Each("topics", "topics")
_PARTITIONS: Final = Each("topics", "topics", inside=Each("partitions", "partitions"))
_SHARE_STATES: Final = Each("topics", "results", inside=Each("partitions", "partitions"))
_INDEXES: Final = Each("partition_indexes", "partitions", name="partition_index")

API_FORMATS: Final[dict[ApiKey, ApiFormat]] = {
    ApiKey.PRODUCE: ApiFormat(9, None, unpack="messages.produce:unpack", pack="messages.produce:pack"),
    ApiKey.FETCH: ApiFormat(12, None, unpack="messages.fetch_request:unpack", pack="messages.fetch_response:pack"),
    ApiKey.LIST_OFFSETS: ApiFormat(
        6, _PARTITIONS, up="wire.shapes:list_offsets_up", down="wire.shapes:list_offsets_down"
    ),
    ApiKey.METADATA: ApiFormat(
        9,
        _TOPICS,
        up="messages.metadata:up",
        down="messages.metadata:down",
        pack="messages.metadata:pack",
        request="messages.metadata:MetadataRequest",
        response="messages.metadata:MetadataResponse",
    ),
    ApiKey.LEADER_AND_ISR: ApiFormat(4, _TOP, inter_broker=True),
    ApiKey.STOP_REPLICA: ApiFormat(2, _TOP, inter_broker=True),
    ApiKey.UPDATE_METADATA: ApiFormat(6, _TOP, inter_broker=True),
    ApiKey.CONTROLLED_SHUTDOWN: ApiFormat(3, _TOP, inter_broker=True),
    ApiKey.OFFSET_COMMIT: ApiFormat(
        8,
        _PARTITIONS,
        unpack="messages.groups.offset_commit:unpack",
        pack="messages.groups.offset_commit:pack",
        request="messages.groups.offset_commit:OffsetCommitRequest",
        response="messages.groups.offset_commit:OffsetCommitResponse",
    ),
    ApiKey.OFFSET_FETCH: ApiFormat(
        6,
        Each("groups", "groups"),
        errors_before=(2, Each("groups", "groups", inside=Each("topics", "topics", inside=_INDEXES))),
        up="messages.groups.offset_fetch:up",
        down="messages.groups.offset_fetch:down",
        request="messages.groups.offset_fetch:OffsetFetchRequest",
        response="messages.groups.offset_fetch:OffsetFetchResponse",
    ),
    ApiKey.FIND_COORDINATOR: ApiFormat(
        3,
        Each("coordinator_keys", "coordinators", name="key", values={"node_id": -1, "port": -1}),
        up="wire.shapes:find_coordinator_up",
        down="wire.shapes:find_coordinator_down",
    ),
    ApiKey.JOIN_GROUP: ApiFormat(
        6,
        AtTop({"generation_id": -1}),
        unpack_usual="messages.groups.join_group:unpack_plain",
        pack="messages.groups.join_group:pack",
        request="messages.groups.join_group:JoinGroupRequest",
        response="messages.groups.join_group:JoinGroupResponse",
    ),
    ApiKey.HEARTBEAT: ApiFormat(
        4, _TOP, unpack_usual="messages.groups.heartbeat:unpack_idle", pack="messages.groups.heartbeat:pack"
    ),
    ApiKey.LEAVE_GROUP: ApiFormat(4, _TOP, up="wire.shapes:leave_group_up", down="wire.shapes:leave_group_down"),
    ApiKey.SYNC_GROUP: ApiFormat(
        4,
        _TOP,
        unpack_usual="messages.groups.sync_group:unpack_plain",
        pack="messages.groups.sync_group:pack",
        request="messages.groups.sync_group:SyncGroupRequest",
        response="messages.groups.sync_group:SyncGroupResponse",
    ),
    ApiKey.DESCRIBE_GROUPS: ApiFormat(5, Each("groups", "groups", name="group_id")),
    ApiKey.LIST_GROUPS: ApiFormat(3, _TOP),
    ApiKey.SASL_HANDSHAKE: ApiFormat(NEVER, _TOP),
    ApiKey.API_VERSIONS: ApiFormat(
        3, _TOP, down="wire.shapes:api_versions_down", plain_response_header=True, repeated=True
    ),
    ApiKey.CREATE_TOPICS: ApiFormat(5, Each("topics", "topics", values={"configs": ()})),
    ApiKey.DELETE_TOPICS: ApiFormat(
        4, Each("topics", "responses"), up="wire.shapes:delete_topics_up", down="wire.shapes:delete_topics_down"
    ),
    ApiKey.DELETE_RECORDS: ApiFormat(
        2, Each("topics", "topics", inside=Each("partitions", "partitions", values={"low_watermark": -1}))
    ),
    ApiKey.INIT_PRODUCER_ID: ApiFormat(2, AtTop({"producer_id": -1, "producer_epoch": -1})),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiFormat(4, _PARTITIONS),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiFormat(
        3,
        Each(
            "transactions",
            "results_by_transaction",
            inside=Each(
                "topics", "topic_results", inside=Each("partitions", "results_by_partition", name="partition_index")
            ),
        ),
        up="messages.add_partitions_to_txn:up",
        down="messages.add_partitions_to_txn:down",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiFormat(3, _TOP),
    ApiKey.END_TXN: ApiFormat(3, _TOP, unpack="messages.end_txn:unpack", pack="messages.end_txn:pack"),
    ApiKey.WRITE_TXN_MARKERS: ApiFormat(
        1, Each("markers", "markers", inside=Each("topics", "topics", inside=_INDEXES))
    ),
    ApiKey.TXN_OFFSET_COMMIT: ApiFormat(
        3,
        _PARTITIONS,
        unpack="messages.groups.txn_offset_commit:unpack",
        pack="messages.groups.txn_offset_commit:pack",
        request="messages.groups.txn_offset_commit:TxnOffsetCommitRequest",
        response="messages.groups.txn_offset_commit:TxnOffsetCommitResponse",
    ),
    ApiKey.DESCRIBE_ACLS: ApiFormat(2, _TOP),
    ApiKey.CREATE_ACLS: ApiFormat(2, Each("creations", "results")),
    ApiKey.DELETE_ACLS: ApiFormat(2, Each("filters", "filter_results")),
    ApiKey.DESCRIBE_CONFIGS: ApiFormat(4, Each("resources", "results")),
    ApiKey.ALTER_CONFIGS: ApiFormat(2, Each("resources", "responses")),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiFormat(
        2,
        Each(
            "topics",
            "results",
            name="topic_name",
            within="dirs",
            inside=Each("partitions", "partitions", name="partition_index"),
        ),
    ),
    ApiKey.DESCRIBE_LOG_DIRS: ApiFormat(2, _TOP),
    ApiKey.SASL_AUTHENTICATE: ApiFormat(2, _TOP),
    ApiKey.CREATE_PARTITIONS: ApiFormat(2, Each("topics", "results")),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiFormat(2, _TOP),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiFormat(2, _TOP),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiFormat(2, _TOP),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiFormat(2, _TOP),
    ApiKey.DELETE_GROUPS: ApiFormat(2, Each("groups_names", "results", name="group_id")),
    ApiKey.ELECT_LEADERS: ApiFormat(
        2,
        _TOP,
        errors_before=(
            1,
            Each(
                "topic_partitions",
                "replica_election_results",
                inside=Each("partitions", "partition_result", name="partition_id"),
            ),
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiFormat(1, Each("resources", "responses")),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiFormat(0, _TOP),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiFormat(0, _TOP),
    ApiKey.OFFSET_DELETE: ApiFormat(NEVER, _TOP),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiFormat(1, AtTop({"entries": None})),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiFormat(1, Each("entries", "entries")),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiFormat(0, _TOP),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiFormat(0, Each("deletions", "results", name="user", also="upsertions")),
    ApiKey.ALTER_PARTITION: ApiFormat(0, _TOP),
    ApiKey.UPDATE_FEATURES: ApiFormat(0, _TOP, up="wire.shapes:update_features_up"),
    ApiKey.ENVELOPE: ApiFormat(0, _TOP),
    ApiKey.DESCRIBE_CLUSTER: ApiFormat(0, _TOP),
    ApiKey.DESCRIBE_PRODUCERS: ApiFormat(0, Each("topics", "topics", inside=_INDEXES)),
    ApiKey.UNREGISTER_BROKER: ApiFormat(0, _TOP),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiFormat(
        0, Each("transactional_ids", "transaction_states", name="transactional_id")
    ),
    ApiKey.LIST_TRANSACTIONS: ApiFormat(0, _TOP),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiFormat(
        0,
        _TOP,
        unpack_usual="messages.groups.consumer_group_heartbeat:unpack_plain",
        pack="messages.groups.consumer_group_heartbeat:pack",
        request="messages.groups.consumer_group_heartbeat:ConsumerGroupHeartbeatRequest",
        response="messages.groups.consumer_group_heartbeat:ConsumerGroupHeartbeatResponse",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiFormat(0, Each("group_ids", "groups", name="group_id")),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiFormat(0, _TOP),
    ApiKey.PUSH_TELEMETRY: ApiFormat(0, _TOP),
    ApiKey.LIST_CONFIG_RESOURCES: ApiFormat(0, _TOP, up="wire.shapes:list_config_resources_up"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiFormat(0, _TOPICS),
    ApiKey.SHARE_FETCH: ApiFormat(
        0,
        _TOP,
        unpack="messages.shares.requests:unpack_fetch",
        pack="messages.shares.responses:pack_fetch",
        request="messages.shares.requests:ShareFetchRequest",
        response="messages.shares.responses:ShareFetchResponse",
    ),
    ApiKey.SHARE_ACKNOWLEDGE: ApiFormat(
        0,
        _TOP,
        unpack="messages.shares.requests:unpack_acknowledge",
        pack="messages.shares.responses:pack_acknowledge",
        request="messages.shares.requests:ShareAcknowledgeRequest",
        response="messages.shares.responses:ShareAcknowledgeResponse",
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ApiFormat(0, _SHARE_STATES),
    ApiKey.READ_SHARE_GROUP_STATE: ApiFormat(0, _SHARE_STATES),
    ApiKey.WRITE_SHARE_GROUP_STATE: ApiFormat(0, _SHARE_STATES),
    ApiKey.DELETE_SHARE_GROUP_STATE: ApiFormat(0, _SHARE_STATES),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ApiFormat(0, _SHARE_STATES),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiFormat(
        0,
        _TOP,
        unpack_usual="messages.shares.heartbeat:unpack_idle",
        pack="messages.groups.consumer_group_heartbeat:pack",
    ),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiFormat(0, Each("group_ids", "groups", name="group_id")),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiFormat(0, Each("groups", "groups")),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiFormat(0, _TOP),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiFormat(0, _TOP),
    ApiKey.PROBE: ApiFormat(0, _TOP, inter_broker=True),
    ApiKey.FAILED_REPLICAS: ApiFormat(0, _TOP, inter_broker=True),
    ApiKey.BROKER_HELLO: ApiFormat(0, _TOP, inter_broker=True),
    ApiKey.BROKER_PROOF: ApiFormat(0, _TOP, inter_broker=True),
}


def load(name: str) -> Any:
    """The function or class of this "module:name" below `barnabas.protocol`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(f"barnabas.protocol.{module}"), attribute)
