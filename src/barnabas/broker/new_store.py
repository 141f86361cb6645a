"""What is looked at before a metadata store is made: whether its broker would be refused a moment later.

A start that is refused leaves nothing behind. Most refusals come before anything is made. But whose a data directory is
was looked at when the store was open, and a store that is not there is made when it is opened. So where there is none
yet, this comes first. It changes nothing, and says no more than what loading the logs would say (`storage/directory`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from barnabas.model.errors import StartupError
from barnabas.storage import checkpoints
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.directory import IN_USE, check_broker

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.model.config.broker import BrokerConfig
    from barnabas.storage.files import FileSystem

SEVERAL = "metadata"
"""What the store of `barnabas start --brokers` is called, beside the data directories."""


def check_before_making(config: BrokerConfig, files: FileSystem) -> None:
    """Refuse a start for which no metadata store shall be made; raises StartupError."""
    if config.zookeeper is not None or _may_be_there(config.metadata_store):
        return
    for directory in config.log_dirs:
        _check_owner(config, directory, files)
    reasons = {directory: _why_not(directory) for directory in config.log_dirs}
    if all(reasons.values()):
        told = "; ".join(f"{directory}: {reason}" for directory, reason in reasons.items())
        raise StartupError(f"no log directory can be used: {told}")


def _may_be_there(store: Path) -> bool:
    """Whether a store is there; one that cannot be looked at is left to who opens it."""
    try:
        return store.exists()
    except OSError:
        return True


def _check_owner(config: BrokerConfig, directory: Path, files: FileSystem) -> None:
    try:
        if (directory / checkpoints.LOCK).exists():
            held = files.lock(f"{directory}/{checkpoints.LOCK}")
            if held is None:
                raise StartupError(IN_USE.format(directory))
            files.close(held)
        found = checkpoints.read_meta_properties(files, str(directory))
    except DamagedCheckpoint as error:
        raise StartupError(str(error)) from None
    except OSError:  # the directory has failed: the broker starts without it, if it has others
        return
    if found is None:
        return
    path = f"{directory}/{checkpoints.META_PROPERTIES}"
    check_broker(path, found, config.node_id)
    if found.cluster_id is not None:
        beside = directory.with_name(SEVERAL)
        hint = f"{beside} may be it" if beside.is_file() else "name the file or the ZooKeeper that it has"
        raise StartupError(
            f"{path} belongs to cluster {found.cluster_id}, and the metadata store {config.metadata_store} is not "
            f"there. Set metadata.store to that of the cluster: {hint}"
        )


def _why_not(directory: Path) -> str | None:
    """Why a directory cannot be used, as far as that is seen without making anything."""
    try:
        there = next(each for each in (directory, *directory.parents) if each.exists())
        if not there.is_dir():
            return f"{there} is not a directory"
    except OSError as error:  # of any kind: the broker starts without it, if it has others
        return str(error)
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written to"
