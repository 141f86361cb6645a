"""ACLs in the metadata tree, in the paths and JSON of Kafka's ZooKeeper mode (as of 3.9).

    /kafka-acl/Topic/NAME                       all ACLs of a literal name
    /kafka-acl-extended/prefixed/Topic/NAME     all ACLs of a prefix
    /kafka-acl-changes, /kafka-acl-extended-changes
                                                numbered notes: the ACLs of a resource were changed

Whoever changes ACLs reads a node, and writes it on condition that nobody has written it since: two writers lose nothing
of each other's. Then follows a note, upon which brokers read again what it names (`AclChanges`). Only the newest notes
are kept; whoever may have missed one (`notes`), or has never looked, reads everything.

A node that cannot be read holds up nothing: what could be read of the others comes with the reason why this one could
not (`Found`), and is read again with every look until it can be.

A name that cannot be one part of a path, which Kafka cannot store, is percent-encoded, and so is one that has a percent
sign.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from barnabas.machines.security.acls import (
    OPERATIONS,
    PERMISSIONS,
    RESOURCE_TYPES,
    Acl,
    AclResourceType,
    Entry,
    PatternType,
    ResourcePattern,
)
from barnabas.metadata.notes import look
from barnabas.metadata.stores.store import BadVersion, Create, NodeExists, NoNode, StoreUnavailable
from barnabas.metadata.znodes import MalformedNode, dump, load

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.metadata.notes import Notes
    from barnabas.metadata.stores.store import MetadataStore, StoredNode

PART: Final = 200
"""Nodes that are read out between two turns of the event loop: some milliseconds of work."""
KEPT: Final = 500
"""How many notes of each kind stay for those who have not read them yet; twice as many are cut down to that."""
_ATTEMPTS: Final = 100
"""Others that write the same node at the same moment."""


class AclsNode:
    """The folders of ACLs, by how their names are meant."""

    literal = "/kafka-acl"
    extended = "/kafka-acl-extended"
    prefixed = f"{extended}/prefixed"


FOLDERS: Final = (
    AclsNode.literal,
    *(f"{AclsNode.literal}/{label}" for label in RESOURCE_TYPES),
    AclsNode.extended,
    AclsNode.prefixed,
    *(f"{AclsNode.prefixed}/{label}" for label in RESOURCE_TYPES),
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
"""What Kafka's brokers expect to find, and make themselves when they start."""


class AclNode:
    """All ACLs of one pattern."""

    @staticmethod
    def path(pattern: ResourcePattern) -> str:
        """Below the folder of the pattern's type and the resource's."""
        folder = AclsNode.literal if pattern.pattern_type is PatternType.LITERAL else AclsNode.prefixed
        return f"{folder}/{pattern.resource_type.label}/{_as_part(pattern.name)}"

    @staticmethod
    def pattern(path: str) -> ResourcePattern | None:
        """Whose ACLs a node holds; None for nodes of other kinds."""
        for folder, kind in ((AclsNode.literal, PatternType.LITERAL), (AclsNode.prefixed, PatternType.PREFIXED)):
            label, _, name = path.removeprefix(f"{folder}/").partition("/")
            if path.startswith(f"{folder}/") and name and "/" not in name and label in RESOURCE_TYPES:
                return ResourcePattern(RESOURCE_TYPES[label], unquote(name), kind)
        return None

    @staticmethod
    def encode(entries: Collection[Entry]) -> bytes:
        """Version 1."""
        return dump(
            {
                "version": 1,
                "acls": [
                    {
                        "principal": entry.principal,
                        "permissionType": entry.permission.label,
                        "operation": entry.operation.label,
                        "host": entry.host,
                    }
                    for entry in sorted(entries)
                ],
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> frozenset[Entry]:
        """Version 1. A node that cannot be read is an error: half of the rules may allow what all of them deny."""
        if not data:
            return frozenset()
        value = load(path, data)
        try:
            if int(value["version"]) != 1:
                raise ValueError(f"version {value['version']} is not known")
            return frozenset(map(_entry, value["acls"]))
        except (KeyError, ValueError, TypeError) as error:
            raise MalformedNode(path, data, error) from error


def _entry(value: Mapping[str, Any]) -> Entry:
    principal, host = value["principal"], value["host"]
    if not (isinstance(principal, str) and isinstance(host, str)):
        raise TypeError("principal and host are texts")
    return Entry(principal, host, OPERATIONS[value["operation"]], PERMISSIONS[value["permissionType"]])


def _as_part(name: str) -> str:
    if name in (".", "..") or any(character in "/%\0" or not character.isprintable() for character in name):
        return quote(name, safe="").replace(".", "%2E")
    return name


class AclChangesNode:
    """A folder of notes, numbered in order, that say whose ACLs were changed."""

    literal = "/kafka-acl-changes"
    extended = "/kafka-acl-extended-changes"

    @staticmethod
    def folder(pattern: ResourcePattern) -> str:
        """Where notes of such patterns are."""
        is_literal = pattern.pattern_type is PatternType.LITERAL
        return AclChangesNode.literal if is_literal else AclChangesNode.extended

    @staticmethod
    def prefix(folder: str) -> str:
        """How the path of a note begins."""
        return f"{folder}/acl_changes_"

    @staticmethod
    def encode(pattern: ResourcePattern) -> bytes:
        """Of a literal name as `TOPIC:name`, of others as JSON."""
        if pattern.pattern_type is PatternType.LITERAL:
            return f"{pattern.resource_type.name}:{pattern.name}".encode()
        return dump(
            {
                "version": 1,
                "resourceType": pattern.resource_type.name,
                "name": pattern.name,
                "patternType": pattern.pattern_type.name,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> ResourcePattern:
        """Whose ACLs to read again."""
        try:
            if path.startswith(f"{AclChangesNode.literal}/"):
                kind, _, name = data.decode().partition(":")
                return ResourcePattern(AclResourceType[kind.upper()], name)
            value = load(path, data)
            kind, name, pattern_type = value["resourceType"], value["name"], value["patternType"]
            if not isinstance(name, str):
                raise TypeError("name is a text")
            return ResourcePattern(AclResourceType[kind.upper()], name, PatternType[pattern_type.upper()])
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise MalformedNode(path, data, error) from error


# Reading


Found = dict[ResourcePattern, "frozenset[Entry] | MalformedNode"]
"""The ACLs of patterns, or why those of one cannot be read."""


async def load_all(store: MetadataStore) -> Found:
    """Every ACL there is."""
    nodes = [*await store.subtree(AclsNode.literal), *await store.subtree(AclsNode.prefixed)]
    acls: Found = {}
    for number, node in enumerate(nodes, 1):
        if number % PART == 0:
            await asyncio.sleep(0)  # others are served meanwhile
        pattern = AclNode.pattern(node.path)
        if pattern is not None:
            acls[pattern] = _read(node)
    return acls


def _read(node: StoredNode) -> frozenset[Entry] | MalformedNode:
    try:
        return AclNode.decode(node.path, node.data)
    except MalformedNode as error:
        return error


class AclChanges:
    """What one broker has read of the notes."""

    def __init__(self) -> None:
        self._seen: dict[str, Notes | None] = {}
        self.unreadable: frozenset[ResourcePattern] = frozenset()
        """Patterns whose ACLs could not be read the last time."""
        self.forget()

    def forget(self) -> None:
        """Read everything the next time."""
        self._seen = {AclChangesNode.literal: None, AclChangesNode.extended: None}

    async def read(self, store: MetadataStore) -> tuple[Found, bool]:
        """The ACLs of every pattern that new notes name, as they are now, and whether these are all there are.

        Those that could not be read the last time are among them.
        """
        before = self._seen
        seen: dict[str, Notes | None] = {}
        paths: list[str] = []
        missed = False
        for folder, last in before.items():
            seen[folder] = notes = await look(store, AclChangesNode.prefix(folder))
            new = notes.new_since(last)
            missed = missed or new is None
            paths += new or ()
        patterns = None if missed else _changed_patterns(await store.find_many(paths))
        found = await (load_all(store) if patterns is None else load_some(store, self.unreadable.union(patterns)))
        if self._seen is before:  # else everything is to be read again, as somebody said meanwhile
            self._seen = seen
        self.unreadable = frozenset(pattern for pattern, acls in found.items() if isinstance(acls, MalformedNode))
        return found, patterns is None


def _changed_patterns(notes: Iterable[StoredNode | None]) -> list[ResourcePattern] | None:
    """What notes name; None if one was removed meanwhile, or cannot be read, so that it is not known."""
    named: dict[ResourcePattern, None] = {}
    for note in notes:
        if note is None:
            return None
        try:
            named[AclChangesNode.decode(note.path, note.data)] = None
        except MalformedNode:
            return None
    return list(named)


async def load_some(store: MetadataStore, patterns: Collection[ResourcePattern]) -> Found:
    """The ACLs of these patterns; a pattern without any has none."""
    nodes = await store.find_many([AclNode.path(pattern) for pattern in patterns])
    return {
        pattern: frozenset() if node is None else _read(node) for pattern, node in zip(patterns, nodes, strict=True)
    }


# Writing


async def lay_out(store: MetadataStore) -> None:
    """Make the folders where they are missing; another broker may do so at once."""
    while True:
        found = await store.find_many(FOLDERS)
        missing = [path for path, node in zip(FOLDERS, found, strict=True) if node is None]
        if not missing:
            return
        with contextlib.suppress(NodeExists):
            await store.multi([Create(path) for path in missing])


async def add(store: MetadataStore, acls: Iterable[Acl]) -> None:
    """Store ACLs beside those that are there."""
    for pattern, entries in _by_pattern(acls).items():
        await _change(store, pattern, added=entries)


async def remove(store: MetadataStore, acls: Iterable[Acl]) -> None:
    """Remove ACLs, and no others."""
    for pattern, entries in _by_pattern(acls).items():
        await _change(store, pattern, removed=entries)


def _by_pattern(acls: Iterable[Acl]) -> dict[ResourcePattern, set[Entry]]:
    found: dict[ResourcePattern, set[Entry]] = {}
    for pattern, entry in acls:
        found.setdefault(pattern, set()).add(entry)
    return found


async def _change(
    store: MetadataStore, pattern: ResourcePattern, added: Collection[Entry] = (), removed: Collection[Entry] = ()
) -> None:
    """Change the ACLs of one pattern, and write a note of that, whoever else writes meanwhile.

    The note is written even if nothing had to be changed: a writer before may have died between the two.
    """
    path = AclNode.path(pattern)
    for _ in range(_ATTEMPTS):
        node = await store.find(path)
        known = frozenset[Entry]() if node is None else AclNode.decode(path, node.data)
        wanted = (known | frozenset(added)) - frozenset(removed)
        with contextlib.suppress(BadVersion, NodeExists, NoNode):
            if wanted != known:
                await _write(store, path, node, wanted)
            await _note(store, pattern)
            return
    raise StoreUnavailable(f"{path} was changed by others {_ATTEMPTS} times in a row")


async def _write(store: MetadataStore, path: str, node: StoredNode | None, entries: frozenset[Entry]) -> None:
    if node is None:
        await store.create(path, AclNode.encode(entries), parents=True)
    elif entries:
        await store.set(path, AclNode.encode(entries), node.version)
    else:
        await store.delete(path, node.version)


async def _note(store: MetadataStore, pattern: ResourcePattern) -> None:
    folder = AclChangesNode.folder(pattern)
    await store.create(AclChangesNode.prefix(folder), AclChangesNode.encode(pattern), sequential=True, parents=True)
    notes = await look(store, AclChangesNode.prefix(folder))
    for path in notes.paths(notes.numbers)[:-KEPT] if len(notes.numbers) > 2 * KEPT else ():
        with contextlib.suppress(NoNode):
            await store.delete(path)
