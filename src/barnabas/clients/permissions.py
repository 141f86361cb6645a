"""What a client wants to do, in words, and the permissions that brokers ask for before they do it.

A broker that refuses says of which kind the resource is, and neither which one nor the operation. The client knows both
from what it asked: a `RequestRefused` that is given the action names them, and its remedy has them as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from barnabas.model.errors import ErrorCode

_SUFFIX: Final = "_authorization_failed"
CLUSTER: Final = "cluster"
TOPIC: Final = "topic"
GROUP: Final = "group"
TRANSACTIONAL_ID: Final = "transactional_id"
USER: Final = "user"
"""Kinds of resources: those that have an error code are called as in its name."""
_NAMED: Final = frozenset({TOPIC, GROUP, TRANSACTIONAL_ID})
"""Error codes of these are about no other kind. That of the cluster comes also where any topic would do, and that of
delegation tokens where it is about a user."""


class Permission(NamedTuple):
    """An operation on a resource, as rules name them."""

    operation: str
    kind: str
    name: str = ""

    def __str__(self) -> str:
        if self.kind == CLUSTER:
            return f"{self.operation} on the cluster"
        if not self.name:
            return f"{self.operation} on a {self.kind.replace('_', ' ')}"
        return f"{self.operation} on {self.kind.replace('_', ' ')} {self.name}"

    @property
    def subject(self) -> str:
        """As the subject of a remedy: the operation, the kind of the resource, and its name, which may have blanks."""
        return " ".join(filter(None, self))


class Action(NamedTuple):
    """What is wanted of a broker, in words that fit behind "no permission to", and what it takes."""

    words: str
    needs: tuple[Permission, ...]

    def missing(self, code: ErrorCode) -> Permission | None:
        """The permission that an error code is about; None if it is about something that is not known here."""
        kind = code.name.removesuffix(_SUFFIX)
        if kind not in _NAMED:
            return self.needs[0] if self.needs else None
        return next((each for each in self.needs if each.kind == kind), None)


def is_missing_permission(code: ErrorCode) -> bool:
    """Whether an error code says that somebody may not do this."""
    return code.name.endswith(_SUFFIX)


def on_cluster(words: str, operation: str) -> Action:
    """Something that concerns the cluster as a whole."""
    return Action(words, (Permission(operation, CLUSTER),))


def on_topic(verb: str, operation: str, topic: str) -> Action:
    """Something that is done to a topic."""
    return Action(f"{verb} topic {topic}", (Permission(operation, TOPIC, topic),))


def create_topic(topic: str) -> Action:
    """Make a topic."""
    return on_topic("create", "Create", topic)


def on_group(verb: str, operation: str, group: str, topic: str | None = None) -> Action:
    """Something that is done to a group, for which a topic has to be read if one is given."""
    needs = (Permission(operation, GROUP, group),)
    return Action(f"{verb} group {group}", needs if topic is None else (*needs, Permission("Read", TOPIC, topic)))


def describe_group(group: str) -> Action:
    """See a group and its members."""
    return on_group("describe", "Describe", group)


def on_transactional_id(verb: str, operation: str, transactional_id: str) -> Action:
    """Something that is done to a transactional id."""
    return Action(
        f"{verb} transactional id {transactional_id}", (Permission(operation, TRANSACTIONAL_ID, transactional_id),)
    )


def create_tokens_of(owner: str) -> Action:
    """Have delegation tokens made for another user."""
    return Action(f"create delegation tokens of {owner}", (Permission("CreateTokens", USER, owner),))


def write_to(topic: str, *, any_topic: bool = False) -> Action:
    """Produce to a topic; `any_topic`: what is missing is a permission to write to one, whichever it is."""
    words = f"write to topic {topic}{', nor to any other' if any_topic else ''}" if topic else "write to any topic"
    return Action(words, (Permission("Write", TOPIC, topic),))


def read_from(topic: str | None, group: str | None) -> Action:
    """Consume from a topic, if it is known from which, in a group, if there is one."""
    needs = [Permission("Read", kind, name) for kind, name in ((TOPIC, topic), (GROUP, group)) if name]
    what = f"read topic {topic}" if topic else "read"
    return Action(f"{what} in group {group}" if group else what, tuple(needs))
