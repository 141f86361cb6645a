"""Requests and responses whose shape changed between versions: one function up, one down, per API.

`UP` brings a request of an older version to a shape whose field names are the newest version's; `DOWN` brings a newest
response to the shape of an older version. The codec then converts by field names as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.apis import ApiKey

UP: Final[dict[ApiKey, Callable[[Any, int], Any]]] = {}
DOWN: Final[dict[ApiKey, Callable[[Any, int], Any]]] = {}
