"""Carrying a tree from one store to another: to a file and back, and between Barnabas and Apache Kafka's ZooKeeper.

A tree is carried whole, except for what belongs to a moment: ephemeral nodes (who is up, who is controller) and the
queues of change notifications, which the next controller would take for new ones; and except for finalized features,
which every cluster settles by what its brokers support (Kafka 3.9 over ZooKeeper supports none, and stops when it finds
one); and except for the cluster's secret, which is in no file: the first broker over the new tree makes another one.
So are credentials of users, passwords in brokers' settings and delegation tokens, unless they are asked for: a copy of
a tree is kept in places where no secret should be. Whoever has a copy with them can guess at passwords for as long as
he likes. A setting of brokers that Barnabas does not know may be a password, and is treated as one.
Topic ids, assignments, leader epochs, the controller's epoch, settings, the cluster's id and the last producer ids are
carried as they are, so the log directories that go with the tree fit it wherever it is opened. The target numbers
versions and creation ids anew.

A tree that was kept as a backup is older than the logs. There, epochs that it would give out next stand for something
else already, and so do producer ids: all of them are raised by a margin.

The file is JSON: `{"version": 1, "nodes": {path: data}}`, where data is text, or `{"base64": ...}` if it is not.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

from barnabas.machines.security.scram import BY_TITLE
from barnabas.metadata.delegation_tokens import DelegationTokensNode
from barnabas.metadata.images.writes import portions
from barnabas.metadata.stores.store import Create, Operation, Set, StoreError, check_path
from barnabas.metadata.topic_znodes import PartitionStateNode, TopicsNode
from barnabas.metadata.znodes import (
    BrokersNode,
    ClusterIdNode,
    ConfigNode,
    ConfigsNode,
    ControllerEpochNode,
    FeaturesNode,
    ProducerIds,
    ProducerIdsNode,
    SecretNode,
)
from barnabas.model.config.keys.all_keys import broker_key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.metadata.stores.store import MetadataStore, StoredNode

VERSION = 1
MARGIN = 1_000_000
"""Elections of one partition, or blocks of producer ids: more than any cluster has between two backups."""
PRODUCER_IDS = 1000
"""In a block, if the tree has none yet."""
NOBODY = -1

_ZOOKEEPERS_OWN = "/zookeeper"
_STATE = re.compile(rf"{TopicsNode.path}/[^/]+/partitions/\d+/state")
_QUEUES = (
    "/config/changes",
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
    "/delegation_token/token_changes",
)


class TransferError(StoreError):
    """A tree that cannot be carried over; the message says why and what to do."""


async def export_tree(store: MetadataStore, *, with_credentials: bool = False) -> dict[str, Any]:
    """The persistent tree as a value that JSON can hold."""
    kept = [node for node in await store.subtree("/") if not node.owner and not _of_a_moment(node.path)]
    if not with_credentials:
        kept = [_without_secrets(node) for node in kept if not node.path.startswith(f"{DelegationTokensNode.path}/")]
    return {"version": VERSION, "nodes": {node.path: _encode(node.data) for node in kept}}


def _without_secrets(node: StoredNode) -> StoredNode:
    """The node without credentials of users and without passwords among settings."""
    if not (secret := _secret_keys(node.path, node.data)):
        return node
    settings = ConfigNode.decode(node.path, node.data)
    return node._replace(data=ConfigNode.encode({key: text for key, text in settings.items() if key not in secret}))


def _secret_keys(path: str, data: bytes) -> set[str]:
    """The names of the settings in a node that are secrets."""
    resource = ConfigNode.resource(path) if path.startswith(f"{ConfigsNode.path}/") else None
    match None if resource is None else resource.kind:
        case "users":
            return BY_TITLE.keys() & ConfigNode.decode(path, data).keys()
        case "brokers":
            return {name for name in ConfigNode.decode(path, data) if _may_be_secret(name)}
        case _:
            return set()


def _may_be_secret(name: str) -> bool:
    """Whether a broker's setting is a password, or nobody knows what it is."""
    key = broker_key_of(name)
    return key is None or key.sensitive


async def import_tree(store: MetadataStore, tree: Mapping[str, Any], *, outdated: bool = False) -> int:
    """Write an exported tree into a store that has no cluster yet; returns the number of nodes.

    A tree that is `outdated`, older than the logs it is for, is raised above everything that was given out since.
    Raises TransferError, before anything is written, if the store is in use or the tree is not one.
    """
    nodes = _decoded(tree)
    if outdated:
        nodes.setdefault(ProducerIdsNode.path, b"")
        nodes = {path: _raised(path, data) for path, data in sorted(nodes.items())}
    await _check_unused(store)
    present = {node.path: node.data for node in await store.subtree("/")}
    for portion in portions(_writes(nodes, present)):
        await store.multi(portion)
    return len(nodes)


async def _check_unused(store: MetadataStore) -> None:
    for folder, what in ((BrokersNode.path, "brokers are up"), (TopicsNode.path, "there are topics")):
        if await store.find(folder) is not None and (names := await store.children(folder)):
            raise TransferError(
                f"the target is in use, {what} ({', '.join(names[:5])}): import into a new store or another chroot"
            )
    if await store.find(ClusterIdNode.path) is not None:
        raise TransferError("the target already has a cluster id: import into a new store or another chroot")


def _decoded(tree: Mapping[str, Any]) -> dict[str, bytes]:
    if tree.get("version") != VERSION or not isinstance(tree.get("nodes"), dict):
        raise TransferError(f"this is not an exported metadata tree of version {VERSION}")
    nodes = {}
    for path, data in sorted(tree["nodes"].items()):
        try:
            check_path(path)
            nodes[path] = _decode(data)
        except (ValueError, TypeError, KeyError, AttributeError, binascii.Error) as error:
            raise TransferError(f"the exported tree is damaged at {path}: {error}") from error
    return nodes


def _raised(path: str, data: bytes) -> bytes:
    """Leader epochs, the controller's epoch and producer ids: what a cluster must never give out a second time."""
    if _STATE.fullmatch(path):
        state = PartitionStateNode.decode(path, data)
        return PartitionStateNode.encode(state._replace(leader_epoch=state.leader_epoch + MARGIN))
    if path == ControllerEpochNode.path:
        return ControllerEpochNode.encode(ControllerEpochNode.decode(data) + MARGIN)
    if path == ProducerIdsNode.path:
        block = ProducerIdsNode.decode(data) or ProducerIds(0, PRODUCER_IDS)
        return ProducerIdsNode.encode(NOBODY, ProducerIds(block.first + MARGIN * block.count, block.count))
    return data


def _writes(nodes: Mapping[str, bytes], present: Mapping[str, bytes]) -> Iterator[Operation]:
    """In the order of paths, in which a parent precedes its children; parents that are not listed are made."""
    made = set(present)
    for path, data in nodes.items():
        for at in (at for at in range(1, len(path)) if path[at] == "/"):
            if path[:at] not in made:
                made.add(path[:at])
                yield Create(path[:at])
        if path not in made:
            made.add(path)
            yield Create(path, data)
        elif present.get(path, b"") != data:
            yield Set(path, data)


def _of_a_moment(path: str) -> bool:
    return path.startswith((_ZOOKEEPERS_OWN, FeaturesNode.path, SecretNode.path, *(f"{queue}/" for queue in _QUEUES)))


def _encode(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _decode(data: str | dict[str, str]) -> bytes:
    return data.encode() if isinstance(data, str) else base64.b64decode(data["base64"], validate=True)
