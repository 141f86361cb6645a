"""`python -m bench.walk`: what it costs to go over the records of a batch, in microseconds, in several ways.

`walk` is the broker's, `aiokafka` the compiled reader of that client, `read` makes an object of each record. The least
of several tries counts: the others are the machine's doing. docs/adr/0007 has what came of it.
"""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from aiokafka.record._crecords.default_records import DefaultRecordBatch

from barnabas.model.log_config import LogConfig
from barnabas.protocol.records.batch import HEADER_SIZE
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.compression import Codec
from barnabas.protocol.records.records import Header, Record, read_records
from barnabas.protocol.records.walk import walk
from barnabas.storage.log.validation import check_plain

if TYPE_CHECKING:
    from collections.abc import Callable

NOW: Final = 1_700_000_000_000
TRACE: Final = (Header("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)
BATCHES: Final[dict[str, tuple[int, int, bool, bool, bool]]] = {
    "1 record of 100 B": (1, 100, False, False, False),
    "15 of 1 KB": (15, 1010, False, False, False),
    "15 of about 1 KB": (15, 1010, True, False, False),
    "15 of about 1 KB, keys of many lengths": (15, 1010, True, True, False),
    "the same, with a header each": (15, 1010, True, True, True),
    "150 of 100 B": (150, 100, False, False, False),
    "150 of about 100 B": (150, 100, True, False, False),
    "1,000 of about 9 B": (1000, 9, True, False, False),
    "10,000 of 100 B": (10_000, 100, False, False, False),
}
"""How many records, how large, and whether their sizes vary, they have keys, and a header."""


def records(count: int, size: int, vary: bool, keys: bool, header: bool) -> list[Record]:
    """Records, three in each millisecond."""
    chance = random.Random(1)
    return [
        Record(
            number,
            number // 3,
            b"k%d" % chance.randrange(100_000) if keys else None,
            b"x" * (size - chance.randrange(size // 4 + 1) if vary else size),
            TRACE if header else (),
        )
        for number in range(count)
    ]


def microseconds(work: Callable[[], object]) -> float:
    """The least that one of many tries took."""
    times = max(1, int(0.02 / _seconds(work, 3)))
    return min(_seconds(work, times) for _ in range(15)) * 1e6


def _seconds(work: Callable[[], object], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def read_compiled(batch: bytearray) -> bool:
    """Whether aiokafka reads records with the right numbers."""
    theirs: Any = DefaultRecordBatch(batch)
    return all(record.offset == number for number, record in enumerate(theirs))


def main() -> None:
    """Measure, and print."""
    print(f"{'':42}{'walk':>9}{'aiokafka':>10}{'read':>10}")
    for name, shape in BATCHES.items():
        batch = bytearray(build_batch(records(*shape), base_timestamp=NOW))
        view, payload, count = memoryview(batch), bytes(batch[HEADER_SIZE:]), shape[0]
        ours = microseconds(lambda: walk(view, HEADER_SIZE, count))  # noqa: B023  # called at once
        theirs = microseconds(lambda: read_compiled(batch))  # noqa: B023
        read = microseconds(lambda: list(read_records(payload, count)))  # noqa: B023
        print(f"{name:42}{ours:9.1f}{theirs:10.1f}{read:10.1f}", flush=True)
    for codec in Codec:
        text = [Record(i, 0, None, b'{"user": %d, "text": "hello"}' % (i * i) * 36) for i in range(15)]
        packed = memoryview(bytearray(build_batch(text, base_timestamp=NOW, codec=codec)))
        whole = microseconds(lambda: check_plain(packed, LogConfig(), NOW))  # noqa: B023
        print(f"{'all checks of 15 of 1 KB, ' + codec.name.lower():42}{whole:9.1f}", flush=True)
    with ThreadPoolExecutor(1) as pool:
        print(f"{'to a thread and back':42}{microseconds(lambda: pool.submit(int).result()):9.1f}")


if __name__ == "__main__":
    main()
