"""Why TLS or SASL does not come about.

librdkafka tells it to its error callback, goes on trying, and says in the end only that nobody answered. So the last
such error is kept here, to be told in place of the silence.
"""

from __future__ import annotations

from typing import Any

from barnabas.clients.errors import LoginFailed


class LoginErrors:
    """An error callback of librdkafka. Connections come and go, and other errors are none of its business."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, error: Any) -> None:
        """Keep it, if it is about TLS or SASL."""
        if error.code() in (error._AUTHENTICATION, error._SSL):
            self._last = error

    def forget(self) -> None:
        """A broker has answered: what was before is over."""
        self._last = None

    @property
    def failure(self) -> LoginFailed | None:
        """The last one, if there was any since a broker has answered."""
        return None if self._last is None else LoginFailed(self._last.str())
