"""Leases: the files that a Fetch is answered from stay open until they are sent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.broker.fetching.partition_read import Fetched
    from barnabas.storage.segments.segment import FileSlice

logger = logging.getLogger(__name__)


def lease_files(results: Sequence[Fetched]) -> Sequence[Fetched]:
    """Hold the files open that are sent from; returns what can be sent.

    Where there are too few descriptors for all of them, the rest is left for the next fetch. If there is none at all,
    the client is told of an error, since otherwise it would ask again at once.
    """
    lacking = [number for number, one in enumerate(results) if one.slices and not _leased(one)]
    if not lacking:
        return results
    left = list(results)
    some = any(one.size for number, one in enumerate(results) if number not in lacking)
    code = 0 if some else int(ErrorCode.kafka_storage_error)
    for number in lacking:
        left[number] = left[number]._replace(error=code, size=0, slices=())
    logger.warning(
        "%d of %d partitions of a Fetch were left out: no free file descriptors. Raise the limit (ulimit -n).",
        len(lacking),
        len(results),
    )
    return left


def _leased(result: Fetched) -> bool:
    """Take leases on all files of a result, or on none."""
    held: list[FileSlice] = []
    try:
        for piece in result.slices:
            if not piece.file.lease():
                break
            held.append(piece)
        else:
            return True
    except OSError as error:
        logger.error("Could not open a file of %r: %s", result.partition, error)
    for piece in held:
        piece.file.release()
    return False
