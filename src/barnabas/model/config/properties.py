"""Java's properties syntax, the form of server.properties: comments, continuation lines, escapes.

A file that Java reads is read the same here; later lines win over earlier ones of the same key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BLANK: Final = " \t\f"
_PEM: Final = re.compile("-----(BEGIN|END)")
"""How the lines around a certificate or key begin."""
_NAME: Final = re.compile(r"(?:[\w-]{1,40}\.)+[\w-]{1,40}|[a-z0-9_-]{1,40}|[A-Z0-9_-]{1,40}", re.ASCII)
"""What a setting may be called: words and dots between them. Keys in base64 have no dots, and letters of both cases."""
_LONGEST_NAME: Final = 100
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {"\\": "\\\\"} | {char: f"\\{letter}" for letter, char in _ESCAPES.items()}


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a properties file; raises ConfigError for a broken escape, and for PEM that is not whole.

    Messages have no values, which may be passwords.
    """
    return dict(_split(line) for line in _logical_lines(text))


def parse_overrides(settings: Iterable[str]) -> dict[str, str]:
    """The keys and values of `key=value` arguments, taken as they are; raises ConfigError when the = is missing."""
    found: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{setting!r} is not a setting: write it as key=value")
        found[key.strip()] = value.strip()
    return found


def shown_name(name: str) -> str:
    """The name of a setting that nobody knows, for a message; only its beginning if it may be part of a secret value.

    A value whose line lacks the backslash at its end goes on in what is taken for the next name.
    """
    if len(name) <= _LONGEST_NAME and _NAME.fullmatch(name):
        return name
    return f"a setting whose name begins with {name[:4]!r} and has {len(name)} characters"


def format_property(name: str, value: str) -> str:
    """A line of a properties file, in ASCII: old versions of Java read such files as Latin-1."""
    return f"{_escape(name, ' =:#!')}={_escape(value)}"


def _escape(text: str, separators: str = "") -> str:
    """The text with escapes; a blank at its beginning would be passed over without one."""
    blanks = len(text) - len(text.lstrip(_BLANK))
    return "".join(_escaped(char, escaped=place < blanks or char in separators) for place, char in enumerate(text))


def _escaped(char: str, *, escaped: bool) -> str:
    if char in _WRITTEN:
        return _WRITTEN[char]
    if not " " <= char <= "~":
        units = char.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    return f"\\{char}" if escaped else char


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, continuation lines joined."""
    joined: str | None = None
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANK)
        if joined is None and (not line or line[0] in "#!"):
            continue
        joined = line if joined is None else joined + line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            continue
        if joined:
            yield joined
        joined = None
    if joined:
        yield joined


def _split(line: str) -> tuple[str, str]:
    """Key and value of a logical line: they are parted by the first unescaped =, : or blank."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANK:
        end += 2 if line[end] == "\\" else 1
    _check_pem(line[:end], line)
    rest = line[end:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    key = _unescape(line[:end], "a key")
    return key, _unescape(rest, f"the value of {shown_name(key)}")


def _check_pem(key: str, line: str) -> None:
    """Refuse part of a certificate or key: the rest of a private key would be taken for names of settings, and logged.

    Java takes it, and then cannot read the key.
    """
    marks = _PEM.findall(line)
    if _PEM.search(key) or marks != ["BEGIN", "END"] * (len(marks) // 2):
        raise ConfigError(
            f"a line has -----{marks[0]} and is no setting, or not all of one: where a certificate or key stands in a "
            "setting, it has -----BEGIN and -----END, and each of its lines but the last ends with a backslash"
        )


def _unescape(text: str, what: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            if char != "\\":
                parts.append(char)
            continue
        escape = text[position]
        position += 1
        if escape == "u":
            parts.append(_unicode(text[position : position + 4], what))
            position += 4
        else:
            parts.append(_ESCAPES.get(escape, escape))
    # Java writes characters beyond the 16-bit plane as two escapes.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode(digits: str, what: str) -> str:
    if len(digits) != 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        raise ConfigError(f"{what} has a broken \\u escape: four hexadecimal digits must follow")
    return chr(int(digits, 16))
