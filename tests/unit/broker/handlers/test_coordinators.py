"""FindCoordinator: the leader of a group's partition, whose topic is made when it is first asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest

from barnabas.broker.handlers.coordinators import find_coordinator
from barnabas.model.errors import ErrorCode
from barnabas.model.internal_topics import CONSUMER_OFFSETS
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER
from tests.support.parts import running_parts

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext


async def ask(broker: BrokerContext, kind: int, *keys: str, version: int = 6) -> Any:
    request = zero(FindCoordinatorRequest, key_type=kind, coordinator_keys=keys)
    answer = find_coordinator(broker, request, CALLER, version)
    return await answer if asyncio.iscoroutine(answer) else answer


async def test_other_kinds_are_not_known(tmp_path: Path) -> None:
    async with running_parts(tmp_path) as broker:
        response = await ask(broker, 3, "g", "h")
    assert [(one.key, one.node_id, one.host, one.port) for one in response.coordinators] == [
        ("g", -1, "", -1),
        ("h", -1, "", -1),
    ]
    for one in response.coordinators:
        assert one.error_code is ErrorCode.invalid_request
        assert "key type 3" in (one.error_message or "")


async def test_transactional_ids_have_a_topic_of_their_own(tmp_path: Path) -> None:
    async with running_parts(tmp_path, {"transaction.state.log.num.partitions": "2"}) as broker:
        response = await ask(broker, 1, "x", "y")
        for one in response.coordinators:
            assert one.error_code is ErrorCode.none
            assert one.node_id == broker.broker_id
        topic = broker.metadata.topic("__transaction_state")
        assert topic is not None
        assert len(topic.partitions) == 2
        assert broker.replicas.find("__transaction_state", 0).log.config.min_insync_replicas == 1
        assert broker.metadata.topic(CONSUMER_OFFSETS) is None


async def test_share_partitions_have_coordinators_from_version_6_on(tmp_path: Path) -> None:
    good, key = "a:group:AAAAAAAAAAAAAAAAAAAAAQ:3", "__share_group_state"
    bad = ["", "g", ":AAAAAAAAAAAAAAAAAAAAAQ:3", "g:AAAAAAAAAAAAAAAAAAAAAQ:x", "g:not-an-id:3"]
    async with running_parts(tmp_path, {"share.coordinator.state.topic.num.partitions": "2"}) as broker:
        (early,) = (await ask(broker, 2, good, version=5)).coordinators
        assert early.error_code is ErrorCode.invalid_request
        assert broker.metadata.topic(key) is None
        first, *others = (await ask(broker, 2, good, *bad)).coordinators
        assert (first.error_code, first.node_id) == (ErrorCode.none, broker.broker_id)
        assert {other.error_code for other in others} == {ErrorCode.invalid_request}
        assert len(broker.metadata.image.topics[key].partitions) == 2
        configs = broker.metadata.topic_config(key)
    assert configs["cleanup.policy"] == "delete"
    assert (configs["retention.ms"], configs["min.insync.replicas"]) == ("-1", "1")


async def test_the_topic_is_made_and_its_leader_named(tmp_path: Path) -> None:
    async with running_parts(tmp_path, {"offsets.topic.num.partitions": "3"}) as broker:
        answers = await asyncio.gather(*(ask(broker, 0, f"g{number}", "h") for number in range(5)))
        for response in answers:
            for one in response.coordinators:
                assert (one.node_id, one.host, one.port) == (broker.broker_id, "localhost", 9092)
                assert one.error_code is ErrorCode.none
        topic = broker.metadata.topic(CONSUMER_OFFSETS)
        assert topic is not None
        assert len(topic.partitions) == 3
        assert all(len(partition.replicas) == 1 for partition in topic.partitions)
        assert broker.metadata.topic_config(CONSUMER_OFFSETS) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }


async def test_more_replicas_than_brokers_are_not_pretended(tmp_path: Path) -> None:
    async with running_parts(tmp_path, {"offsets.topic.replication.factor": "2"}) as broker:
        (one,) = (await ask(broker, 0, "g")).coordinators
        assert one.error_code is ErrorCode.coordinator_not_available
        assert "cannot be created" in (one.error_message or "")
        assert broker.metadata.topic(CONSUMER_OFFSETS) is None
