"""A planted bug replaces something that the code has: after a renaming, its patch would change nothing.

`patch.setattr` of pytest looks itself; `SomeClass.name = function` does not.
"""

from __future__ import annotations

import ast
from importlib import import_module
from inspect import getsource
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.simulation.whole import planted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

MODULES = (
    "tests.fuzz.bugs",
    "tests.interleavings.bugs",
    "tests.failing_calls.bugs",
    "tests.simulation.bugs",
    *(f"{planted.__name__}.{name}" for name in ("controller", "replication", "shares", "storage")),
)


class Patch(NamedTuple):
    """`name.attribute = ...` in a module."""

    name: str
    attribute: str


def patches(module: ModuleType) -> Iterator[Patch]:
    """The assignments to attributes of what a module has imported."""
    for node in ast.walk(ast.parse(getsource(module))):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                name = target.value.id
                if name != "self" and hasattr(module, name):
                    yield Patch(name, target.attr)


@pytest.mark.parametrize("name", MODULES)
def test_what_a_bug_replaces_is_there(name: str) -> None:
    module = import_module(name)
    for patch in patches(module):
        assert hasattr(getattr(module, patch.name), patch.attribute), patch


def test_patches_are_found() -> None:
    assert Patch("Connection", "expect_end") in patches(import_module("tests.fuzz.bugs"))
    assert Patch("bounds", "read_uvarint") in patches(import_module("tests.fuzz.bugs"))
    assert len([each for name in MODULES for each in patches(import_module(name))]) > 25


def test_every_module_of_bugs_is_looked_at() -> None:
    for bug in planted.BUGS.values():
        assert bug.__module__ in MODULES
