"""Dynamic settings, as brokers that are not the controller follow them in the tree.

The controller leaves a numbered note for every resource whose settings it changed, as Kafka does in its ZooKeeper mode;
brokers watch the folder of notes and read again what new notes name. Only the newest notes are kept: whoever may have
missed one (`notes`), has never looked, or cannot read a note reads everything.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from barnabas.metadata.images.loading import load_configs
from barnabas.metadata.notes import look
from barnabas.metadata.stores.store import BadVersion, NodeExists, NoNode
from barnabas.metadata.znodes import ConfigChangesNode, ConfigNode, MalformedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.machines.controller.image import ConfigResource
    from barnabas.metadata.images.loading import Configs
    from barnabas.metadata.notes import Notes
    from barnabas.metadata.stores.store import MetadataStore, StoredNode

KEPT: Final = 100
"""How many notes stay for those who have not read them yet."""


async def note(store: MetadataStore, resources: Iterable[ConfigResource]) -> None:
    """Write notes that the settings of these resources have changed."""
    has_new = False
    for resource in resources:
        await store.create(ConfigChangesNode.prefix, ConfigChangesNode.encode(resource), sequential=True)
        has_new = True
    if has_new:
        notes = await look(store, ConfigChangesNode.prefix)
        for path in notes.paths(notes.numbers)[:-KEPT]:
            with contextlib.suppress(NoNode):
                await store.delete(path)


async def write(store: MetadataStore, settings: Mapping[ConfigResource, Mapping[str, str]]) -> None:
    """Set all settings of resources that nobody else writes, and write notes of that."""
    for resource, values in settings.items():
        path, data = ConfigNode.path(resource), ConfigNode.encode(values)
        try:
            await store.set(path, data)
        except NoNode:
            await store.create(path, data, parents=True)
    await note(store, settings)


async def edit(
    store: MetadataStore, resource: ConfigResource, change: Callable[[dict[str, str]], Mapping[str, str] | None]
) -> None:
    """Change the settings of a resource that others may change at the same time, and write a note of that.

    `change` is given the settings as they are, and again if others were faster; None leaves them so.
    """
    path = ConfigNode.path(resource)
    while True:
        node = await store.find(path)
        values = change({} if node is None else ConfigNode.decode(path, node.data))
        if values is None:
            return
        try:
            if node is None:
                await store.create(path, ConfigNode.encode(values), parents=True)
            else:
                await store.set(path, ConfigNode.encode(values), node.version)
        except (NodeExists, NoNode, BadVersion):
            continue
        await note(store, [resource])
        return


class ConfigChanges:
    """What one broker has read of the notes."""

    def __init__(self) -> None:
        self._seen: Notes | None = None
        self._forgotten = 0
        """How often everything was to be read again."""

    def forget(self) -> None:
        """Read everything the next time."""
        self._seen = None
        self._forgotten += 1

    async def skip(self, store: MetadataStore) -> None:
        """Count all notes as read, since everything is about to be read."""
        self._seen = await look(store, ConfigChangesNode.prefix)

    async def read(self, store: MetadataStore) -> tuple[Configs, bool]:
        """The settings of every resource that new notes name, as they are now, and whether these are all there are."""
        forgotten, notes = self._forgotten, await look(store, ConfigChangesNode.prefix)
        new = notes.new_since(self._seen)
        named = None if new is None else _changed_resources(await store.find_many(new))
        configs = {} if named == [] else await load_configs(store, named)
        if self._forgotten == forgotten:  # else everything is to be read again, as somebody said meanwhile
            self._seen = notes
        return configs, named is None


def _changed_resources(notes: Iterable[StoredNode | None]) -> list[ConfigResource] | None:
    """What notes name; None if one was removed meanwhile, or cannot be read, so that it is not known."""
    named: dict[ConfigResource, None] = {}
    for note in notes:
        if note is None:
            return None
        try:
            resource = ConfigChangesNode.decode(note.path, note.data)
        except MalformedNode:
            return None
        if resource is not None:
            named[resource] = None
    return list(named)
