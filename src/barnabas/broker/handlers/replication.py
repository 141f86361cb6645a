"""Requests between brokers: LeaderAndIsr v7, StopReplica v4, UpdateMetadata v8, ControlledShutdown v3,
AlterPartition v3, Probe v0, FailedReplicas v0.

Only brokers of this cluster may send these, after they have proved that they are (`handlers/broker_handshake`);
ApiVersions does not name them. One version of each is served, the newest of Apache Kafka 3.9, since clusters are made
of Barnabas brokers.

- A request that names another broker as its sender gets CLUSTER_AUTHORIZATION_FAILED.

- LeaderAndIsr, StopReplica and UpdateMetadata come from the controller. Those of a controller that was replaced are
  answered with STALE_CONTROLLER_EPOCH, those for an earlier registration of this broker with STALE_BROKER_EPOCH,
  those that it sent before one that was taken with INVALID_UPDATE_VERSION. Those of a controller, or for a
  registration, that the metadata tree does not know are answered with UNKNOWN_CONTROLLER_ID and
  BROKER_ID_NOT_REGISTERED, and may be sent again.
  They are answered when this broker acts by them and its logs are there.
- ControlledShutdown, AlterPartition and FailedReplicas go to the controller: NOT_CONTROLLER if this broker is none.
  FailedReplicas, which Kafka has not, names all replicas whose log directory has failed.
- Probe, which Kafka has not: whether another broker refuses connections, as seen from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.alter_partition.v3 import response as altered
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.image import NO_LEADER, PartitionImage
from barnabas.machines.controller.in_sync import check_broker_epoch
from barnabas.machines.controller.requests import AlterIsr, IsrChange, LogDirFailed, ShutDown
from barnabas.model.errors import ApiError, ClusterAuthorizationFailed, ErrorCode, NotController
from barnabas.model.ids import NO_ID
from barnabas.protocol.messages import inter_broker

MAKING_SECONDS: Final = 1.0
"""How long an answer to the controller waits for logs that are made: what it tells next comes after the answer, and may
be who leads partitions that have their logs."""

if TYPE_CHECKING:
    from kio.schema.alter_partition.v3.request import AlterPartitionRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller


def _check_sender(broker_id: int, caller: Caller) -> None:
    if broker_id != caller.broker_id:
        raise ClusterAuthorizationFailed(f"Broker {caller.broker_id} sent a request of broker {broker_id}.")


async def leader_and_isr(
    broker: BrokerContext, request: inter_broker.LeaderAndIsrRequest, caller: Caller
) -> inter_broker.LeaderAndIsrResponse:
    """Apply leaders and in-sync replicas; those in a failed log directory are answered with KAFKA_STORAGE_ERROR."""
    _check_sender(request.controller_id, caller)
    await broker.membership.updates.leader_and_isr(request)
    await broker.replicas.settled(MAKING_SECONDS)
    lost = [
        inter_broker.LeaderAndIsrTopicError(
            topic_id=topic.topic_id,
            partition_errors=tuple(
                inter_broker.LeaderAndIsrPartitionError(
                    partition_index=each.partition_index, error_code=ErrorCode.kafka_storage_error
                )
                for each in topic.partition_states
                if broker.replicas.is_unusable(topic.topic_name, each.partition_index)
            ),
        )
        for topic in (request.topic_states if broker.logs.failed_directories else ())
    ]
    return inter_broker.LeaderAndIsrResponse(
        error_code=ErrorCode.none, topics=tuple(each for each in lost if each.partition_errors)
    )


async def stop_replica(
    broker: BrokerContext, request: inter_broker.StopReplicaRequest, caller: Caller
) -> inter_broker.StopReplicaResponse:
    """Stop replicas that this broker has no longer; their data is deleted if the metadata tree agrees."""
    _check_sender(request.controller_id, caller)
    await broker.membership.updates.verify_stop(request)
    for topic in request.topic_states:
        for partition in topic.partition_states:
            if partition.delete_partition:
                broker.replicas.stop(topic.topic_name, partition.partition_index, partition.leader_epoch)
    broker.membership.updates.stop_replica(request, broker.broker_id)
    return inter_broker.StopReplicaResponse(error_code=ErrorCode.none, partition_errors=())


async def update_metadata(
    broker: BrokerContext, request: inter_broker.UpdateMetadataRequest, caller: Caller
) -> inter_broker.UpdateMetadataResponse:
    """Apply the state of all partitions, and which brokers are up."""
    _check_sender(request.controller_id, caller)
    await broker.membership.update_metadata(request)
    await broker.replicas.settled(MAKING_SECONDS)
    return inter_broker.UpdateMetadataResponse(error_code=ErrorCode.none)


async def controlled_shutdown(
    broker: BrokerContext, request: inter_broker.ControlledShutdownRequest, caller: Caller
) -> inter_broker.ControlledShutdownResponse:
    """Move leadership away from a broker that is about to stop; answer with what it still leads."""
    _check_sender(request.broker_id, caller)
    answers = await broker.controller.decide(ShutDown(request.broker_id, request.broker_epoch))
    remaining = answers[request.broker_id]
    if isinstance(remaining, ApiError):
        raise remaining
    assert isinstance(remaining, tuple)
    return inter_broker.ControlledShutdownResponse(
        error_code=ErrorCode.none,
        remaining_partitions=tuple(
            inter_broker.RemainingPartition(topic_name=topic, partition_index=i32(index)) for topic, index in remaining
        ),
    )


async def probe(
    broker: BrokerContext, request: inter_broker.ProbeRequest, caller: Caller
) -> inter_broker.ProbeResponse:
    """Try to connect to another broker."""
    endpoint = broker.peers.endpoint(request.broker_id)
    refused = endpoint is not None and await broker.probe.is_refused(endpoint)
    return inter_broker.ProbeResponse(error_code=ErrorCode.none, is_refused=refused)


async def failed_replicas(
    broker: BrokerContext, request: inter_broker.FailedReplicasRequest, caller: Caller
) -> inter_broker.FailedReplicasResponse:
    """Take replicas in failed log directories offline, and those that are no longer named online again."""
    _check_sender(request.broker_id, caller)
    if not broker.controller.is_active:
        raise NotController("This broker is not the controller.")
    check_broker_epoch(broker.metadata.image, request.broker_id, request.broker_epoch)
    keys = [(topic.topic_name, index) for topic in request.topics for index in topic.partitions]
    await broker.controller.decide(LogDirFailed(request.broker_id, keys, is_all=True))
    return inter_broker.FailedReplicasResponse(error_code=ErrorCode.none)


async def alter_partition(
    broker: BrokerContext, request: AlterPartitionRequest, caller: Caller
) -> altered.AlterPartitionResponse:
    """Decide on changes of in-sync replicas that leaders propose."""
    _check_sender(request.broker_id, caller)
    changes = [
        IsrChange(
            topic.topic_id or NO_ID,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            tuple(each.broker_id for each in partition.new_isr_with_epochs),
            tuple(each.broker_epoch for each in partition.new_isr_with_epochs),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    answers = await broker.controller.decide(AlterIsr(request.broker_id, request.broker_epoch, changes))
    return altered.AlterPartitionResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        topics=tuple(
            altered.TopicData(
                topic_id=topic.topic_id,
                partitions=tuple(
                    _partition_data(each.partition_index, answers[topic.topic_id or NO_ID, each.partition_index])
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _partition_data(index: i32, answer: object) -> altered.PartitionData:
    if isinstance(answer, PartitionImage):
        return altered.PartitionData(
            partition_index=index,
            error_code=ErrorCode.none,
            leader_id=BrokerId(answer.leader),
            leader_epoch=i32(answer.leader_epoch),
            isr=tuple(map(BrokerId, answer.isr)),
            partition_epoch=i32(answer.partition_epoch),
        )
    assert isinstance(answer, ApiError)
    return altered.PartitionData(
        partition_index=index,
        error_code=answer.code,
        leader_id=BrokerId(NO_LEADER),
        leader_epoch=i32(-1),
        partition_epoch=i32(-1),
    )
