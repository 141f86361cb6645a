"""Every command line that the README, the guides and the help show is one that the program understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.main import cli
from tests.unit.cli.test_main import leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?:sh|console|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(barnabas [^`]+)`")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each `barnabas ...` in lines of shell."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
        lexer.whitespace_split = True
        parts: list[list[str]] = [[]]
        for word in lexer:
            if word[:1] in ("|", ";", "&", "<", ">"):
                parts.append([])
            elif parts[-1] or not re.fullmatch(r"\$|\w+=.*", word):  # no prompt, and no variable before the program
                parts[-1].append(word)
        yield from (words[1:] for words in parts if words[:1] == ["barnabas"])


def understand(words: list[str]) -> None:
    """Raise click.UsageError for a command or an option that is not there; values are not looked at."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        rest = command.make_parser(click.Context(command)).parse_args(list(words))[1]
        if not rest:
            return
        found = command.get_command(click.Context(command), rest[0])
        if found is None:
            raise click.UsageError(f"there is no {rest[0]}")
        command, words = found, rest[1:]
    if "-h" not in words and "--help" not in words:
        command.make_parser(click.Context(command)).parse_args(list(words))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_pages_say_can_be_typed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = [*BLOCK.findall(text), *(found.replace("\n", " ") for found in INLINE.findall(BLOCK.sub("", text)))]
    for line in shown:
        for words in commands(line):
            if "..." not in words:
                understand(words)


def test_what_the_help_says_can_be_typed() -> None:
    count = 0
    for _, command in leaves(cli, "barnabas"):
        for _, line in getattr(command, "examples", ()):
            if "<<" in line:
                continue
            for words in commands(line):
                understand(words)
                count += 1
    assert count > 100


def test_a_line_that_nobody_could_type_is_found() -> None:
    (words,) = commands("echo x | barnabas topics --lst --topic a > file")
    assert words == ["topics", "--lst", "--topic", "a"]
    with pytest.raises(click.NoSuchOption):
        understand(words)
    with pytest.raises(click.UsageError, match="there is no topcis"):
        understand(["topcis"])


def test_what_the_console_says_can_be_typed() -> None:
    console = ROOT / "src" / "barnabas" / "console"
    shown = []
    for file in (*console.rglob("*.js"), console / "cluster" / "problems.py"):
        text = file.read_text(encoding="utf-8")
        shown += [found for _, found in re.findall(r"""(["`])((?:echo \w+ \| )?barnabas [a-z-]+ [^"`]*)\1""", text)]
    assert len(shown) > 10
    for line in shown:
        for words in commands(re.sub(r"\$?\{[^}]*\}", "1", line)):
            understand(words)
