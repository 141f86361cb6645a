"""Apache Kafka's command-line tools and ours, run as users run them: exec to exit, and what they say of themselves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support import jars

from bench.clients.java import KAFKA, parse_rate

SCRIPT_FLAGS: Final = (
    "-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-Djava.awt.headless=true",
)  # fmt: skip
"""What kafka-run-class.sh gives to a tool."""
FAST_FLAGS: Final = ("-Xmx512M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""What brings a tool up to speed soonest on two cores."""
_CONSUMED: Final = re.compile(r"^\d{4}-[^,]*(?:, [^,]*){9}$", re.MULTILINE)
_DEADLINE: Final = 600


@dataclass(frozen=True, slots=True)
class Done:
    """What a tool said, how long it took, and the processor time that it used itself."""

    output: str
    seconds: float
    cpu: float


def kafka(main: str, *arguments: str, flags: tuple[str, ...] = FAST_FLAGS) -> Done:
    """Run a class of Apache Kafka."""
    return run([jars.program("java"), *flags, "-cp", jars.classpath(KAFKA), main, *arguments])


def ours(*words: str) -> Done:
    """Run `barnabas` of this environment."""
    return run([str(Path(sys.executable).parent / "barnabas"), *words])


def run(command: list[str]) -> Done:
    """Run a command to its end; another exit code than 0 is an error."""
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE, check=False)
    seconds, after = time.perf_counter() - started, os.times()
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)[-300:]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Done(done.stdout, seconds, cpu)


def produced(output: str, records: int) -> float:
    """Records per second, as a producer's performance tool tells them."""
    return parse_rate(output, 0, records)


def consumed(output: str, records: int) -> float:
    """Records per second while fetching, without the time to join the group, as a consumer's tool tells them."""
    found = _CONSUMED.findall(output)
    columns = found[-1].split(", ") if found else []
    if not columns or int(columns[4]) < records:
        raise RuntimeError(f"the consumer's tool did not read {records} records:\n{output[-2000:]}")
    return float(columns[9])
