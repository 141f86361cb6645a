"""Small answers over HTTP and HTTPS, from the address that was asked and nowhere else: redirects are not followed.

What is sent may be a secret, and what comes back may be believed, so another server must not take an answer's place.
"""

from __future__ import annotations

import ssl
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def fetch(
    url: str,
    *,
    seconds: float,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    authority: Path | None = None,
) -> bytes:
    """What is found at an address, or what it answers to a body. Raises OSError (its HTTPError), ValueError.

    `authority` has certificates in PEM that are trusted in place of the system's.
    """
    context = ssl.create_default_context(cafile=authority) if url.startswith("https:") else None
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
    request = urllib.request.Request(url, data=body, headers=dict(headers or {}))
    try:
        with opener.open(request, timeout=seconds) as answer:
            data: bytes = answer.read(most_bytes)
    except HTTPError as error:
        error.close()  # it holds the connection, which would be left to whoever drops it
        raise
    except HTTPException as error:  # which is no OSError
        raise OSError(f"the answer is not HTTP: {error!r}") from error
    return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Let the redirect be the error that it is here."""
        return
