"""Apache Kafka's own clients, driven by its kafka-producer-perf-test and kafka-consumer-perf-test.

Payloads come from a file: making random bytes would cost the tool more than sending them. The tool takes its own time,
from the first record to the last answer, so the start of the JVM does not count; its warm-up option is left alone, as
the records that wait in the producer's buffer when the warm-up ends would be sent in the time of those that follow.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.support import jars

if TYPE_CHECKING:
    from pathlib import Path

KAFKA: Final = "4.3.0"
_SUMMARY: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec .*99\.9th", re.MULTILINE)
_FLAGS: Final = ("-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""With the optimizing compiler the tool needs ten seconds to come up to speed on two cores, without it one."""
_PAYLOADS: Final = 1_000
DISTINCT_BYTES: Final = 32 << 20
"""Values of that many bytes are more than the dictionary of any writer of columns holds."""
_DEADLINE: Final = 900


@dataclass(frozen=True, slots=True)
class Produce:
    """One call of the tool."""

    topic: str
    records: int
    size: int
    """Of each record, in bytes; 0 for JSON."""
    acks: str = "1"
    settings: tuple[str, ...] = ()
    """Further properties of the producer."""
    payloads: int = _PAYLOADS
    """How many different records there are."""

    def start(self, port: int, folder: Path) -> subprocess.Popen[str]:
        """Start the tool; `rate` reads what it says."""
        made = payload_file(folder, self.size, self.payloads) if self.size else json_file(folder, self.payloads)
        command = [
            jars.program("java"), *_FLAGS, "-cp", jars.classpath(KAFKA),
            "org.apache.kafka.tools.ProducerPerformance",
            "--bootstrap-server", f"127.0.0.1:{port}", "--topic", self.topic,
            "--num-records", str(self.records), "--throughput", "-1",
            "--payload-file", str(made),
            "--command-property", f"acks={self.acks}", *self.settings,
        ]  # fmt: skip
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def rate(self, process: subprocess.Popen[str]) -> float:
        """Wait for the tool's end; records per second."""
        try:
            output, _ = process.communicate(timeout=_DEADLINE)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return parse_rate(output, process.returncode, self.records)

    def run(self, port: int, folder: Path) -> float:
        """Start the tool and wait for its end; records per second."""
        return self.rate(self.start(port, folder))


def parse_rate(output: str, status: int, records: int) -> float:
    """The rate in the tool's last summary, which must speak of so many records, and of no failed one."""
    found = _SUMMARY.findall(output)
    if status != 0 or not found or "Exception" in output or int(found[-1][0]) != records:
        raise RuntimeError(f"kafka-producer-perf-test failed (status {status}, {records} records):\n{output[-2000:]}")
    return float(found[-1][1])


def consume_in_group(port: int, topic: str, records: int, group: str) -> float:
    """kafka-consumer-perf-test in a new group; records per second, from the moment at which it had its partitions."""
    command = [
        jars.program("java"), *_FLAGS, "-cp", jars.classpath(KAFKA), "org.apache.kafka.tools.ConsumerPerformance",
        "--bootstrap-server", f"127.0.0.1:{port}", "--topic", topic, "--num-records", str(records),
        "--group", group, "--timeout", "60000",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE, check=False)
    return parse_consumed(done.stdout, done.returncode, records)


def parse_consumed(output: str, status: int, records: int) -> float:
    """The rate in the table of kafka-consumer-perf-test, which must speak of no fewer records."""
    lines = [line.split(", ") for line in output.splitlines() if ", " in line]
    if status != 0 or len(lines) < 2:
        raise RuntimeError(f"kafka-consumer-perf-test failed (status {status}):\n{output[-2000:]}")
    told = dict(zip(lines[-2], lines[-1], strict=True))
    if int(told["data.consumed.in.nMsg"]) < records:
        raise RuntimeError(f"kafka-consumer-perf-test read {told['data.consumed.in.nMsg']} of {records} records")
    return float(told["fetch.nMsg.sec"])


def json_file(folder: Path, payloads: int) -> Path:
    """A file with JSON objects of about 120 bytes, one on a line."""
    path = folder / f"payloads-json-{payloads}.txt"
    if not path.exists():
        chance = random.Random(7)
        rows = (
            {
                "id": number,
                "city": chance.choice(("Ulm", "Bern", "Graz", "Metz")),
                "price": round(chance.uniform(1, 500), 2),
                "paid": chance.random() < 0.5,
                "note": "".join(chance.choices(string.ascii_lowercase, k=50)),
            }
            for number in range(payloads)
        )
        path.write_text("\n".join(map(json.dumps, rows)))
    return path


def payload_file(folder: Path, size: int, payloads: int = _PAYLOADS) -> Path:
    """A file with lines of this size."""
    path = folder / f"payloads-{size}-{payloads}.txt"
    if not path.exists():
        chance = random.Random(size)
        path.write_bytes(b"\n".join(base64.b64encode(chance.randbytes(size))[:size] for _ in range(payloads)))
    return path
