"""Logs that nobody has touched since the start: their files are read in a thread, not on the event loop.

After a clean stop a log is loaded at its first touch. Handlers that need more of a log than where it ends call
`open_logs` first; afterwards touching it costs no reads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.model.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.context import Broker
    from barnabas.storage.log import Log


async def open_logs(broker: Broker, partitions: Iterable[tuple[str, int]]) -> None:
    """Load the logs of these partitions, where this broker leads them and that is still to be done."""
    found = (broker.replicas.get(topic, index) for topic, index in partitions)
    cold = [partition.log for partition in found if partition is not None and not partition.log.is_open]
    if cold:
        await asyncio.get_running_loop().run_in_executor(broker.executor, open_all, cold)


def open_all(logs: Iterable[Log]) -> None:
    """Load these logs, where that can be done. Runs in a thread."""
    for log in logs:
        try:
            log.open()
        except ApiError:
            continue  # whoever touches the log next is told
