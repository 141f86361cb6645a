"""Brokers come, go, are about to stop, or lose a disk: what becomes of the partitions they have.

A topic is deleted whether or not its brokers are up. A broker that was down then comes back with logs of a
topic that was deleted. Like every broker that registers it gets the whole image, and sets aside the logs that are not
in it (strays).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.controller.changes import BrokerForgotten, BrokersChanged
from barnabas.machines.controller.elections import elect, elect_after_restart
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.controller.in_sync import check_broker_epoch
from barnabas.model.errors import ApiError, BrokerIdNotRegistered, InvalidRequest

if TYPE_CHECKING:
    from barnabas.machines.controller.decision import Decision
    from barnabas.machines.controller.requests import ForgetBroker, LogDirFailed, Registered, ShutDown


def registered(decision: Decision, request: Registered) -> None:
    """Lead without those that went, and use those that came."""
    image = decision.image
    brokers = dict(request.brokers)
    stayed = {
        broker_id
        for broker_id, broker in brokers.items()
        if (known := image.brokers.get(broker_id)) is not None and known.epoch == broker.epoch
    }
    came = frozenset(brokers.keys() - stayed)
    decision.assume_brokers(
        BrokersChanged(
            brokers,
            image.leaving & stayed,
            {broker_id: partitions for broker_id, partitions in image.failed.items() if broker_id in stayed},
        )
    )
    for topic, partition in list(decision.partitions()):
        live = decision.live(topic, partition.index)
        restarted = came | request.restarted.get((topic, partition.index), frozenset())
        after = elect_after_restart(partition, live, restarted)
        if after is not partition:
            decision.put(topic, after)


def shut_down(decision: Decision, request: ShutDown) -> None:
    """Give the partitions of a broker that is about to stop other leaders, and take it out of their ISRs.

    The answer names what it still leads and others have a replica of: no other replica is in sync there.
    """
    image, broker = decision.image, request.broker_id
    try:
        check_broker_epoch(image, broker, request.broker_epoch)
    except ApiError as error:
        decision.answers[broker] = error
        return
    decision.assume_brokers(BrokersChanged(image.brokers, image.leaving | {broker}, image.failed))
    remaining = []
    for topic, partition in list(decision.partitions()):
        if len(partition.replicas) == 1 or broker not in partition.isr:
            continue
        live = decision.live(topic, partition.index, unclean=False)
        if decision.settle(topic, partition, partition, live).leader == broker:
            remaining.append((topic, partition.index))
    decision.answers[broker] = tuple(remaining)


def forget(decision: Decision, request: ForgetBroker) -> None:
    """Place nothing on a broker any more. Replicas that it has stay assigned to it until they are moved."""
    image, broker = decision.image, request.broker_id
    if broker in image.brokers:
        decision.answers[broker] = InvalidRequest(
            f"Broker {broker} is up, and registers itself as long as it is: stop it first."
        )
    elif broker not in image.known:
        decision.answers[broker] = BrokerIdNotRegistered(f"Broker ID {broker} is not currently registered.")
    else:
        decision.answers[broker] = None
        decision.assume(BrokerForgotten(broker))


def log_dir_failed(decision: Decision, request: LogDirFailed) -> None:
    """Lead without replicas that cannot be used, and where there is no leader, with those that can be used again."""
    image, broker = decision.image, request.broker_id
    keys = frozenset(key for key in request.partitions if image.partition(*key) is not None)
    decision.answers[broker] = None
    known = image.failed.get(broker, frozenset())
    lost = keys if request.is_all else known | keys
    if broker not in image.brokers or lost == known:
        return
    others = {other: partitions for other, partitions in image.failed.items() if other != broker}
    failed = {**others, broker: lost} if lost else others
    decision.assume_brokers(BrokersChanged(image.brokers, image.leaving, failed))
    for topic, index in sorted(key for key in lost ^ known if image.partition(*key) is not None):
        partition = decision.find(topic, index)
        if (broker in partition.isr and (topic, index) in lost) or partition.leader == NO_LEADER:
            after = elect(partition, decision.live(topic, index))
            if after is not partition:
                decision.put(topic, after)
