"""Typed access to the values of keys, whoever holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.model.config.definition import Value


class Values:
    """Typed access to the values of keys; asking a key for a type that it has not is a mistake of ours."""

    __slots__ = ()

    def value(self, name: str) -> Value:
        """The key's value, of whatever type."""
        raise KeyError(name)

    def number(self, name: str) -> int:
        """The value of an INT, SHORT or LONG key that is set or has a default."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} is {value!r}, not a whole number")
        return value

    def number_or_none(self, name: str) -> int | None:
        """The value of an INT, SHORT or LONG key, None when it is not set and has no default."""
        return None if self.value(name) is None else self.number(name)

    def ratio(self, name: str) -> float:
        """The value of a DOUBLE key."""
        value = self.value(name)
        if not isinstance(value, float):
            raise TypeError(f"{name} is {value!r}, not a number with a fraction")
        return value

    def flag(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        value = self.value(name)
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}, not true or false")
        return value

    def text(self, name: str) -> str:
        """The value of a STRING key that is set or has a default."""
        value = self.value(name)
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}, not text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """The value of a STRING key, None when it is not set and has no default."""
        return None if self.value(name) is None else self.text(name)

    def items(self, name: str) -> tuple[str, ...]:
        """The value of a LIST key; empty when it is not set and has no default."""
        value = self.value(name)
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise TypeError(f"{name} is {value!r}, not a list")
        return value
