"""How a session gets to know the source."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.pipelines.session import register
from barnabas.pipelines.source import BarnabasSource


def test_a_session_without_a_jvm_is_told_of_the_source() -> None:
    """As one of Spark Connect, which has neither a context nor a JVM in this process."""
    known: list[object] = []
    session: Any = SimpleNamespace(dataSource=SimpleNamespace(register=known.append))
    register(session)
    assert known == [BarnabasSource]
