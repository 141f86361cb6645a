"""`barnabas consume --share`: messages of a queue, acknowledged once they are printed.

A message counts as printed when standard output has taken it, so a broken pipe, and standard output that is closed,
leave messages to other workers.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final

from barnabas.cli.common.client_properties import SERIALIZERS
from barnabas.cli.common.failures import Failed
from barnabas.protocol.acknowledgements import Acknowledgement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.consume.options import Options
    from barnabas.cli.consume.shown_records import ShownRecords
    from barnabas.clients.queue.message import QueueMessage
    from barnabas.clients.queue.queue import Queue

DEFAULT_GROUP: Final = "console-share-consumer"
"""As in Kafka."""
BATCH: Final = 100
WAIT_SECONDS: Final = 0.5


def read_shared(options: Options, shown: ShownRecords, properties: dict[str, Any]) -> None:
    """Print messages of the queue until it is time to stop."""
    from barnabas.clients.queue.queue import Queue

    if options.most == 0:
        return
    if sys.__stdout__ is None:
        raise Failed("Standard output is closed: messages that nobody sees would be done with.")
    group = properties.pop("group.id", DEFAULT_GROUP)
    for name in ("isolation.level", "auto.offset.reset", *SERIALIZERS):
        properties.pop(name, None)  # settings of the group, or of consumers
    prefetch = BATCH if options.most is None else min(BATCH, options.most)
    queue: Queue[bytes, bytes] = Queue(
        options.address, options.topic or "", group, prefetch=prefetch, config=properties
    )
    with queue:
        for batch in _batches(queue, shown, options):
            readable = [shown.show(message.record) for message in batch]
            sys.stdout.buffer.flush()
            for message, is_readable in zip(batch, readable, strict=True):
                message.settle(_acknowledgement(options) if is_readable else Acknowledgement.REJECT)
            if shown.count == options.most:
                return


def _acknowledgement(options: Options) -> Acknowledgement:
    if options.release:
        return Acknowledgement.RELEASE
    return Acknowledgement.REJECT if options.reject else Acknowledgement.ACCEPT


def _batches(
    queue: Queue[bytes, bytes], shown: ShownRecords, options: Options
) -> Iterator[list[QueueMessage[bytes, bytes]]]:
    """What is there, never more than is still wanted, until nothing comes for the time that was given."""
    quiet_since = time.monotonic()
    while True:
        room = BATCH if options.most is None else min(BATCH, options.most - shown.count)
        batch = _take_batch(queue, room)
        if batch:
            yield batch
            quiet_since = time.monotonic()
        elif options.quiet_seconds is not None and time.monotonic() - quiet_since > options.quiet_seconds:
            return


def _take_batch(queue: Queue[bytes, bytes], most: int) -> list[QueueMessage[bytes, bytes]]:
    batch: list[QueueMessage[bytes, bytes]] = []
    while len(batch) < most and (message := queue.get(0 if batch else WAIT_SECONDS)) is not None:
        batch.append(message)
    return batch
