"""What a client wants to do, in words, and the permissions that brokers ask for before they do it.

A broker that refuses says of which kind the resource is, and neither which one nor the operation. The client knows both
from what it asked: a `RequestRefused` that is given the action names them, and its remedy has them as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.errors import ErrorCode

_SUFFIX: Final = "_authorization_failed"
CLUSTER: Final = "cluster"
TOPIC: Final = "topic"
GROUP: Final = "group"
TRANSACTIONAL_ID: Final = "transactional_id"
DELEGATION_TOKEN: Final = "delegation_token"
USER: Final = "user"
"""Kinds of resources, as error codes have them in their names; users have none."""


class NeededPermission(NamedTuple):
    """An operation on a resource, as rules name them."""

    operation: str
    kind: str
    name: str = ""

    def __str__(self) -> str:
        if self.kind == CLUSTER:
            return f"{self.operation} on the cluster"
        kind = self.kind.replace("_", " ")
        return f"{self.operation} on {f'{kind} {self.name}' if self.name else f'a {kind}'}"

    @property
    def subject(self) -> str:
        """As the subject of a remedy: the operation, the kind of the resource, and its name, which may have blanks."""
        return " ".join(filter(None, self))


class Action(NamedTuple):
    """What is wanted of a broker, in words that fit behind "no permission to", and what it takes."""

    words: str
    needs: Mapping[str, NeededPermission]
    """By the kind of resource in the name of the error code that says it is missing."""

    def missing(self, code: ErrorCode) -> NeededPermission | None:
        """The permission that an error code is about; None if it is about something that is not known here."""
        return self.needs.get(code.name.removesuffix(_SUFFIX))


def is_missing_permission(code: ErrorCode) -> bool:
    """Whether an error code says that somebody may not do this."""
    return code.name.endswith(_SUFFIX)


def on_cluster(words: str, operation: str) -> Action:
    """Something that concerns the cluster as a whole."""
    return Action(words, {CLUSTER: NeededPermission(operation, CLUSTER)})


def on_topic(verb: str, operation: str, topic: str) -> Action:
    """Something that is done to a topic."""
    return Action(f"{verb} topic {topic}", {TOPIC: NeededPermission(operation, TOPIC, topic)})


def create_topic(topic: str) -> Action:
    """Make a topic."""
    return on_topic("create", "Create", topic)


def on_group(verb: str, operation: str, group: str, topic: str | None = None) -> Action:
    """Something that is done to a group, for which a topic has to be read if one is given."""
    needs = {GROUP: NeededPermission(operation, GROUP, group)}
    if topic is not None:
        needs[TOPIC] = NeededPermission("Read", TOPIC, topic)
    return Action(f"{verb} group {group}", needs)


def describe_group(group: str) -> Action:
    """See a group and its members."""
    return on_group("describe", "Describe", group)


def on_transactional_id(verb: str, operation: str, transactional_id: str) -> Action:
    """Something that is done to a transactional id."""
    needed = NeededPermission(operation, TRANSACTIONAL_ID, transactional_id)
    return Action(f"{verb} transactional id {transactional_id}", {TRANSACTIONAL_ID: needed})


def in_transaction(transactional_id: str) -> Action:
    """Write in transactions. What is refused in the midst of one is a topic or a group that is not known here."""
    words, needs = on_transactional_id("use", "Write", transactional_id)
    return Action(words, {**needs, TOPIC: NeededPermission("Write", TOPIC), GROUP: NeededPermission("Read", GROUP)})


def create_tokens_of(owner: str) -> Action:
    """Have delegation tokens made for another user: the error code is that of tokens."""
    return Action(
        f"create delegation tokens of {owner}", {DELEGATION_TOKEN: NeededPermission("CreateTokens", USER, owner)}
    )


def write_to(topic: str) -> Action:
    """Produce to a topic."""
    return on_topic("write to", "Write", topic)


def begin_to_write(topic: str = "") -> Action:
    """Become an idempotent producer, who writes to this topic then.

    Who may write to any topic may do so; the error code of others is that of the cluster.
    """
    words = f"write to topic {topic}, nor to any other" if topic else "write to any topic"
    return Action(words, {CLUSTER: NeededPermission("Write", TOPIC, topic)})


def read_from(topic: str | None, group: str | None) -> Action:
    """Consume from a topic, if it is known from which, in a group, if there is one."""
    needs = {kind: NeededPermission("Read", kind, name) for kind, name in ((TOPIC, topic), (GROUP, group)) if name}
    what = f"read topic {topic}" if topic else "read"
    return Action(f"{what} in group {group}" if group else what, needs)
