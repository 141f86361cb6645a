"""The value of `sasl.jaas.config`: Java's login modules with their options, in the form that Kafka reads.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="..." user_alice="...";

A broker takes passwords of PLAIN's users (`user_NAME`) and its own login to other brokers (`username`, `password`)
from there. What is read is a secret, and so no error shows any of it but the names of login modules. Where a quote is
missing, a part of a password stands in the place of such a name, so that is shown only if it looks like one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_TOKEN: Final = re.compile(
    r"""[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*|(?P<mark>[;=])"""
    r"""|"(?P<double>(?:\\.|[^"\\\r\n])*)(?:"|(?=[\r\n])|\\?\Z)|'(?P<single>(?:\\.|[^'\\\r\n])*)(?:'|(?=[\r\n])|\\?\Z)"""
    r"""|(?P<word>[^\x00-\x20/;="']+)""",
    re.DOTALL,
)
_CLASS: Final = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z][A-Za-z0-9]*LoginModule", re.ASCII)
"""The name of a login module, as all of them are called."""
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """One login module."""

    name: str
    """Its class."""
    options: Mapping[str, str]

    @property
    def shown(self) -> str:
        """Its name for an error."""
        return _shown(self.name)

    def __repr__(self) -> str:
        return f"LoginModule({self.shown})"


class _Token(NamedTuple):
    text: str
    is_mark: bool = False


def parse_jaas(key: str, text: str) -> tuple[LoginModule, ...]:
    """The login modules that the value of `key` names, at least one. Raises ConfigError."""
    tokens = _tokens(text)
    modules = []
    while (name := next(tokens, None)) is not None:
        if name.is_mark:
            raise ConfigError(f"{key} cannot be read: a login module begins with the name of its class")
        modules.append(_module(key, name.text, tokens))
    if not modules:
        raise ConfigError(f"{key} has no login module")
    return tuple(modules)


def _module(key: str, name: str, tokens: Iterator[_Token]) -> LoginModule:
    flag = next(tokens, None)
    if flag is None or flag.is_mark or flag.text.lower() not in FLAGS:
        raise ConfigError(f"{key} cannot be read: {_shown(name)} must be followed by one of {', '.join(FLAGS)}")
    options: dict[str, str] = {}
    for token in tokens:
        if token == (";", True):
            return LoginModule(name, options)
        equals, value = next(tokens, None), next(tokens, None)
        if token.is_mark or equals != ("=", True) or value is None or value.is_mark:
            raise ConfigError(f"{key} cannot be read: an option of {_shown(name)} is not of the form NAME=VALUE")
        options[token.text] = value.text
    raise ConfigError(f"{key} cannot be read: {_shown(name)} and its options must end with a semicolon")


def _shown(name: str) -> str:
    return name if _CLASS.fullmatch(name) else "what stands for a login module"


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match["mark"] is not None:
            yield _Token(match["mark"], is_mark=True)
        elif match["word"] is not None:
            yield _Token(match["word"])
        else:
            quoted = match["double"] if match["double"] is not None else match["single"]
            if quoted is not None:
                yield _Token(_ESCAPE.sub(_unescape, quoted))


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPES.get(code, code)
