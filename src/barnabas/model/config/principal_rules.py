"""ssl.principal.mapping.rules: how the subject of a certificate becomes the name of a principal.

A rule is DEFAULT (the subject as it is) or RULE:PATTERN/REPLACEMENT/ with L or U behind it for lower or upper case.
The first rule whose pattern matches the whole subject counts. Patterns run on RE2, whose time is bounded: subjects come
from clients.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from barnabas.model.errors import ConfigError

_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|)\s*(?:,|$)")
_REPLACED: Final = re.compile(r"\\(.)|\$(\d+)|([^\\$]+|.)", re.DOTALL)
_MEMORY: Final = 8 << 20


class NoMatchingRule(ValueError):
    """No rule names the principal of a certificate."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; without a pattern it is DEFAULT."""

    pattern: Any = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The name, or None if the rule is not about this subject."""
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = str(self.pattern.sub(self._expand, subject))
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _expand(self, match: Any) -> str:
        """The replacement, with groups as Java has them: $1, and \\$ for the sign itself."""
        return "".join(self._piece(match, *piece.groups()) for piece in _REPLACED.finditer(self.replacement))

    def _piece(self, match: Any, escaped: str | None, group: str | None, text: str | None) -> str:
        if group is None:
            return escaped if escaped is not None else text or ""
        digits = 1  # as many more as there are groups for
        while digits < len(group) and int(group[: digits + 1]) <= self.pattern.groups:
            digits += 1
        if int(group[:digits]) > self.pattern.groups:
            return f"${group}"  # Kafka takes it for text
        return (match.group(int(group[:digits])) or "") + group[digits:]


class PrincipalRules:
    """The rules of a broker; raises ConfigError if one cannot be read."""

    __slots__ = ("_rules", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._rules = tuple(_parse(text))

    def name_of(self, subject: str) -> str:
        """The name of the principal with this subject; raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        raise NoMatchingRule(f"no rule of ssl.principal.mapping.rules ({self._text}) applies to {subject}")


def _parse(text: str) -> list[_Rule]:
    text = text.strip()
    rules: list[_Rule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules cannot be read from {text[position:]!r} on: write "
                "RULE:PATTERN/REPLACEMENT/ with L or U behind it if you like, or DEFAULT, separated by commas"
            )
        if match[1]:
            rules.append(_Rule())
        elif match[2] is not None:
            rules.append(_Rule(_compile(match[2]), match[3], match[4]))
        position = match.end()
    return rules


def _compile(pattern: str) -> Any:
    import re2  # here, because only listeners with TLS need it and the start should not pay for it

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    options.dot_nl = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ConfigError(
            f"ssl.principal.mapping.rules has a pattern that cannot be used: {pattern}: {error}"
        ) from None
