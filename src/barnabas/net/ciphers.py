"""Cipher suites: Java's names, which Kafka's ssl.cipher.suites has, and OpenSSL's."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

TLS_1_3: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
"""The suites of TLS 1.3, which have the same names in both."""
PREFERRED: Final = "TLS_AES_256_GCM_SHA384"
"""The suite that OpenSSL chooses first in TLS 1.3."""

_JAVA: Final = re.compile(r"(?:TLS|SSL)_(?P<exchange>.+)_WITH_(?P<cipher>.+)_(?P<hash>SHA\d*|MD5)")
_BLOCK: Final = re.compile(r"(AES|CAMELLIA|ARIA)_(\d+)_(CBC|GCM|CCM)")


def openssl_name(java: str) -> str:
    """OpenSSL's name of a suite of TLS 1.2; a name that is not Java's stays as it is.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
    'ECDHE-RSA-AES256-GCM-SHA384'
    >>> openssl_name("TLS_RSA_WITH_AES_128_CBC_SHA256")
    'AES128-SHA256'
    >>> openssl_name("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256")
    'DHE-RSA-CHACHA20-POLY1305'
    """
    match = _JAVA.fullmatch(java)
    if match is None:
        return java
    exchange = [] if match["exchange"] == "RSA" else [match["exchange"].replace("_", "-")]
    block = _BLOCK.fullmatch(match["cipher"])
    if block is None:  # CHACHA20_POLY1305, whose hash OpenSSL does not name
        return "-".join([*exchange, match["cipher"].replace("_", "-")])
    mode = [] if block[3] == "CBC" else [block[3]]
    return "-".join([*exchange, block[1] + block[2], *mode, match["hash"]])


def restrict(context: ssl.SSLContext, suites: Iterable[str], key: str) -> None:
    """Let a context use these suites alone; raises ConfigError, in which `key` is named.

    Python can choose among the suites of TLS 1.2 only. So a list without suites of TLS 1.3 switches that off, and one
    that has some has to have the one that OpenSSL chooses.
    """
    newer = [suite for suite in suites if suite in TLS_1_3]
    older = [suite for suite in suites if suite not in TLS_1_3]
    for suite in older:
        _set(context, [suite], f"{key} has {suite}, which OpenSSL does not have or does not take for safe")
    if older:
        _set(context, older, f"none of the suites of {key} can be used")
    elif context.maximum_version == ssl.TLSVersion.TLSv1_2:
        raise ConfigError(f"{key} has only suites of TLSv1.3, which is not enabled")
    else:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not newer:
        if context.minimum_version == ssl.TLSVersion.TLSv1_3:
            raise ConfigError(f"{key} has no suite of TLSv1.3, and no other version is enabled")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif PREFERRED not in newer and context.maximum_version != ssl.TLSVersion.TLSv1_2:
        raise ConfigError(f"{key} has {newer[0]}, but not {PREFERRED}, which OpenSSL prefers to it: add it")


def _set(context: ssl.SSLContext, suites: list[str], complaint: str) -> None:
    try:
        context.set_ciphers(":".join(map(openssl_name, suites)))
    except ssl.SSLError:
        raise ConfigError(complaint) from None
