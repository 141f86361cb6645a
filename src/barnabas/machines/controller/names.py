"""Which names a topic may have."""

from __future__ import annotations

from barnabas.model.errors import InvalidTopic

MAX_LENGTH = 249
"""A partition's folder is the name, a dash, up to ten digits and a suffix: this keeps it below 255 bytes."""

_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def check_name(name: str) -> None:
    """Refuse what Kafka refuses; raises InvalidTopic."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    elif not _ALLOWED.issuperset(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopic(f"Topic name is invalid: {reason}")


def collision_key(name: str) -> str | None:
    """Two topics with the same key cannot live together (metrics write '.' as '_'); None if the name is harmless."""
    return name.replace(".", "_") if "." in name or "_" in name else None
