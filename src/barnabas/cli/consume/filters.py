"""The expression of `--filter`: which records are shown.

It is Python's syntax, with a few words: `key`, `value`, `headers`, `topic`, `partition`, `offset`, `timestamp`, and
`value.user.name` for `value["user"]["name"]`. What is missing is None, and what cannot be compared does not match: most
topics hold more than one kind of record. Nothing else can be reached from an expression.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

WORDS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")


def _matches(pattern: str, text: Any) -> bool:
    return re.search(pattern, text) is not None


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "len": len,
    "int": int,
    "float": float,
    "str": str,
    "abs": abs,
    "lower": lambda text: text.lower(),
    "upper": lambda text: text.upper(),
    "startswith": lambda text, start: text.startswith(start),
    "endswith": lambda text, end: text.endswith(end),
    "matches": _matches,
}
_ALLOWED: Final = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult,
    ast.Div, ast.FloorDiv, ast.Mod, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn,
    ast.Is, ast.IsNot, ast.Constant, ast.Name, ast.Load, ast.Subscript, ast.Tuple, ast.List, ast.Call, ast.Attribute,
)  # fmt: skip


class Filter:
    """A compiled expression; `misfit` says what was wrong when it last could not be worked out for a record."""

    def __init__(self, text: str) -> None:
        """Raises UsageError for what is not understood."""
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError as error:
            raise click.UsageError(f"--filter {text}: {error.msg}.") from error
        for node in ast.walk(tree):
            self._check(node, text)
        tree = ast.fix_missing_locations(_Items().visit(tree))
        self._code = compile(tree, "--filter", "eval")
        self.misfit: str | None = None

    def __call__(self, fields: Mapping[str, Any]) -> bool:
        """Whether a record with these fields matches."""
        try:
            return bool(eval(self._code, {"__builtins__": {}, "_item": _item, **FUNCTIONS}, dict(fields)))
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            self.misfit = str(error)
            return False

    def _check(self, node: ast.AST, text: str) -> None:
        if not isinstance(node, _ALLOWED):
            raise click.UsageError(f"--filter {text}: {type(node).__name__} is not allowed here.")
        if isinstance(node, ast.Name) and node.id not in (*WORDS, *FUNCTIONS):
            raise click.UsageError(
                f"--filter {text}: there is no {node.id!r}. The words are {', '.join(WORDS)}, the functions "
                f"{', '.join(FUNCTIONS)}."
            )
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            raise click.UsageError(f"--filter {text}: the functions are {', '.join(FUNCTIONS)}.")


class _Items(ast.NodeTransformer):
    """Turns `a.b` and `a["b"]` into a look that finds None where there is nothing."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._look(node.value, ast.Constant(node.attr))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._look(node.value, node.slice)

    def _look(self, value: ast.expr, key: ast.expr) -> ast.AST:
        return ast.Call(ast.Name("_item", ast.Load()), [self.visit(value), self.visit(key)], [])


def _item(value: Any, key: Any) -> Any:
    try:
        return value[key]
    except (TypeError, KeyError, IndexError):
        return None
