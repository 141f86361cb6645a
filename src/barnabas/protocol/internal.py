"""What a controller tells brokers, and what brokers ask it when they stop: the inter-broker messages of Kafka 3.9.

kio has the public messages only, so these are declared here as kio declares its own; its readers and writers take them.
One version of each is enough, the newest, since clusters are made of Barnabas brokers. Annotations are not postponed:
kio looks at the types.

    LeaderAndIsr        to replicas: who leads a partition, in which epoch, and who is in sync
    StopReplica         to replicas that are none any more: stop, or stop and delete
    UpdateMetadata      to all: the same for clients, and which brokers are up
    ControlledShutdown  from a broker that is about to stop: give my partitions other leaders
    Probe               from a broker that finds another one dead: do you find the same? (Kafka has no such message)
    FailedReplicas      from a broker whose log directory failed, or is back: it lacks these replicas (nor this one)
    BrokerHello, BrokerProof   on a new connection: who asks, and the proof of it (nor these)
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
CONTROLLED_SHUTDOWN: Final = 7
PROBE: Final = 1000
"""A number far from Kafka's own."""
FAILED_REPLICAS: Final = 1001
BROKER_HELLO: Final = 1002
BROKER_PROOF: Final = 1003

INCREMENTAL: Final = i8(1)
"""As a message's type: what it does not name stays as it is."""
FULL: Final = i8(2)
"""As a message's type: what it does not name is not there."""

NUMBER_TAG: Final = 10_000
"""Where the controller's messages carry a number, which Kafka's do not have: far from Kafka's own tags, too."""
UNNUMBERED: Final = i64(-1)
"""As a message's number: it has none. Otherwise, what a controller sends to a broker later has a higher one."""


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
    """Where a leader is reached."""

    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    host_name: str = field(metadata={"kafka_type": "string"})
    port: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(_Request):
    """To replicas."""

    __version__: ClassVar[i16] = i16(7)
    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
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
    """What became of a partition."""

    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrTopicError(_Nested):
    """What became of a topic's partitions."""

    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partition_errors: tuple[LeaderAndIsrPartitionError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse(_Response):
    """From replicas."""

    __version__: ClassVar[i16] = i16(7)
    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
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
    """To replicas that are none any more."""

    __version__: ClassVar[i16] = i16(4)
    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    controller_id: i32 = field(metadata={"kafka_type": "int32"})
    is_k_raft_controller: bool = field(metadata={"kafka_type": "bool"}, default=False)
    controller_epoch: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))
    number: i64 = field(metadata={"kafka_type": "int64", "tag": NUMBER_TAG}, default=UNNUMBERED)
    topic_states: tuple[StopReplicaTopicState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartitionError(_Nested):
    """What became of a replica."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    partition_index: i32 = field(metadata={"kafka_type": "int32"})
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse(_Response):
    """From such replicas."""

    __version__: ClassVar[i16] = i16(4)
    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    partition_errors: tuple[StopReplicaPartitionError, ...]


# UpdateMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartitionState(_Nested):
    """A partition, for whoever asks."""

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
    """Where a broker is reached."""

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
    """To all brokers."""

    __version__: ClassVar[i16] = i16(8)
    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
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
    """From all brokers."""

    __version__: ClassVar[i16] = i16(8)
    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


# ControlledShutdown


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest(_Request):
    """From a broker that is about to stop."""

    __version__: ClassVar[i16] = i16(3)
    __api_key__: ClassVar[i16] = i16(CONTROLLED_SHUTDOWN)
    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"}, default=i64(-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingPartition(_Nested):
    """A partition that nobody else can lead."""

    topic_name: str = field(metadata={"kafka_type": "string"})
    partition_index: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse(_Response):
    """What it still leads."""

    __version__: ClassVar[i16] = i16(3)
    __api_key__: ClassVar[i16] = i16(CONTROLLED_SHUTDOWN)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    remaining_partitions: tuple[RemainingPartition, ...]


# Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest(_Request):
    """Try to connect to a broker."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(PROBE)
    broker_id: i32 = field(metadata={"kafka_type": "int32"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResponse(_Response):
    """Whether it refuses connections."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(PROBE)
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
    """All replicas that a broker cannot use now."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(FAILED_REPLICAS)
    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    broker_epoch: i64 = field(metadata={"kafka_type": "int64"})
    topics: tuple[FailedReplicasTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReplicasResponse(_Response):
    """That the controller knows."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(FAILED_REPLICAS)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})


# BrokerHello


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHelloRequest(_Request):
    """Who asks, and whom."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(BROKER_HELLO)
    cluster_id: str = field(metadata={"kafka_type": "string"})
    broker_id: i32 = field(metadata={"kafka_type": "int32"})
    peer_id: i32 = field(metadata={"kafka_type": "int32"})
    nonce: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHelloResponse(_Response):
    """What the proof must be about, too."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(BROKER_HELLO)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    nonce: bytes = field(metadata={"kafka_type": "bytes"})


# BrokerProof


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProofRequest(_Request):
    """The proof of who made the connection."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(BROKER_PROOF)
    proof: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProofResponse(_Response):
    """The proof of who took it."""

    __version__: ClassVar[i16] = i16(0)
    __api_key__: ClassVar[i16] = i16(BROKER_PROOF)
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    proof: bytes = field(metadata={"kafka_type": "bytes"})


REQUESTS: Final = {
    LEADER_AND_ISR: LeaderAndIsrRequest,
    STOP_REPLICA: StopReplicaRequest,
    UPDATE_METADATA: UpdateMetadataRequest,
    CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
    PROBE: ProbeRequest,
    FAILED_REPLICAS: FailedReplicasRequest,
    BROKER_HELLO: BrokerHelloRequest,
    BROKER_PROOF: BrokerProofRequest,
}
RESPONSES: Final = {
    LEADER_AND_ISR: LeaderAndIsrResponse,
    STOP_REPLICA: StopReplicaResponse,
    UPDATE_METADATA: UpdateMetadataResponse,
    CONTROLLED_SHUTDOWN: ControlledShutdownResponse,
    PROBE: ProbeResponse,
    FAILED_REPLICAS: FailedReplicasResponse,
    BROKER_HELLO: BrokerHelloResponse,
    BROKER_PROOF: BrokerProofResponse,
}
