"""The files of all replicas at the end of a world: they hold the same records, and the checker of files finds nothing.

What a client reads comes from leaders. A replica that is in sync and holds something else is a loss that waits for the
next election.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from barnabas.storage.check import Severity, check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from barnabas.metadata.stores.store import StoredNode
    from tests.simulation.whole.machine import Machine

NOT_CLEANED: Final = "t"
"""The topic that is not compacted: its replicas are the same, byte by byte."""


def placed(nodes: Mapping[str, StoredNode]) -> Iterator[tuple[str, int, list[int], list[int]]]:
    """Every partition in the metadata tree: topic, index, replicas and ISR. An ISR that is not stored yet is empty."""
    for path, node in list(nodes.items()):
        _, *parts = path.split("/")
        if len(parts) == 3 and parts[:2] == ["brokers", "topics"]:
            for index, replicas in json.loads(node.data)["partitions"].items():
                state = nodes.get(f"{path}/partitions/{index}/state")
                yield parts[2], int(index), replicas, [] if state is None else json.loads(state.data)["isr"]


def differences(nodes: Mapping[str, StoredNode], machines: list[Machine]) -> list[str]:
    """Replicas of the topic that is never compacted which do not hold what the others hold."""
    found: list[str] = []
    for topic, index, _, isr in placed(nodes):
        if topic == NOT_CLEANED:
            logs = {number: _bytes(machines[number - 1].log_directory(topic, index)) for number in isr}
            longest = max(logs.values(), key=len)
            for number, log in logs.items():
                if log != longest:
                    at = next((at for at, pair in enumerate(zip(log, longest, strict=False)) if len({*pair}) > 1), -1)
                    found.append(
                        f"the replica of {topic}-{index} on broker {number} holds {len(log)} bytes, another one "
                        f"{len(longest)}; they differ at byte {len(log) if at < 0 else at}"
                    )
    return found


def damages(machines: list[Machine]) -> list[str]:
    """What the checker of files says of the brokers' log directories."""
    return [
        f"broker {machine.number}: {str(finding).replace(str(machine.folder), '')}"
        for machine in machines
        for directory in machine.directories
        for finding in check(directory, in_use=True).findings
        if finding.severity is Severity.ERROR
    ]


def _bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
