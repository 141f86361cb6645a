"""Whether an exactly-once sink may still trust that there is no note of a query's first epoch.

Each other epoch has the note of the one before it, which is older: if that is there, no younger one has expired. The
first has none. But Spark writes `offsets/0` into the checkpoint before the epoch runs for the first time: as long as
that file is younger than the time for which the cluster keeps offsets, no note of the epoch can have expired.

This runs on the driver, without Spark's own access to files: a checkpoint that is neither on this machine nor on HDFS
is not looked at, since nobody here has the keys to it.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyarrow import fs

from barnabas.pipelines.errors import MarkerRefused
from barnabas.pipelines.spark.cluster import ClusterView
from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.files.destinations import is_remote, local_path

if TYPE_CHECKING:
    from barnabas.pipelines.spark.write.options import SinkOptions

SHORTEST_RETENTION: Final = timedelta(minutes=1)
"""The least that `offsets.retention.minutes` can be."""


def check_first_epoch(options: SinkOptions) -> None:
    """Raises MarkerRefused if the first epoch began so long ago that its notes may have expired, as far as is known."""
    age = unfinished_for(options.checkpoint)
    if age is None or age < SHORTEST_RETENTION:
        return
    with ClusterView(options.client) as cluster:
        kept = cluster.offsets_retention()
    if kept is None or age >= kept:
        how_long = "nobody knows how long: no broker tells its" if kept is None else f"{kept}:"
        raise MarkerRefused(
            f"the first epoch of the checkpoint {options.checkpoint} began {age} ago and was never finished. Notes of "
            f"what was written are kept for {how_long} offsets.retention.minutes. So they may be gone, and nothing is "
            "written now. Look what the topic has, and begin with a new checkpoint behind it"
        )


def unfinished_for(checkpoint: str | None) -> timedelta | None:
    """How long ago the first epoch began that was never finished; None if it was, did not begin, or cannot be seen."""
    try:
        files = None if checkpoint is None else _files(checkpoint)
        if files is None or not (began := files.get_file_info("offsets/0")).is_file:
            return None
        commits = files.get_file_info(fs.FileSelector("commits", allow_not_found=True))
    except (OSError, UnusableTarget):
        return None
    if any(each.base_name.isdecimal() for each in commits):
        return None
    return timedelta(seconds=round(time.time() - began.mtime.timestamp()))


def _files(checkpoint: str) -> fs.FileSystem | None:
    if not is_remote(checkpoint):
        return fs.SubTreeFileSystem(str(local_path(checkpoint).absolute()), fs.LocalFileSystem())
    if urlsplit(checkpoint).scheme != "hdfs":
        return None
    from barnabas.pipelines.tables.delta.store import delta_store

    return delta_store(checkpoint, None)
