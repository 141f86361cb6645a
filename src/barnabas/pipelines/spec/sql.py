"""What a query reads and whether it needs state, found by looking at its words. Pure, and before Spark starts.

This is no parser: Spark's own has the last word. It knows strings, comments and brackets, and where a relation stands:
after FROM, JOIN and the commas between them. That is enough to find a misspelt view, an open bracket, and what a
stream has to remember.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | `(?P<quoted>(?:[^`]|``)*)`
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>\d[\dA-Za-z_.]*)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPENING: Final = {")": "(", "]": "["}
_QUERY_WORDS: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})
_ENDS_FROM: Final = frozenset(
    [
        "WHERE",
        "GROUP",
        "ORDER",
        "SORT",
        "CLUSTER",
        "DISTRIBUTE",
        "HAVING",
        "LIMIT",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "MINUS",
        "SELECT",
        "WINDOW",
        "LATERAL",
        "VALUES",
    ]
)
_AGGREGATES: Final = frozenset(
    [
        "COUNT",
        "SUM",
        "AVG",
        "MEAN",
        "MIN",
        "MAX",
        "FIRST",
        "LAST",
        "ANY_VALUE",
        "COLLECT_LIST",
        "COLLECT_SET",
        "ARRAY_AGG",
        "APPROX_COUNT_DISTINCT",
        "COUNT_IF",
        "STDDEV",
        "VARIANCE",
        "PERCENTILE",
        "PERCENTILE_APPROX",
        "APPROX_PERCENTILE",
        "MAX_BY",
        "MIN_BY",
        "MEDIAN",
        "MODE",
        "LISTAGG",
        "STRING_AGG",
        "BOOL_AND",
        "BOOL_OR",
    ]
)
_SET_OPERATIONS: Final = frozenset({"UNION", "INTERSECT", "EXCEPT", "MINUS"})
_REMEMBERING: Final = frozenset({"LIMIT", "TABLESAMPLE", "PIVOT", "INTERSECT", "EXCEPT", "MINUS"})
"""TABLESAMPLE (5 ROWS) is a limit, and PIVOT groups by whatever it does not name."""


class SqlProblem(ValueError):
    """Something that is wrong with a query, and on which of its lines, counted from 0."""

    def __init__(self, text: str, line: int) -> None:
        self.line = line
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """What is known of a query."""

    reads: tuple[str, ...]
    """The relations it reads, each as often as Spark reads it: one that stands in a WITH, as often as that is used."""
    keeps_state: str | None
    """The words by which a stream has to remember rows, as `GROUP BY`; None if there are none."""
    joins: bool
    """Whether relations are joined; that of two streams needs state, too."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int

    @property
    def upper(self) -> str:
        """The word or mark in capitals; strings and quoted names never are words."""
        return self.text.upper() if self.kind in ("word", "mark") else ""

    @property
    def is_name(self) -> bool:
        return self.kind in ("word", "quoted")


def examine(sql: str) -> SqlQuery:
    """Look at a query. Raises SqlProblem."""
    tokens = list(_tokens(sql))
    if not tokens:
        raise SqlProblem("the query is empty", 0)
    if tokens[0].upper not in _QUERY_WORDS | {"("}:
        raise SqlProblem(f"a step is a query, and this begins with {tokens[0].text}; begin with SELECT or WITH", 0)
    _check_brackets(tokens)
    standing, within = list(_relations(tokens)), _named_within(tokens)
    relations = [(index, name) for index, name in standing if name is not None]
    reads = list(_reads(relations, within, range(len(tokens))))
    reads += [name for index, name in relations if name not in reads and _meant(name, index, within) is None]
    words = [token.upper for token in tokens]
    joins = "JOIN" in words or len(relations) < len(standing) or _asks_within(words)
    joins = joins or len(reads) > 1 + words.count("UNION")
    return SqlQuery(tuple(reads), _keeps_state(tokens, words), joins)


def _tokens(sql: str) -> Iterator[_Token]:
    line = 0
    for found in _TOKEN.finditer(sql):
        kind, text = found.lastgroup or "", found[found.lastgroup or 0]
        if kind == "mark" and (text in "'\"`" or sql.startswith("/*", found.start())):
            what = "comment" if text == "/" else f"{text} quote"
            raise SqlProblem(f"a {what} is opened here and never closed", line)
        if kind != "space":
            yield _Token(kind, text, line)
        line += found[0].count("\n")


def _check_brackets(tokens: Sequence[_Token]) -> None:
    opened: list[_Token] = []
    for token in tokens:
        if token.kind != "mark":
            continue
        if token.text in "([":
            opened.append(token)
        elif token.text in ")]":
            if not opened or opened.pop().text != _OPENING[token.text]:
                raise SqlProblem(f"a {token.text} closes what was not opened", token.line)
        elif token.text == ";" and token is not tokens[-1]:
            raise SqlProblem("a step is one query; make a step of each", token.line)
    if opened:
        raise SqlProblem(f"a {opened[-1].text} is opened here and never closed", opened[-1].line)


@dataclass(frozen=True, slots=True)
class _Within:
    """A query that `WITH name AS (...)` names, and where it stands."""

    name: str
    body: range
    is_recursive: bool


def _named_within(tokens: Sequence[_Token]) -> list[_Within]:
    """The queries that `WITH` names: `name AS (` stands nowhere else in a query."""
    found = []
    is_recursive = any(token.upper == "RECURSIVE" for token in tokens)
    for index, token in enumerate(tokens):
        if token.upper != "AS" or index + 1 >= len(tokens) or tokens[index + 1].upper != "(":
            continue
        before = index - 1
        if before >= 0 and tokens[before].upper == ")":
            before = _opening(tokens, before) - 1
        if before >= 1 and tokens[before].is_name and tokens[before - 1].upper in ("WITH", "RECURSIVE", ","):
            body = range(index + 2, _closing(tokens, index + 1))
            found.append(_Within(tokens[before].text.lower(), body, is_recursive))
    return found


def _reads(relations: Sequence[tuple[int, str]], within: Sequence[_Within], part: range) -> Iterator[str]:
    """The relations of a part of a query; where one is a query that WITH names, those of that query."""
    inner = [each.body for each in within if each.body.start in part and each.body != part]
    for index, name in relations:
        if index not in part or any(index in body for body in inner):
            continue
        meant = _meant(name, index, within)
        if meant is None:
            yield name
        elif index not in meant.body:
            yield from _reads(relations, within, meant.body)


def _meant(name: str, index: int, within: Sequence[_Within]) -> _Within | None:
    """Which query of a WITH a name stands for; only those before it are known, and its own if that is recursive."""
    for each in reversed(within):
        if each.name == name.lower() and each.body.start < index and (each.is_recursive or index not in each.body):
            return each
    return None


def _asks_within(words: Sequence[str]) -> bool:
    """Whether a condition has a query of its own, as `id IN (SELECT ...)`: that is a join, too."""
    return any(
        word in ("IN", "EXISTS") and words[index + 1 : index + 2] == ["("] and words[index + 2] in _QUERY_WORDS
        for index, word in enumerate(words)
    )


def _opening(tokens: Sequence[_Token], closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += {")": 1, "(": -1}.get(tokens[index].upper, 0)
        if depth == 0:
            return index
    return 0


def _closing(tokens: Sequence[_Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[index].upper, 0)
        if depth == 0:
            return index
    return len(tokens)


def _relations(tokens: Sequence[_Token]) -> Iterator[tuple[int, str | None]]:
    """Names at the places where a relation may stand, with their places; None for a comma between two of them."""
    expected = False
    in_from = [False]
    calls = [False]
    index = 0
    while index < len(tokens):
        token = tokens[index]
        word = token.upper
        following = tokens[index + 1].upper if index + 1 < len(tokens) else ""
        if word == "(":
            begins_query = following in _QUERY_WORDS
            calls.append(not expected and not begins_query)
            expected = expected and not begins_query
            in_from.append(expected)
        elif word == ")":
            calls.pop()
            in_from.pop()
            expected = False
        elif expected and token.is_name and word not in ("LATERAL", "STREAM", "TABLE", "VALUES"):
            name, index = _dotted(tokens, index)
            if index + 1 >= len(tokens) or tokens[index + 1].upper != "(":
                yield index, name
            expected = False
        elif (word == "FROM" and not calls[-1] and not _is_distinct_from(tokens, index)) or word == "JOIN":
            expected = in_from[-1] = True
        elif word == "TABLE" and _is_query(tokens, index):
            expected = True
        elif word == "," and in_from[-1]:
            yield index, None
            expected = True
        elif word in _ENDS_FROM or (word == "|" and following == ">"):
            expected = in_from[-1] = False
        index += 1


def _dotted(tokens: Sequence[_Token], index: int) -> tuple[str, int]:
    """A name with its dots, and the index of its last token."""
    name = tokens[index].text
    while index + 2 < len(tokens) and tokens[index + 1].upper == "." and tokens[index + 2].is_name:
        index += 2
        name += f".{tokens[index].text}"
    return name, index


def _is_query(tokens: Sequence[_Token], index: int) -> bool:
    """Whether a TABLE is a query, as in `TABLE orders`, and no column of that name: it stands where SELECT may."""
    before = [token.upper for token in tokens[max(0, index - 2) : index]]
    begins = not before or before[-1] == "(" or before[-1] in _SET_OPERATIONS
    goes_on = len(before) == 2 and before[0] in _SET_OPERATIONS and before[1] in ("ALL", "DISTINCT")
    return (begins or goes_on) and index + 1 < len(tokens) and tokens[index + 1].is_name


def _is_distinct_from(tokens: Sequence[_Token], index: int) -> bool:
    return index >= 2 and tokens[index - 1].upper == "DISTINCT" and tokens[index - 2].upper in ("IS", "NOT")


def _keeps_state(tokens: Sequence[_Token], words: Sequence[str]) -> str | None:
    pairs = list(zip(words, (*words[1:], ""), strict=True))
    if ("GROUP", "BY") in pairs:
        return "GROUP BY"
    for index, (word, following) in enumerate(pairs):
        if word in _REMEMBERING and not _leaves_columns_out(words, index):
            return word
        if word == "DISTINCT" and following != "FROM":
            return "DISTINCT"
        if word == "UNION" and following not in ("ALL", "DISTINCT"):
            return "UNION without ALL"
        if word in _AGGREGATES and following == "(":
            return f"{tokens[index].text}()"
    return None


def _leaves_columns_out(words: Sequence[str], index: int) -> bool:
    """Whether an EXCEPT is that of `SELECT * EXCEPT (column)`."""
    around = list(words[max(0, index - 1) : index + 3])
    return around[:3] == ["*", "EXCEPT", "("] and around[-1] not in _QUERY_WORDS
