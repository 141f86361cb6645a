"""Simulates the controller's work in large clusters, by its own code: `python scripts/controller_scale.py`.

For clusters from 3 brokers with 10,000 partitions to 1,000 brokers with a million, three replicas each: what the image
takes in memory, what the death of a broker makes the controller decide, write and send, and what a new controller sends
to everybody, and what it takes a broker to apply that. Messages are packed as for the wire, for every broker. It
prints a line for each cluster; seconds are processor time of one core. The largest cluster takes a minute and 3 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
import tracemalloc
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from barnabas.machines.controller.changes import apply
from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import Registered
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.metadata.images.announcements import Announcements
from barnabas.metadata.images.updates import updated
from barnabas.metadata.images.writes import operations, portions
from barnabas.protocol.messages.controller_updates import number_tag
from barnabas.protocol.messages.inter_broker import UpdateMetadataRequest
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CLUSTERS: Final = ((3, 10_000), (3, 100_000), (30, 100_000), (100, 300_000), (1_000, 1_000_000))
PARTITIONS_OF_A_TOPIC: Final = 10
REPLICAS: Final = 3


def cluster(brokers: int, partitions: int) -> ClusterImage:
    """A healthy cluster whose replicas are spread evenly."""
    members = {
        number: BrokerImage(broker_id=number, epoch=number, endpoints={"PLAINTEXT": Endpoint(f"host-{number}", 9092)})
        for number in range(brokers)
    }
    topics = {}
    for first in range(0, partitions, PARTITIONS_OF_A_TOPIC):
        name = f"topic-{first // PARTITIONS_OF_A_TOPIC}"
        found = []
        for index in range(PARTITIONS_OF_A_TOPIC):
            step = 1 + (first // brokers) % max(1, (brokers - 1) // 2)
            replicas = tuple((first + index + step * number) % brokers for number in range(REPLICAS))
            found.append(PartitionImage(index, replicas[0], 0, replicas, replicas))
        topics[name] = TopicImage(name, UUID(int=first + 1), tuple(found))
    names = {topic.topic_id: name for name, topic in topics.items()}
    return ClusterImage(
        cluster_id="scale",
        controller_id=1,
        controller_epoch=1,
        brokers=members,
        known=members,
        topics=topics,
        topic_names=names,
    )


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds, and what came of it."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def sent(announced: Announcements, brokers: Iterable[BrokerImage]) -> int:
    """Make the messages for brokers; how many bytes they have."""
    return sum(len(piece) for broker in brokers for message in announced.packed(broker) for piece in message.body)


def simulate(brokers: int, partitions: int) -> None:
    """One line of figures."""
    tracemalloc.start()
    image = cluster(brokers, partitions)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.freeze()
    machine = ControllerMachine(image, TopicDefaults(), count().__next__)  # type: ignore[arg-type]  # no topic is made
    left = {number: broker for number, broker in image.brokers.items() if number != 0}
    deciding, outcome = timed(lambda: machine.handle(Registered(left)))
    preparing, written = timed(lambda: asyncio.run(operations(None, outcome.changes, 1)))  # type: ignore[arg-type]
    multis = sum(1 for _ in portions(written))
    after = apply(image, outcome.changes)
    announced = Announcements(image, after)
    of_others = [broker for number, broker in after.brokers.items() if number != 1]
    sending, size = timed(lambda: sent(announced, of_others[:1]))
    sending_all, _ = timed(lambda: sent(announced, of_others[1:]))
    everything = Announcements(None, after)
    whole, full_size = timed(lambda: sent(everything, of_others[:1]))
    whole_all, all_size = timed(lambda: sent(everything, of_others[1:]))
    *_, update = everything.packed(of_others[0])
    body = memoryview(b"".join(update.body) + number_tag(0))
    reading, message = timed(lambda: bounds.read(UpdateMetadataRequest, body, 0, bounds.MAX_INTERNAL_ELEMENTS))
    applying, _ = timed(lambda: updated(image, message))
    print(
        f"{brokers:>7,} {partitions:>10,} {memory / 1e6:>9,.0f} {len(written):>9,} {multis:>7,} {deciding:>9.2f} "
        f"{preparing:>9.2f} {size / 1e6:>9.2f} {sending:>9.3f} {sending + sending_all:>9.2f} {full_size / 1e6:>9.1f} "
        f"{whole:>9.2f} {(full_size + all_size) / 1e9:>9.2f} {whole + whole_all:>9.2f} "
        f"{reading:>9.2f} {applying:>9.2f}",
        flush=True,
    )


def main() -> None:
    """Simulate clusters of growing size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=1_000_000, metavar="PARTITIONS", help="leave out larger clusters")
    most = parser.parse_args().most
    print(
        "                              a broker dies: ........................................"
        "............  everything, to one  ....... to all ......  a broker ........\n"
        "brokers partitions  image MB    writes  multis  decide s   write s to one MB    send s  to all s"
        "        MB         s        GB         s   reads s applies s"
    )
    for brokers, partitions in CLUSTERS:
        if partitions <= most:
            simulate(brokers, partitions)


if __name__ == "__main__":
    main()
