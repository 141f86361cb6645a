"""Every remedy has words, and errors get them on the command line and in the broker's log."""

from __future__ import annotations

import ast
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.remedies import WORDS, WordedRemedies, with_remedy
from barnabas.clients.errors import BrokerUnreachable
from barnabas.model.base_error import BarnabasError
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(__file__).parents[4] / "src" / "barnabas"
LIBRARY = ("broker", "clients", "console", "metadata", "model", "net", "pipelines", "storage")
FLAG = re.compile(r"(?<![\w-])--[a-z]")
OTHER_PROGRAMS = (
    "clients/protobuf_files.py",
    "console/cluster/problems.py",
    "console/messages/protobuf_schemas.py",
    "model/config/page.py",
    "pipelines/tables/files/access_errors.py",
)
"""These name flags of protoc and of Hadoop, write a page about the command line, and show commands to copy as such."""


@pytest.mark.parametrize("kind", RemedyKind)
def test_every_kind_has_words(kind: RemedyKind) -> None:
    words = WORDS[kind]("Write topic orders" if kind is RemedyKind.ASK_FOR_PERMISSION else "retention.mss")
    assert words[0].isupper()
    assert words[-1] in ".?"


def test_the_words_stand_behind_what_happened() -> None:
    remedy = Remedy(RemedyKind.CHECK_LOG, "/data/t-0")
    told = "It is gone. Stop the broker, and look with `barnabas log check /data/t-0`."
    assert with_remedy("It is gone.", remedy) == with_remedy("It is gone", remedy) == told
    assert with_remedy("It is gone", None) == "It is gone"
    assert with_remedy("Unknown", Remedy(RemedyKind.CORRECT_CONFIG_NAME, "nothing.near")) == "Unknown"


def test_errors_of_a_kind_share_a_remedy_and_one_error_may_have_its_own() -> None:
    assert BrokerUnreachable("nobody").remedy == Remedy(RemedyKind.START_BROKER)
    own = BrokerUnreachable("nobody").with_remedy(Remedy(RemedyKind.CHECK_SECURITY))
    assert own.remedy == Remedy(RemedyKind.CHECK_SECURITY)
    assert BrokerUnreachable.remedy == Remedy(RemedyKind.START_BROKER)


def test_the_library_names_no_flags() -> None:
    for path in (each for layer in LIBRARY for each in (SOURCES / layer).rglob("*.py")):
        source = path.read_text("utf-8")
        if path.relative_to(SOURCES).as_posix() not in OTHER_PROGRAMS and "--" in source:
            named = [text for text in strings(ast.parse(source)) if FLAG.search(text)]
            assert not named, f"{path}: carry a Remedy instead (model/remedies.py)"


def strings(tree: ast.Module) -> Iterator[str]:
    """The texts of a module that are no docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def test_log_lines_get_the_words() -> None:
    error = BarnabasError("two trees").with_remedy(Remedy(RemedyKind.UNSET_CONFIG, "zookeeper.connect"))
    record = logging.LogRecord("barnabas", logging.ERROR, __file__, 1, "%s: %s", ("start", error), None)
    assert WordedRemedies().filter(record)
    assert record.getMessage() == (
        "start: two trees. To start without it, add `--set zookeeper.connect=` (with nothing behind the =)."
    )
    plain = logging.LogRecord("barnabas", logging.ERROR, __file__, 1, "%s", (BarnabasError("plain"),), None)
    WordedRemedies().filter(plain)
    assert plain.getMessage() == "plain"


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        (
            Remedy(RemedyKind.USE_PIPELINE_NAME, "load-a"),
            "Go on under that name (`--name load-a` for a load, `name` in a pipeline's file), or choose another table.",
        ),
        (Remedy(RemedyKind.USE_DECODER, "json"), "Give --decode json, or load into another table."),
        (Remedy(RemedyKind.USE_DECODER), "Give --decode as in the first load, or load into another table."),
        (Remedy(RemedyKind.DELETE_GROUP, "g"), "The group is deleted with `barnabas groups --delete --group g`."),
    ],
)
def test_a_load_and_a_pipeline_have_words(remedy: Remedy, words: str) -> None:
    assert with_remedy("refused", remedy) == f"refused. {words}"


@pytest.mark.parametrize(
    ("permission", "flags"),
    [
        ("", ""),
        ("Describe cluster", " --allow-principal User:NAME --operation Describe --cluster"),
        ("Write topic orders", " --allow-principal User:NAME --operation Write --topic orders"),
        ("Write topic", " --allow-principal User:NAME --operation Write --topic NAME"),
        ("Read group two words", " --allow-principal User:NAME --operation Read --group 'two words'"),
        ("Write transactional_id x", " --allow-principal User:NAME --operation Write --transactional-id x"),
        ("CreateTokens user User:b", " --allow-principal User:NAME --operation CreateTokens --user-principal User:b"),
    ],
)
def test_who_has_no_permission_is_given_the_rule_to_ask_for(permission: str, flags: str) -> None:
    told = with_remedy("no permission", Remedy(RemedyKind.ASK_FOR_PERMISSION, permission))
    assert told.startswith("no permission. No rule allows it to the user of --command-config: an administrator ")
    assert told.endswith(f"`barnabas acls --add{flags}`.")
