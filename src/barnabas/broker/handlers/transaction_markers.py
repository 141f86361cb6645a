"""WriteTxnMarkers v1–2: another broker's coordinator ends transactions in partitions that this broker leads.

- `kafka-transactions.sh --abort` sends it too, to end a transaction that no coordinator knows any more.
- Only a broker of this cluster may bring a coordinator epoch above the one that the log has of the producer. Anybody
  else gets CLUSTER_AUTHORIZATION_FAILED, with or without an authorizer: the coordinator's own markers would be refused
  from then on. Tools name the epoch that DescribeProducers tells.
- A partition that this broker does not lead has NOT_LEADER_OR_FOLLOWER, and the coordinator asks its leader.
- The response waits for a time until the markers are committed; one that is not in time has REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from barnabas.broker.replication.verification_guards import Marker
from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.model.errors import ErrorCode


async def write_txn_markers(
    broker: BrokerContext, request: WriteTxnMarkersRequest, caller: Caller
) -> WriteTxnMarkersResponse:
    """Write all markers; the answer waits a while for them to be committed."""
    by_broker = caller.broker_id is not None
    wanted = [(tp, _marker(asked, by_broker)) for asked in request.markers for tp in _places(asked)]
    codes = iter(await broker.transactions.writer.remote.write(wanted))
    return WriteTxnMarkersResponse(markers=tuple(_result(asked, codes) for asked in request.markers))


def _marker(asked: WritableTxnMarker, by_broker: bool) -> Marker:
    bumped = asked.transaction_version >= EPOCH_BUMPS_SINCE
    return Marker(
        asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result, bumped, by_broker
    )


def _places(asked: WritableTxnMarker) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partition_indexes]


def _result(asked: WritableTxnMarker, codes: Iterator[ErrorCode]) -> WritableTxnMarkerResult:
    """The next of the codes, one for each place."""
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=next(codes))
                    for index in topic.partition_indexes
                ),
            )
            for topic in asked.topics
        ),
    )
