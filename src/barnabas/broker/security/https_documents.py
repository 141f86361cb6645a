"""Documents that a broker fetches from a file or over https: keys of an issuer, and its own tokens.

Only what the configuration names is fetched, and the configuration was checked against the list of allowed addresses
(`model/config/sasl`). Redirects are not followed and no proxy is asked. Size and time have a limit, whoever answers.
"""

from __future__ import annotations

import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_BYTES: Final = 1024 * 1024
CHUNK: Final = 64 * 1024
READ_SECONDS: Final = 10.0
"""To wait for the next bytes."""
MOST_SECONDS: Final = 20.0
"""To wait for all of them."""


class DocumentUnavailable(BarnabasError):
    """The document cannot be read."""


def fetch(url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    """Read a file, or fetch over https, which may take a while; with a form, post it. Raises DocumentUnavailable."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file" and form is None:
            with open(url2pathname(parts.path), "rb") as file:  # noqa: PTH123  # the path is a URL's
                return _read(file)
        if parts.scheme != "https":
            raise DocumentUnavailable("it is no https address")
        return _fetch_https(url, form, headers or {})
    except (OSError, HTTPException, ValueError) as error:
        raise DocumentUnavailable(str(error)) from error


def _fetch_https(url: str, form: bytes | None, headers: Mapping[str, str]) -> bytes:
    import ssl
    from urllib.request import HTTPDefaultErrorHandler, HTTPErrorProcessor, HTTPSHandler, OpenerDirector, Request

    opener = OpenerDirector()  # with nothing else: no redirects, no other schemes, no proxies
    for handler in (
        HTTPSHandler(context=ssl.create_default_context()),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    request = Request(url, data=form, headers={"Accept": "application/json", **headers})
    response = opener.open(request, timeout=READ_SECONDS)
    assert response is not None  # an error was raised
    with response:
        return _read(response)


def _read(source: Any) -> bytes:
    """All that is there, if it is not too much and comes in time."""
    data, until = bytearray(), time.monotonic() + MOST_SECONDS
    while chunk := source.read1(CHUNK) if hasattr(source, "read1") else source.read(CHUNK):
        data += chunk
        if len(data) > MOST_BYTES:
            raise DocumentUnavailable(f"it has more than {MOST_BYTES} bytes")
        if time.monotonic() > until:
            raise DocumentUnavailable(f"it has not come in {MOST_SECONDS:g} s")
    return bytes(data)
