"""How `barnabas consume` goes on: records are shown until it is time to stop."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from barnabas.cli.common.progress import progress
from barnabas.clients.errors import ClientFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.cli.consume.options import Options
    from barnabas.cli.consume.shown_records import ShownRecords
    from barnabas.cli.consume.waiting import Waiting
    from barnabas.clients.consumer.consumer import Consumer
    from barnabas.clients.records import ConsumerRecord

BATCH: Final = 500
WAIT_SECONDS: Final = 0.5


def read(consumer: Consumer[bytes, bytes], shown: ShownRecords, options: Options, waiting: Waiting) -> None:
    """Print records until it is time to stop."""
    if options.most == 0:
        return
    if options.until_end:
        _read_to_end(consumer, shown, options.most, waiting)
        return
    for batch in _batches(consumer, shown, options, waiting):
        for record in batch:
            shown.show(record)
        sys.stdout.buffer.flush()
        consumer.done()
        if shown.count == options.most:
            return


def _read_to_end(consumer: Consumer[bytes, bytes], shown: ShownRecords, most: int | None, waiting: Waiting) -> None:
    with progress("Reading", most, wanted=not sys.stdout.isatty()) as watched:
        for record in _records_to_end(consumer, waiting):
            waiting.on_records()
            shown.show(record)
            watched(1)
            if shown.count == most:
                break
    sys.stdout.buffer.flush()
    consumer.done()


def _records_to_end(consumer: Consumer[bytes, bytes], waiting: Waiting) -> Iterator[ConsumerRecord[bytes, bytes]]:
    while True:
        try:
            yield from consumer.until_end(waiting.on_silence)
        except ClientFailed:
            if not waiting.look():
                raise
        else:
            return


def _batches(
    consumer: Consumer[bytes, bytes], shown: ShownRecords, options: Options, waiting: Waiting
) -> Iterator[list[ConsumerRecord[bytes, bytes]]]:
    """Records as they come, never more than are still wanted, until nothing comes for the time that was given."""
    quiet_since = time.monotonic()
    while True:
        room = BATCH if options.most is None else min(BATCH, options.most - shown.count)
        try:
            batch = consumer.poll(WAIT_SECONDS, room)
        except ClientFailed:
            if not waiting.look():
                raise
            continue
        if batch:
            yield batch
            quiet_since = time.monotonic()
            waiting.on_records()
        elif options.quiet_seconds is not None and time.monotonic() - quiet_since > options.quiet_seconds:
            if not waiting.look():
                return
            quiet_since = time.monotonic()
        else:
            waiting.on_silence()
