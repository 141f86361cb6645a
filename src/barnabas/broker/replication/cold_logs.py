"""Logs that were not used since the start: they are loaded in a thread, not on the event loop.

After a clean stop a log is loaded when it is first used. A handler that needs more than the end offset of a log calls
`open_logs` first. After that, using the log on the event loop reads no files.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.model.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.broker.context import BrokerContext
    from barnabas.storage.log.log import Log


async def open_logs(broker: BrokerContext, partitions: Iterable[tuple[str, int]]) -> None:
    """Load the logs of these partitions, if this broker leads them and they are not loaded yet."""
    found = (broker.replicas.get(topic, index) for topic, index in partitions)
    cold = [partition.log for partition in found if partition is not None and not partition.log.is_open]
    if cold:
        await asyncio.get_running_loop().run_in_executor(broker.executor, open_all, cold)


def open_all(logs: Iterable[Log]) -> None:
    """Load these logs. One that cannot be loaded is left as it is. Runs in a thread."""
    for log in logs:
        try:
            log.open()
        except ApiError:
            continue  # the next use of the log raises it again
