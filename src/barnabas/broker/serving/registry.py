"""Every API that the broker serves, a line each: its versions, its handler, what it needs, and who may ask.

How the API's messages stand on the wire (packed by hand or by kio, what changed between versions, where a response has
its error) is the line of the same key in `protocol/wire/api_table`, which `Api.format` gives. The key itself stands in
`protocol/apis`. Outside its handler there is no more to know of an API.

The versions are those that Apache Kafka 4.3.0 advertises, and ApiVersions is answered from this table. A handler's
module is imported when its API is first asked for: a broker that only carries messages never loads the others.

Produce is advertised from version 0 on although 0 to 2 are refused, as Kafka does: librdkafka takes a broker without
Produce v0 for one that cannot compress.
"""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.permissions.needs import (
    IN_HANDLER,
    NOTHING,
    Need,
    by,
    on_cluster,
    on_group,
    on_transactional_id,
)
from barnabas.machines.security.acls import Operation
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire.api_table import API_FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.model.config.values import Values
    from barnabas.protocol.wire.api_table import ApiFormat


class Callers(Enum):
    """Who may ask for an API. Anybody else's connection is closed, or gets an error where clients know the API."""

    ANYBODY = "anybody"
    TRUSTED = "brokers of this cluster that have proved it, and whoever an authorizer gives the permission"
    BROKERS = "brokers of this cluster that have proved it"
    UNPROVED_BROKERS = "anybody, to prove to be a broker of this cluster"


class Api(NamedTuple):
    """One API: `handler` is module and function below `barnabas.broker.handlers`."""

    key: ApiKey
    oldest: int
    newest: int
    handler: str
    needs: Need
    """The permission that a caller needs, where the broker has an authorizer."""
    callers: Callers = Callers.ANYBODY
    """Who may ask at all."""
    forwarded: bool = False
    """Whether only the controller can answer, and other brokers forward the request to it."""
    raw: bool = False
    """Whether the handler reads the frame and writes the response itself."""
    usual: str = ""
    """What answers the usual requests without messages, while there are neither permissions nor quotas.

    It reads the frame and writes the response itself, and gives None for a request that is left to the handler.
    """
    takes_version: bool = False
    """Whether the handler is given the request's version, because what it does depends on it."""
    cancelled_on_disconnect: bool = False
    """Whether a handler that only reads, or waits, is cancelled when the client disconnects.

    A client that gives up on a long answer may ask for it again, and the broker would make more and more of them.
    """
    advertised_from: int | None = None
    """The oldest version in ApiVersions, where it is not the oldest that is served."""

    only_with: str | None = None
    """The setting without which it is neither served nor advertised."""

    @property
    def format(self) -> ApiFormat:
        """How its messages are read and written."""
        return API_FORMATS[self.key]

    @property
    def is_internal(self) -> bool:
        """Whether it is for brokers among themselves, and clients are not told of it."""
        return self.callers not in (Callers.ANYBODY, Callers.TRUSTED)

    @property
    def advertised(self) -> tuple[int, int]:
        """Oldest and newest version that clients are told."""
        return (self.oldest if self.advertised_from is None else self.advertised_from), self.newest

    def is_served(self, values: Values) -> bool:
        """Whether a broker with these settings serves it."""
        return self.only_with is None or bool(values.text_or_none(self.only_with))

    def load(self) -> Callable[..., Any]:
        """The handler itself."""
        return self._load(self.handler)

    def load_metered(self) -> Callable[..., Any]:
        """Of a raw API, what serves it while there are quotas: a function beside the handler."""
        return self._load(f"{self.handler}_metered")

    def load_usual(self) -> Callable[..., Any] | None:
        """What answers the usual requests, if there is such a thing."""
        return self._load(self.usual) if self.usual else None

    @staticmethod
    def _load(name: str) -> Callable[..., Any]:
        module, function = name.split(":")
        loaded: Callable[..., Any] = getattr(import_module(f"barnabas.broker.handlers.{module}"), function)
        return loaded


BROKERS: Final = Callers.BROKERS
TRUSTED: Final = Callers.TRUSTED
UNPROVED_BROKERS: Final = Callers.UNPROVED_BROKERS

CLUSTER_ACTION: Final = on_cluster(Operation.CLUSTER_ACTION)
ALTER_CLUSTER: Final = on_cluster(Operation.ALTER)
DESCRIBE_CLUSTER: Final = on_cluster(Operation.DESCRIBE)
READ_GROUP: Final = on_group(Operation.READ)

APIS: Final = (
    Api(ApiKey.PRODUCE, 3, 13, "produce:produce", IN_HANDLER, raw=True, advertised_from=0),
    Api(ApiKey.FETCH, 4, 18, "fetch:fetch", IN_HANDLER, raw=True),
    Api(ApiKey.LIST_OFFSETS, 1, 11, "offsets:list_offsets", by("topics:list_offsets"), cancelled_on_disconnect=True),
    Api(ApiKey.METADATA, 0, 13, "metadata:metadata", IN_HANDLER, takes_version=True),
    Api(ApiKey.LEADER_AND_ISR, 7, 7, "replication:leader_and_isr", CLUSTER_ACTION, BROKERS),
    Api(ApiKey.STOP_REPLICA, 4, 4, "replication:stop_replica", CLUSTER_ACTION, BROKERS),
    Api(ApiKey.UPDATE_METADATA, 8, 8, "replication:update_metadata", CLUSTER_ACTION, BROKERS),
    Api(ApiKey.CONTROLLED_SHUTDOWN, 3, 3, "replication:controlled_shutdown", CLUSTER_ACTION, BROKERS),
    Api(
        ApiKey.OFFSET_COMMIT,
        2,
        10,
        "group_offsets:offset_commit",
        by("groups:offset_commit"),
        takes_version=True,
        usual="one_offset:commit_one",
    ),
    Api(
        ApiKey.OFFSET_FETCH,
        1,
        10,
        "group_offsets:offset_fetch",
        by("groups:offset_fetch"),
        takes_version=True,
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.FIND_COORDINATOR,
        0,
        6,
        "coordinators:find_coordinator",
        by("groups:find_coordinator"),
        takes_version=True,
    ),
    Api(ApiKey.JOIN_GROUP, 0, 9, "groups:join_group", READ_GROUP, takes_version=True, usual="groups:usual_join_group"),
    Api(ApiKey.HEARTBEAT, 0, 4, "groups:heartbeat", READ_GROUP, takes_version=True, usual="groups:usual_heartbeat"),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "groups:leave_group", READ_GROUP, takes_version=True),
    Api(ApiKey.SYNC_GROUP, 0, 5, "groups:sync_group", READ_GROUP, takes_version=True, usual="groups:usual_sync_group"),
    Api(
        ApiKey.DESCRIBE_GROUPS,
        0,
        6,
        "group_admin:describe_groups",
        by("groups:describe_groups"),
        takes_version=True,
        cancelled_on_disconnect=True,
    ),
    Api(ApiKey.LIST_GROUPS, 0, 5, "group_admin:list_groups", by("groups:list_groups"), cancelled_on_disconnect=True),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, "sasl:handshake", NOTHING),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions:api_versions", NOTHING),
    Api(
        ApiKey.CREATE_TOPICS,
        2,
        7,
        "topics:create_topics",
        by("topics:create_topics"),
        forwarded=True,
        takes_version=True,
    ),
    Api(
        ApiKey.DELETE_TOPICS,
        1,
        6,
        "topics:delete_topics",
        by("topics:delete_topics"),
        forwarded=True,
        takes_version=True,
    ),
    Api(
        ApiKey.DELETE_RECORDS, 0, 2, "offsets:delete_records", by("topics:delete_records"), cancelled_on_disconnect=True
    ),
    Api(
        ApiKey.INIT_PRODUCER_ID,
        0,
        5,
        "producers:init_producer_id",
        by("transactions:init_producer_id"),
        takes_version=True,
    ),
    Api(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        2,
        4,
        "offsets:offset_for_leader_epoch",
        by("topics:offset_for_leader_epoch"),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        0,
        5,
        "transactions:add_partitions_to_txn",
        by("transactions:add_partitions_to_txn"),
        takes_version=True,
    ),
    Api(
        ApiKey.ADD_OFFSETS_TO_TXN,
        0,
        4,
        "transactions:add_offsets_to_txn",
        by("transactions:add_offsets_to_txn"),
        takes_version=True,
    ),
    Api(ApiKey.END_TXN, 0, 5, "transactions:end_txn", on_transactional_id(Operation.WRITE), takes_version=True),
    Api(
        ApiKey.WRITE_TXN_MARKERS,
        1,
        2,
        "transaction_markers:write_txn_markers",
        on_cluster(Operation.ALTER, Operation.CLUSTER_ACTION),
    ),
    Api(
        ApiKey.TXN_OFFSET_COMMIT,
        0,
        5,
        "transaction_offsets:txn_offset_commit",
        by("transactions:txn_offset_commit"),
        takes_version=True,
    ),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, "acls:describe_acls", DESCRIBE_CLUSTER, cancelled_on_disconnect=True),
    Api(ApiKey.CREATE_ACLS, 1, 3, "acls:create_acls", ALTER_CLUSTER, forwarded=True),
    Api(ApiKey.DELETE_ACLS, 1, 3, "acls:delete_acls", ALTER_CLUSTER, forwarded=True),
    Api(
        ApiKey.DESCRIBE_CONFIGS, 1, 4, "configs:describe_configs", by("configs:describe"), cancelled_on_disconnect=True
    ),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "configs:alter_configs", by("configs:alter"), forwarded=True),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "log_dirs:alter_replica_log_dirs", ALTER_CLUSTER),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, "log_dirs:describe_log_dirs", DESCRIBE_CLUSTER, cancelled_on_disconnect=True),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, "sasl:authenticate", NOTHING),
    Api(
        ApiKey.CREATE_PARTITIONS,
        0,
        3,
        "topics:create_partitions",
        by("topics:create_partitions"),
        forwarded=True,
        takes_version=True,
    ),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, "delegation_tokens:create_delegation_token", IN_HANDLER),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, "delegation_tokens:renew_delegation_token", NOTHING),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, "delegation_tokens:expire_delegation_token", NOTHING),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, "delegation_tokens:describe_delegation_token", IN_HANDLER),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "group_admin:delete_groups", by("groups:delete_groups")),
    Api(ApiKey.ELECT_LEADERS, 0, 2, "partitions:elect_leaders", ALTER_CLUSTER, forwarded=True),
    Api(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "configs:incremental_alter_configs", by("configs:alter"), forwarded=True
    ),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        1,
        "partitions:alter_partition_reassignments",
        ALTER_CLUSTER,
        forwarded=True,
    ),
    Api(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        0,
        "partitions:list_partition_reassignments",
        DESCRIBE_CLUSTER,
        forwarded=True,
    ),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "group_offsets:offset_delete", by("groups:offset_delete"), takes_version=True),
    Api(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        0,
        1,
        "quotas:describe_client_quotas",
        on_cluster(Operation.DESCRIBE_CONFIGS),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.ALTER_CLIENT_QUOTAS,
        0,
        1,
        "quotas:alter_client_quotas",
        on_cluster(Operation.ALTER_CONFIGS),
        forwarded=True,
    ),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, "users:describe_user_scram_credentials", DESCRIBE_CLUSTER),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, "users:alter_user_scram_credentials", ALTER_CLUSTER, forwarded=True),
    Api(ApiKey.ALTER_PARTITION, 3, 3, "replication:alter_partition", CLUSTER_ACTION, BROKERS),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, "features:update_features", ALTER_CLUSTER, forwarded=True, takes_version=True),
    Api(ApiKey.ENVELOPE, 0, 0, "envelope:envelope", CLUSTER_ACTION, BROKERS),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "cluster:describe_cluster", by("cluster:describe_cluster")),
    Api(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        0,
        "producers:describe_producers",
        by("topics:describe_producers"),
        cancelled_on_disconnect=True,
    ),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, "cluster:unregister_broker", ALTER_CLUSTER, forwarded=True),
    Api(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        0,
        "transactions:describe_transactions",
        by("transactions:describe_transactions"),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.LIST_TRANSACTIONS,
        0,
        2,
        "transactions:list_transactions",
        by("transactions:list_transactions"),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        1,
        "groups:consumer_group_heartbeat",
        by("groups:consumer_group_heartbeat"),
        takes_version=True,
        usual="groups:usual_consumer_group_heartbeat",
    ),
    Api(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        0,
        1,
        "group_admin:consumer_group_describe",
        by("groups:consumer_group_describe"),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        0,
        0,
        "telemetry:get_telemetry_subscriptions",
        NOTHING,
        only_with="telemetry.otlp.endpoint",
    ),
    Api(ApiKey.PUSH_TELEMETRY, 0, 0, "telemetry:push_telemetry", NOTHING, only_with="telemetry.otlp.endpoint"),
    Api(
        ApiKey.LIST_CONFIG_RESOURCES,
        0,
        1,
        "configs:list_config_resources",
        on_cluster(Operation.DESCRIBE_CONFIGS),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        0,
        "metadata:describe_topic_partitions",
        IN_HANDLER,
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.SHARE_FETCH,
        1,
        2,
        "shares:share_fetch",
        by("groups:share_request"),
        takes_version=True,
        cancelled_on_disconnect=True,
    ),
    Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, "shares:share_acknowledge", by("groups:share_request"), takes_version=True),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, "share_state:initialize_share_group_state", CLUSTER_ACTION, TRUSTED),
    Api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, "share_state:read_share_group_state", CLUSTER_ACTION),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, "share_state:write_share_group_state", CLUSTER_ACTION, TRUSTED),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, "share_state:delete_share_group_state", CLUSTER_ACTION, TRUSTED),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, "share_state:read_share_group_state_summary", CLUSTER_ACTION),
    Api(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        1,
        "groups:share_group_heartbeat",
        by("groups:share_group_heartbeat"),
        takes_version=True,
    ),
    Api(
        ApiKey.SHARE_GROUP_DESCRIBE,
        1,
        1,
        "group_admin:share_group_describe",
        by("groups:share_group_describe"),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        0,
        1,
        "share_offsets:describe_share_group_offsets",
        by("share_groups:describe_offsets"),
        cancelled_on_disconnect=True,
    ),
    Api(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        0,
        "share_offsets:alter_share_group_offsets",
        by("share_groups:alter_offsets"),
    ),
    Api(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        0,
        0,
        "share_offsets:delete_share_group_offsets",
        by("share_groups:delete_offsets"),
    ),
    Api(ApiKey.PROBE, 0, 0, "replication:probe", CLUSTER_ACTION, BROKERS),
    Api(ApiKey.FAILED_REPLICAS, 0, 0, "replication:failed_replicas", CLUSTER_ACTION, BROKERS),
    Api(ApiKey.BROKER_HELLO, 0, 0, "broker_handshake:hello", NOTHING, UNPROVED_BROKERS),
    Api(ApiKey.BROKER_PROOF, 0, 0, "broker_handshake:proof", NOTHING, UNPROVED_BROKERS),
)

BY_KEY: Final = {api.key.value: api for api in APIS}
