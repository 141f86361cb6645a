"""The election of the controller: it is whoever creates the ephemeral `/controller` node.

In the same multi the winner raises `/controller_epoch`. The version that this node then has is the winner's guard: each
of its writes checks it, so from the moment that a successor is elected nothing of the predecessor can be written.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.stores.store import BadVersion, Check, Create, NodeExists, Set, StoredNode
from barnabas.metadata.znodes import ControllerEpochNode, ControllerNode

if TYPE_CHECKING:
    from barnabas.metadata.stores.store import MetadataStore


class Term(NamedTuple):
    """The term of one controller."""

    epoch: int
    guard: Check
    """Holds for as long as the term lasts: `/controller_epoch` has the version that the election gave it."""


async def campaign(store: MetadataStore, broker_id: int, now_ms: int) -> Term | None:
    """Try to become controller; None if another broker is.

    A store that was elected already, because the answer to an earlier attempt got lost, is given its term.
    """
    while True:
        incumbent = await store.find(ControllerNode.path)
        node = await _epoch_node(store)
        if incumbent is not None:
            if incumbent.owner != store.session_id:
                return None
            return _term(ControllerEpochNode.decode(node.data), node.version)
        epoch = ControllerEpochNode.decode(node.data) + 1
        try:
            await store.multi(
                [
                    Create(ControllerNode.path, ControllerNode.encode(broker_id, now_ms), ephemeral=True),
                    Set(ControllerEpochNode.path, ControllerEpochNode.encode(epoch), node.version),
                ]
            )
        except (NodeExists, BadVersion):
            continue
        return _term(epoch, node.version + 1)


def _term(epoch: int, version: int) -> Term:
    return Term(epoch, Check(ControllerEpochNode.path, version))


async def is_controller(store: MetadataStore) -> bool:
    """Whether this store's session holds the `/controller` node."""
    node = await store.find(ControllerNode.path)
    return node is not None and node.owner == store.session_id


async def _epoch_node(store: MetadataStore) -> StoredNode:
    """The node that counts terms; the first campaign of all makes it."""
    with contextlib.suppress(NodeExists):
        if (node := await store.find(ControllerEpochNode.path)) is not None:
            return node
        await store.create(ControllerEpochNode.path, ControllerEpochNode.encode(0))
    return await store.get(ControllerEpochNode.path)
