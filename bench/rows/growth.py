"""How cost grows with a partition: appending to it and seeking in it when it is small and when it is large.

Plain sockets with requests of 16 KB, the size of a Java producer's batch, so that the broker is the limit. Unlike other
rows this one measures one broker after the other: the page cache is to hold the large partition whole, not two halves.

The kernel may slow down whoever has written much: how much, is told by a program that only makes the same writes.

A virtual machine gets memory from its host when it is first written to. Pages of a file that grows are such memory, and
a write of 16 KB then took 45 µs instead of 8, whoever made it and however large its file was: a broker that is measured
while such memory is left is fast, and slow later. So memory is used, and given back, before each append that is timed.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.clients import sockets, wire
from bench.lab import say, show
from bench.results import Better, Kind, Metric, Target, percentile, throughput
from bench.rows.row import Row

if TYPE_CHECKING:
    from io import FileIO

    from bench.brokers import Broker
    from bench.lab import Lab, Samples, Scale

_RECORD: Final = b"x" * 1024
_RECORDS: Final = 15
_APPEND: Final = 256_000_000
"""Bytes per repetition."""
_FETCH: Final = 16_384
_FLAT: Final = Target(0.85, relative=False)
_BESIDE_BARE: Final = Target(1.2, relative=False)
_MEMORY: Final = 2
"""So many times the bytes of an append are used before it: other programs take some of them meanwhile."""


class GrowthRow(Row):
    """One partition, filled to the first size, measured, filled to the second, measured again."""

    name = "growth"
    title = "growth of one partition"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Append rate and seek time at each size, and how much of its rate a broker keeps."""
        small, large = scale.sizes_gb
        flat = f"append at {large:g} GB to that at {small:g}"
        return (
            *(metric for size in scale.sizes_gb for metric in _metrics(f"{size:g}")),
            Metric("flat", flat, "times", Kind.THROUGHPUT, Better.HIGHER, _FLAT, "rate that is kept while it grows"),
            Metric(
                "beside-bare",
                f"append, slowdown from {small:g} to {large:g} GB beside that of bare writes",
                "times",
                Kind.THROUGHPUT,
                Better.LOWER,
                _BESIDE_BARE,
                "slowdown beside that of bare writes",
            ),
        )

    def measure(self, lab: Lab) -> Samples:
        """One broker after the other."""
        samples: Samples = {}
        for broker in lab.brokers():
            with lab.turn(broker), lab.topic(broker, 1) as topic:
                samples[broker.name] = self._measure(lab, broker, topic)
        self._note_growth(lab, samples)
        if all("flat" in values for repetitions in samples.values() for values in repetitions):
            compare_with_bare(lab, samples, *bare_rates(lab))
        return samples

    def _measure(self, lab: Lab, broker: Broker, topic: str) -> list[dict[str, float]]:
        batch = wire.batch([_RECORD] * _RECORDS)
        request = wire.produce_request(topic, 0, batch)
        stored = 0

        def append(size: int) -> float:
            nonlocal stored
            requests = size // len(batch)
            load = sockets.pipeline(broker.port, request, wire.produce_error_at(topic), requests)
            stored += requests
            return requests * len(batch) / 1e6 / load.seconds

        merged: list[dict[str, float]] = [{} for _ in range(lab.scale.repetitions)]
        for gigabytes in lab.scale.sizes_gb:
            missing = int(gigabytes * 1e9) - stored * len(batch)
            if shutil.disk_usage(lab.folder).free < missing * 1.2 + 5e9:
                lab.note(f"Not enough free disk for a partition of {gigabytes:g} GB; left out.")
                break
            say(f"  filling {broker.name} to {gigabytes:g} GB")
            append(missing)
            os.sync()
            for repetition in range(-lab.scale.discarded, lab.scale.repetitions):
                size = min(_APPEND, int(gigabytes * 1e9))
                _use_memory(_MEMORY * size)
                rate = append(size)
                seeks = _seeks(broker.port, topic, stored * _RECORDS, lab.scale.seeks)
                values = {
                    f"append-{gigabytes:g}": rate,
                    f"p50-{gigabytes:g}": percentile(seeks, 0.50) * 1e6,
                    f"p99-{gigabytes:g}": percentile(seeks, 0.99) * 1e6,
                }
                if repetition >= 0:
                    merged[repetition] |= values
                show(self.name, broker.name, repetition, values, self.metrics(lab.scale), counts=repetition >= 0)
                os.sync()
        small, large = (f"append-{gigabytes:g}" for gigabytes in lab.scale.sizes_gb)
        for values in merged:
            if large in values:
                values["flat"] = values[large] / values[small]
        lab.expect_records(broker, topic, 1, stored * _RECORDS)
        return merged

    def _note_growth(self, lab: Lab, samples: Samples) -> None:
        small, large = (f"{size:g}" for size in lab.scale.sizes_gb)
        if any(f"p50-{large}" not in values for values in (*samples["Kafka"], *samples["Barnabas"])):
            return
        parts = []
        for name, repetitions in samples.items():
            append, seek = (
                median(values[f"{key}-{large}"] for values in repetitions)
                / median(values[f"{key}-{small}"] for values in repetitions)
                for key in ("append", "p50")
            )
            parts.append(f"{name} appends at {append:.2f}× its rate and seeks in {seek:.2f}× its time")
        lab.note(f"From {small} to {large} GB: {', '.join(parts)}.")


def compare_with_bare(lab: Lab, samples: Samples, small: float, large: float) -> None:
    """Hold how much slower each broker has become against bare writes, whose rates at both sizes are given."""
    for repetitions in samples.values():
        for values in repetitions:
            values["beside-bare"] = large / small / values["flat"]
    sizes = " and ".join(f"{size:g}" for size in lab.scale.sizes_gb)
    lab.note(
        f"A program that only makes the same writes appends {small / 1e6:,.0f} and {large / 1e6:,.0f} MB/s "
        f"at {sizes} GB: {large / small:.2f}×."
    )


def bare_rates(lab: Lab) -> tuple[float, float]:
    """Bytes per second of writes of a batch to a file of the small size, and to one of the large size."""
    batch = wire.batch([_RECORD] * _RECORDS)
    path = lab.folder / "bare"
    rates = []
    try:
        with path.open("wb", buffering=0) as file:
            for gigabytes in lab.scale.sizes_gb:
                size = int(gigabytes * 1e9)
                _write(file, batch, size - file.tell())
                os.sync()
                turns = []
                for _ in range(lab.scale.discarded + lab.scale.repetitions):
                    written = min(_APPEND, size)
                    _use_memory(_MEMORY * written)
                    turns.append(_write(file, batch, written))
                    os.sync()
                rates.append(median(turns[lab.scale.discarded :]))
    finally:
        path.unlink(missing_ok=True)
    small, large = rates
    return small, large


def _use_memory(size: int) -> None:
    """Write to so much memory and give it back: what takes memory next finds some that the machine has."""
    with mmap.mmap(-1, size) as memory:
        for place in range(0, size, mmap.PAGESIZE):
            memory[place] = 1


def _write(file: FileIO, batch: bytes, size: int) -> float:
    """Bytes per second."""
    started, count = time.perf_counter(), size // len(batch)
    for _ in range(count):
        file.write(batch)
    return count * len(batch) / (time.perf_counter() - started)


def _metrics(size: str) -> tuple[Metric, ...]:
    append = replace(
        throughput("MB/s"),
        key=f"append-{size}",
        label=f"append at {size} GB",
        caption=f"append to a partition of {size} GB",
    )
    p50, p99 = (
        Metric(
            f"{key}-{size}",
            f"seek at {size} GB, {key}",
            "µs",
            Kind.LATENCY,
            Better.LOWER,
            caption=f"seek in a partition of {size} GB, {key}",
        )
        for key in ("p50", "p99")
    )
    return append, p50, p99


def _seeks(port: int, topic: str, end: int, count: int) -> list[float]:
    """Seconds of fetches from random offsets, each one checked to hold the record asked for."""
    chance = random.Random(end)
    samples = []
    with wire.connect(port) as connection:
        for _ in range(count):
            offset = chance.randrange(end)
            request = wire.fetch_request(topic, 0, offset, _FETCH)
            started = time.perf_counter()
            connection.sendall(request)
            response = wire.receive(connection)
            samples.append(time.perf_counter() - started)
            first = wire.first_offset(response)
            if not first <= offset < first + _RECORDS:
                raise RuntimeError(f"a fetch from offset {offset} answered with the batch of {first}")
    return samples


GROWTH = GrowthRow()
