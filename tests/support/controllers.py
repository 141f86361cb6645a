"""Controllers of small clusters, for tests of their rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.machines.controller.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from barnabas.machines.controller.machine import Answer, ControllerMachine, Key
from barnabas.machines.controller.topics import TopicDefaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.machines.controller.requests import Request

TOPIC_ID: Final = UUID(int=100)


def brokers(*ids: int, epoch: int = 10, racks: Mapping[int, str] | None = None) -> dict[int, BrokerImage]:
    """Registered brokers; the epoch of each is its id times `epoch`."""
    return {
        each: BrokerImage(
            broker_id=each,
            epoch=each * epoch,
            endpoints={"PLAINTEXT": Endpoint("h", 9092)},
            rack=(racks or {}).get(each),
        )
        for each in ids
    }


def controller(
    *partitions: PartitionImage, up: tuple[int, ...] = (1, 2, 3, 4, 5), configs: Mapping[str, str] | None = None
) -> ControllerMachine:
    """The controller of a cluster with one topic `t`."""
    topic = TopicImage("t", TOPIC_ID, partitions)
    image = ClusterImage(
        controller_id=1,
        brokers=brokers(*up),
        topics={"t": topic},
        topic_names={TOPIC_ID: "t"},
        configs={ConfigResource.topic("t"): dict(configs or {})},
        features_epoch=0,
    )
    return ControllerMachine(image, TopicDefaults(), lambda: UUID(int=7))


def run(machine: ControllerMachine, request: Request) -> Mapping[Key, Answer]:
    """Let it decide and take over what it decided."""
    outcome = machine.handle(request)
    machine.replay(outcome.changes)
    return dict(outcome.replies)
