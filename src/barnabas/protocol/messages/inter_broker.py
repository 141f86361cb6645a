"""Messages between brokers: those of Kafka 3.9 between controller and brokers, and four of our own.

kio has the public messages only, so these are declared here as kio declares its own; its readers and writers take them.
One version of each is enough, the newest, since clusters are made of Barnabas brokers. Annotations are not postponed:
kio looks at the types.

    LeaderAndIsr        controller to replicas: the leader of each partition, its epoch, the in-sync replicas
    StopReplica         controller to brokers that have a replica no longer: stop it, or stop and delete it
    UpdateMetadata      controller to all brokers: the partitions as clients see them, and which brokers are up
    ControlledShutdown  stopping broker to controller: move leadership of its partitions to other brokers
    Probe               broker to broker: does a third broker refuse connections? (not in Kafka)
    FailedReplicas      broker to controller: the replicas in its failed log directories (not in Kafka)
    BrokerHello, BrokerProof   broker to broker, on a new connection: authentication (not in Kafka)
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from barnabas.protocol.apis import ApiKey

INCREMENTAL: Final = i8(1)
"""As a message's type: partitions that it does not name stay as they are."""
FULL: Final = i8(2)
"""As a message's type: partitions that it does not name do not exist."""

NUMBER_TAG: Final = 10_000
"""The tagged field with the number of a controller's message, which Kafka's do not have; far from Kafka's own tags."""
UNNUMBERED: Final = i64(-1)
"""As a message's number: it has none. A controller numbers its messages to a broker in ascending order."""


class _Nested:
    """A part of a message."""

    __slots__ = ()
    __type__: ClassVar = EntityType.nested
    __flexible__: ClassVar[bool] = True


class _Request:
    """A request."""

    __slots__ = ()
    __type__: ClassVar = EntityType.request
    __flexible__: ClassVar[bool] = True
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _Response:
    """A response."""

    __slots__ = ()
    __type__: ClassVar = EntityType.response
    __flexible__: ClassVar[bool] = True
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


# LeaderAndIsr


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionState(_Nested):
    """A partition's leadership."""

    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})
    leader: i32 = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    isr: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    partition_epoch: i32 = field(metadata={"kafka_type": "int32"})
    replicas: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    adding_replicas: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    removing_replicas: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    is_new: bool = field(metadata={"kafka_type": "bool"}, default=False)
    leader_recovery_state: i8 = field(metadata={"kafka_type": "int8"}, default=i8(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicState(_Nested):
    """A topic's partitions."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partition_states: tuple[LeaderAndIsrPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrLiveLeader(_Nested):
    """The address of a leader."""

    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    host_name: str = field(metadata={"kafka_type": "string"})
    port: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_Request):
    """Leaders and in-sync replicas, for brokers that have the replicas."""

    __version__: ClassVar[i16] = i16(7)
    __api_key__: ClassVar[i16] = i16(ApiKey.LEADER_AND_ISR)
    controller_id: i32 = field(metadata={"kafka_type": "int32"})
    is_k_raft_controller: bool = field(metadata={"kafka_type": "bool"}, default=False)
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    number: i64 = field(metadata={"kafka_type": "int64", "tag": NUMBER_TAG}, default=UNNUMBERED)
    type: i8 = field(metadata={"kafka_type": "int8"}, default=INCREMENTAL)
    topic_states: tuple[LeaderAndIsrTopicState, ...]
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartitionError(_Nested):
    """The result of a partition."""

    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_Nested):
    """The results of a topic's partitions."""

    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_Response):
    """The results of a LeaderAndIsr request."""

    __version__: ClassVar[i16] = i16(7)
    __api_key__: ClassVar[i16] = i16(ApiKey.LEADER_AND_ISR)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    topics: tuple[LeaderAndIsrTopicError, ...]


# StopReplica


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionState(_Nested):
    """A replica to be stopped."""

    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"}, default=i32(-1))
    delete_partition: bool = field(metadata={"kafka_type": "bool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaTopicState(_Nested):
    """A topic's replicas to be stopped."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    partition_states: tuple[StopReplicaPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(_Request):
    """Replicas that a broker is to stop."""

    __version__: ClassVar[i16] = i16(4)
    __api_key__: ClassVar[i16] = i16(ApiKey.STOP_REPLICA)
    controller_id: i32 = field(metadata={"kafka_type": "int32"})
    is_k_raft_controller: bool = field(metadata={"kafka_type": "bool"}, default=False)
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    number: i64 = field(metadata={"kafka_type": "int64", "tag": NUMBER_TAG}, default=UNNUMBERED)
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_Nested):
    """The result of a replica."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_Response):
    """The results of a StopReplica request."""

    __version__: ClassVar[i16] = i16(4)
    __api_key__: ClassVar[i16] = i16(ApiKey.STOP_REPLICA)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    partition_errors: tuple[StopReplicaPartitionError, ...]


# UpdateMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_Nested):
    """A partition, as clients are told of it."""

    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})
    leader: i32 = field(metadata={"kafka_type": "int32"})
    leader_epoch: i32 = field(metadata={"kafka_type": "int32"})
    isr: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    zk_version: i32 = field(metadata={"kafka_type": "int32"})
    replicas: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())
    offline_replicas: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataTopicState(_Nested):
    """A topic's partitions."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partition_states: tuple[UpdateMetadataPartitionState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataEndpoint(_Nested):
    """An address of a broker."""

    port: i32 = field(metadata={"kafka_type": "int32"})
    host: str = field(metadata={"kafka_type": "string"})
    listener: str = field(metadata={"kafka_type": "string"})
    security_protocol: i16 = field(metadata={"kafka_type": "int16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker(_Nested):
    """A broker that is up."""

    id: i32 = field(metadata={"kafka_type": "int32"})
    endpoints: tuple[UpdateMetadataEndpoint, ...]
    rack: str | None = field(metadata={"kafka_type": "string"}, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(_Request):
    """The cluster's metadata, for all brokers."""

    __version__: ClassVar[i16] = i16(8)
    __api_key__: ClassVar[i16] = i16(ApiKey.UPDATE_METADATA)
    controller_id: i32 = field(metadata={"kafka_type": "int32"})
    is_k_raft_controller: bool = field(metadata={"kafka_type": "bool"}, default=False)
    type: i8 = field(metadata={"kafka_type": "int8"}, default=INCREMENTAL)
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    number: i64 = field(metadata={"kafka_type": "int64", "tag": NUMBER_TAG}, default=UNNUMBERED)
    topic_states: tuple[UpdateMetadataTopicState, ...]
    live_brokers: tuple[UpdateMetadataBroker, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse(_Response):
    """The result of an UpdateMetadata request."""

    __version__: ClassVar[i16] = i16(8)
    __api_key__: ClassVar[i16] = i16(ApiKey.UPDATE_METADATA)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


# ControlledShutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(_Request):
    """A broker that is about to stop asks for other leaders."""

    __version__: ClassVar[i16] = i16(3)
    __api_key__: ClassVar[i16] = i16(ApiKey.CONTROLLED_SHUTDOWN)
    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_Nested):
    """A partition that no other broker can lead."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    partition_index: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_Response):
    """The partitions that the broker still leads."""

    __version__: ClassVar[i16] = i16(3)
    __api_key__: ClassVar[i16] = i16(ApiKey.CONTROLLED_SHUTDOWN)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    remaining_partitions: tuple[RemainingPartition, ...]


# Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest(_Request):
    """Try to connect to a broker."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.PROBE)
    broker_id: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResponse(_Response):
    """Whether the broker refuses connections."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.PROBE)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    is_refused: bool = field(metadata={"kafka_type": "bool"})


# FailedReplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplicasTopic(_Nested):
    """Partitions of one topic."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    partitions: tuple[i32, ...] = field(metadata={"kafka_type": "int32"}, default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplicasRequest(_Request):
    """All replicas of a broker in failed log directories."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.FAILED_REPLICAS)
    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"})
    topics: tuple[FailedReplicasTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplicasResponse(_Response):
    """The result of a FailedReplicas request."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.FAILED_REPLICAS)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


# BrokerHello


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHelloRequest(_Request):
    """Which broker connects, and to which."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.BROKER_HELLO)
    cluster_id: str = field(metadata={"kafka_type": "string"})
    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    peer_id: i32 = field(metadata={"kafka_type": "int32"})
    nonce: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHelloResponse(_Response):
    """The nonce that the proof must include."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.BROKER_HELLO)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    nonce: bytes = field(metadata={"kafka_type": "bytes"})


# BrokerProof


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProofRequest(_Request):
    """The proof of the broker that made the connection."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.BROKER_PROOF)
    proof: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProofResponse(_Response):
    """The proof of the broker that accepted it."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(ApiKey.BROKER_PROOF)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    proof: bytes = field(metadata={"kafka_type": "bytes"})


REQUESTS: Final[dict[int, type]] = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrRequest,
    ApiKey.STOP_REPLICA: StopReplicaRequest,
    ApiKey.UPDATE_METADATA: UpdateMetadataRequest,
    ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
    ApiKey.PROBE: ProbeRequest,
    ApiKey.FAILED_REPLICAS: FailedReplicasRequest,
    ApiKey.BROKER_HELLO: BrokerHelloRequest,
    ApiKey.BROKER_PROOF: BrokerProofRequest,
}
RESPONSES: Final[dict[int, type]] = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrResponse,
    ApiKey.STOP_REPLICA: StopReplicaResponse,
    ApiKey.UPDATE_METADATA: UpdateMetadataResponse,
    ApiKey.CONTROLLED_SHUTDOWN: ControlledShutdownResponse,
    ApiKey.PROBE: ProbeResponse,
    ApiKey.FAILED_REPLICAS: FailedReplicasResponse,
    ApiKey.BROKER_HELLO: BrokerHelloResponse,
    ApiKey.BROKER_PROOF: BrokerProofResponse,
}
