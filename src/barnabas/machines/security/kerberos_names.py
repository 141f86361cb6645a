"""sasl.kerberos.principal.to.local.rules: how the name that Kerberos knows a client by becomes that of a principal.

A name of Kerberos is `primary@REALM` or `primary/instance@REALM`. Rules are tried in order, as in Kafka:

    DEFAULT                                     the primary, if the realm is the default one
    RULE:[n:format](pattern)s/from/to/g/L       for names of n parts: `format` has $0 for the realm, $1 and $2 for the
                                                parts; it must match `pattern` as a whole; then `from` is replaced by
                                                `to`, once or (g) everywhere, and L or U changes the case

What comes out must be a simple name, without / and @. Patterns run on RE2, whose time is bounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY: Final = "sasl.kerberos.principal.to.local.rules"
_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"(?P<default>DEFAULT)"
    r"|RULE:\[(?P<parts>\d*):(?P<format>[^\]]*)](?:\((?P<pattern>[^)]*)\))?"
    r"(?:s/(?P<from>[^/]*)/(?P<to>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?"
)
_PARAMETER: Final = re.compile(r"\$(\d)")
_GROUP: Final = re.compile(r"\$(\d)")
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class NoLocalName(ValueError):
    """No rule makes a name of this principal of Kerberos."""


class _Rule(NamedTuple):
    """One rule; without a format it is DEFAULT."""

    parts: int = 0
    format: str | None = None
    pattern: Any = None
    replaced: Any = None
    replacement: str = ""
    everywhere: bool = False
    case: str | None = None

    def apply(self, name: tuple[str, ...], default_realm: str) -> str | None:
        """The local name of the parts of a name, the realm first; None if the rule is not about it."""
        if self.format is None:
            return name[1] if name[0] == default_realm else None
        if len(name) - 1 != self.parts:
            return None
        found = _PARAMETER.sub(lambda match: name[int(match[1])] if int(match[1]) < len(name) else "", self.format)
        if self.pattern is not None and self.pattern.fullmatch(found) is None:
            return None
        if self.replaced is not None:
            found = str(self.replaced.sub(self._expand, found, 0 if self.everywhere else 1))
        if _NOT_SIMPLE.search(found):
            raise NoLocalName(f"a rule of {KEY} makes {found!r} of it, which is no simple name")
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found

    def _expand(self, match: Any) -> str:
        return _GROUP.sub(lambda group: match.group(int(group[1])) or "", self.replacement)


class KerberosNames:
    """The rules of one listener; raises ConfigError if one cannot be read."""

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        self._rules = tuple(map(_parse, rules))
        self._default_realm = default_realm

    def local(self, name: str) -> str:
        """The name of a client that Kerberos calls so. Raises NoLocalName."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise NoLocalName("it is no name of Kerberos")
        primary, instance, realm = match.groups()
        parts = (realm, primary) if instance is None else (realm, primary, instance)
        for rule in self._rules:
            found = rule.apply(parts, self._default_realm)
            if found is not None:
                if not found:
                    break
                return found
        raise NoLocalName(f"no rule of {KEY} applies to it")


def _parse(text: str) -> _Rule:
    match = _RULE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"{KEY} has {text!r}, which is no rule: write DEFAULT or RULE:[n:format](pattern)s/from/to/, "
            "separated by commas"
        )
    if match["default"]:
        return _Rule()
    return _Rule(
        parts=int(match["parts"] or 0),
        format=match["format"],
        pattern=_compile(match["pattern"]),
        replaced=_compile(match["from"]),
        replacement=match["to"] or "",
        everywhere=match["all"] is not None,
        case=match["case"],
    )


def _compile(pattern: str | None) -> Any:
    import re2  # here, because only listeners with GSSAPI need it

    if pattern is None:
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ConfigError(f"{KEY} has a pattern that cannot be used: {pattern}: {error}") from None
