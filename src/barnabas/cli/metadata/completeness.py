"""Whether metadata knows the topics of a data directory: a tree that is older than the data does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOPICS = "/brokers/topics/"


def unknown_topics(tree: Mapping[str, Any], data: Path | None) -> str:
    """Topics of which a data directory has partitions, and which the tree does not know, or has with another id."""
    from barnabas.storage.names import partition_of

    unknown = set()
    nodes = tree.get("nodes")
    if data is None or not data.is_dir() or not isinstance(nodes, dict):
        return ""
    for path in data.iterdir():
        if (tp := partition_of(path.name)) is None:
            continue
        node = nodes.get(f"{TOPICS}{tp.topic}")
        known = re.search(r'"topic_id": *"([^"]+)"', node) if isinstance(node, str) else None
        metadata = path / "partition.metadata"
        own = re.search(r"topic_id: (\S+)", metadata.read_text()) if metadata.exists() else None
        if node is None or (known is not None and own is not None and known[1] != own[1]):
            unknown.add(tp.topic)
    return ", ".join(sorted(unknown))


def counts(tree: Mapping[str, Any]) -> str:
    """How much is in a tree, in words."""
    topics = sum(path.startswith(TOPICS) and "/" not in path.removeprefix(TOPICS) for path in tree["nodes"])
    return f"{len(tree['nodes'])} nodes, {topics} topics"
