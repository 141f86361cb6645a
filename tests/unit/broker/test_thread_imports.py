"""Threads import one after the other: Python ends two that wait for each other with an error in one of them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.broker.serving.registry import BY_KEY
from barnabas.broker.thread_imports import IMPORTING
from barnabas.protocol.apis import ApiKey


def test_the_handler_of_an_api_is_not_imported_beside_something_else() -> None:
    made: list[object] = []

    def make() -> None:
        made.append(
            Dispatcher._make_route(cast("Any", SimpleNamespace(_permissions=None)), BY_KEY[ApiKey.METADATA], 12)
        )

    thread = threading.Thread(target=make)
    with IMPORTING:
        thread.start()
        thread.join(0.1)
        assert not made
    thread.join(30)
    assert made
