"""Errors that clients are told are sentences, as log lines are: a capital first, a full stop or a value last."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.model import errors
from barnabas.model.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(__file__).parents[3] / "src" / "barnabas"
PACKAGES = ("broker", "machines")
"""Where requests are refused; what storage and protocol find in bytes is a reason, which comes after a colon."""
SENTENCE = re.compile(r"(?s)[A-Z{].*[.}]")
KAFKAS = {
    "A user credential cannot be altered twice in the same request",
    "Attempt to delete a user credential that does not exist",
    "Broker id must not be empty",
    "Empty {} not supported",
    "Error due to duplicate config keys",
    "Group name must not be empty",
    "Ignoring duplicate entity {}",
    "Invalid configuration key {}",
    "Invalid empty client quota entity",
    "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    "Logger {} does not exist!",
    "Quota {} must be greater than 0",
    "Removing the log level of the root logger is not allowed",
    "partitions should be a consecutive 0-based integer sequence",
    "Too few iterations",
    "Too many iterations",
    "Unhandled client quota entity type: {}",
    "Unknown SCRAM mechanism",
    "Unknown match type {}",
    "Unsupported entity type {}",
    "Username must not be empty",
    "{} operation is not allowed for the BROKER_LOGGER resource",
    "{}: [{}]",
}
"""Texts of Apache Kafka, to the letter."""
CLASSES = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, ApiError)}


def text_of(argument: ast.expr) -> str | None:
    """A text, with `{}` for each value in it; None if the text is made elsewhere."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    if isinstance(argument, ast.JoinedStr):
        return "".join(text_of(part) or "" if isinstance(part, ast.Constant) else "{}" for part in argument.values)
    return None


def texts_of(path: Path) -> Iterator[str]:
    """The texts of the errors that a module makes."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES and node.args:
            text = text_of(node.args[0])
            if text is not None:
                yield text


def test_errors_that_clients_are_told_are_sentences() -> None:
    found = {(path, text) for each in PACKAGES for path in (SOURCE / each).rglob("*.py") for text in texts_of(path)}
    assert len(found) > 150
    assert not [(path.name, text) for path, text in found if not SENTENCE.fullmatch(text) and text not in KAFKAS]
    assert {text for _, text in found} >= KAFKAS, "a text that is nowhere needs no exception"
