"""Every API that the broker serves: its versions, and where its handler is.

The versions are those that Apache Kafka 4.3.0 advertises, and ApiVersions is answered from this table. A handler's
module is imported when its API is first asked for: a broker that only carries messages never loads the others.

Produce is advertised from version 0 on although 0 to 2 are refused, as Kafka does: librdkafka takes a broker without
Produce v0 for one that cannot compress.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.protocol.apis import FLEXIBLE_FROM, ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable


class Api(NamedTuple):
    """One API: `handler` is module and function below `barnabas.broker.handlers`."""

    key: ApiKey
    oldest: int
    newest: int
    handler: str
    advertised_from: int | None = None
    """The oldest version in ApiVersions, where it is not the oldest that is served."""
    versioned: bool = False
    """Whether the handler is told the request's version, because what is done depends on it."""
    internal: bool = False
    """Whether it is for brokers among themselves, and clients are not told of it."""
    unproved: bool = False
    """Of an internal one, whether somebody may ask who has not proved to be a broker of this cluster: to prove it."""
    by_controller: bool = False
    """Whether only the controller can answer; other brokers hand the request on to it."""
    ends_with_connection: bool = False
    """Whether the handler, which waits as long as the client likes, is ended when nobody waits for its answer."""

    @property
    def flexible_from(self) -> int:
        """The first version whose header has tagged fields."""
        return FLEXIBLE_FROM[self.key]

    @property
    def advertised(self) -> tuple[int, int]:
        """Oldest and newest version that clients are told."""
        return (self.oldest if self.advertised_from is None else self.advertised_from), self.newest

    def load(self) -> Callable[..., Any]:
        """The handler itself."""
        module, function = self.handler.split(":")
        loaded: Callable[..., Any] = getattr(import_module(f"barnabas.broker.handlers.{module}"), function)
        return loaded


APIS: Final = (
    Api(ApiKey.PRODUCE, 3, 13, "produce:produce", advertised_from=0),
    Api(ApiKey.FETCH, 4, 18, "fetch:fetch"),
    Api(ApiKey.LIST_OFFSETS, 1, 11, "offsets:list_offsets"),
    Api(ApiKey.METADATA, 0, 13, "metadata:metadata", versioned=True),
    Api(ApiKey.LEADER_AND_ISR, 7, 7, "replication:leader_and_isr", internal=True),
    Api(ApiKey.STOP_REPLICA, 4, 4, "replication:stop_replica", internal=True),
    Api(ApiKey.UPDATE_METADATA, 8, 8, "replication:update_metadata", internal=True),
    Api(ApiKey.CONTROLLED_SHUTDOWN, 3, 3, "replication:controlled_shutdown", internal=True),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, "group_offsets:offset_commit", versioned=True),
    Api(ApiKey.OFFSET_FETCH, 1, 10, "group_offsets:offset_fetch", versioned=True),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, "coordinators:find_coordinator"),
    Api(ApiKey.JOIN_GROUP, 0, 9, "groups:join_group", versioned=True),
    Api(ApiKey.HEARTBEAT, 0, 4, "groups:heartbeat", versioned=True),
    Api(ApiKey.LEAVE_GROUP, 0, 5, "groups:leave_group", versioned=True),
    Api(ApiKey.SYNC_GROUP, 0, 5, "groups:sync_group", versioned=True),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, "group_admin:describe_groups", versioned=True),
    Api(ApiKey.LIST_GROUPS, 0, 5, "group_admin:list_groups"),
    Api(ApiKey.API_VERSIONS, 0, 4, "api_versions:api_versions"),
    Api(ApiKey.CREATE_TOPICS, 2, 7, "topics:create_topics", by_controller=True),
    Api(ApiKey.DELETE_TOPICS, 1, 6, "topics:delete_topics", by_controller=True),
    Api(ApiKey.DELETE_RECORDS, 0, 2, "offsets:delete_records", ends_with_connection=True),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, "producers:init_producer_id", versioned=True),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, "offsets:offset_for_leader_epoch"),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, "transactions:add_partitions_to_txn", versioned=True),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, "transactions:add_offsets_to_txn", versioned=True),
    Api(ApiKey.END_TXN, 0, 5, "transactions:end_txn", versioned=True),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, "transaction_markers:write_txn_markers"),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, "transaction_offsets:txn_offset_commit", versioned=True),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, "configs:describe_configs"),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, "configs:alter_configs", by_controller=True),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, "log_dirs:alter_replica_log_dirs"),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, "log_dirs:describe_log_dirs"),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, "topics:create_partitions", by_controller=True),
    Api(ApiKey.DELETE_GROUPS, 0, 2, "group_admin:delete_groups"),
    Api(ApiKey.ELECT_LEADERS, 0, 2, "partitions:elect_leaders", by_controller=True),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, "configs:incremental_alter_configs", by_controller=True),
    Api(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        1,
        "partitions:alter_partition_reassignments",
        by_controller=True,
    ),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, "partitions:list_partition_reassignments", by_controller=True),
    Api(ApiKey.OFFSET_DELETE, 0, 0, "group_offsets:offset_delete", versioned=True),
    Api(ApiKey.ALTER_PARTITION, 3, 3, "replication:alter_partition", internal=True),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, "features:update_features", versioned=True, by_controller=True),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, "cluster:describe_cluster"),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, "producers:describe_producers"),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, "cluster:unregister_broker", by_controller=True),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, "transactions:describe_transactions"),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, "transactions:list_transactions"),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, "groups:consumer_group_heartbeat", versioned=True),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, "group_admin:consumer_group_describe"),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, "configs:list_config_resources"),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, "metadata:describe_topic_partitions"),
    Api(ApiKey.PROBE, 0, 0, "replication:probe", internal=True),
    Api(ApiKey.FAILED_REPLICAS, 0, 0, "replication:failed_replicas", internal=True),
    Api(ApiKey.BROKER_HELLO, 0, 0, "introductions:hello", internal=True, unproved=True),
    Api(ApiKey.BROKER_PROOF, 0, 0, "introductions:proof", internal=True, unproved=True),
)

BY_KEY: Final = {api.key.value: api for api in APIS}

RAW: Final = frozenset({ApiKey.PRODUCE, ApiKey.FETCH})
"""APIs whose handlers read the frame and write the response themselves."""
