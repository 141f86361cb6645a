"""What a broker asks of the system before it starts."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from barnabas.broker import app
from barnabas.model.config.broker import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = BrokerConfig.load({"log.dirs": "/nowhere"})
NONE = resource.RLIM_INFINITY


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, int]]]:
    """Set the limits that the system tells; gives those that it was asked for."""

    def use(soft: int, hard: int, *, refuse: bool = False) -> list[tuple[int, int]]:
        asked: list[tuple[int, int]] = []

        def setrlimit(_: int, wanted: tuple[int, int]) -> None:
            asked.append(wanted)
            if refuse:
                raise ValueError("current limit exceeds maximum limit")

        monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr(resource, "setrlimit", setrlimit)
        return asked

    return use


@pytest.mark.parametrize(
    ("soft", "hard", "asked"),
    [
        (1024, 4096, [(4096, 4096)]),
        (4096, 4096, []),
        (256, NONE, [(app.OPEN_FILES, NONE)]),
        (NONE, NONE, []),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(
    limits: Callable[..., list[tuple[int, int]]], soft: int, hard: int, asked: list[tuple[int, int]]
) -> None:
    seen = limits(soft, hard)
    app._raise_file_limit()
    assert seen == asked


def test_a_system_that_refuses_more_is_lived_with(limits: Callable[..., list[tuple[int, int]]]) -> None:
    seen = limits(256, NONE, refuse=True)
    app._raise_file_limit()
    assert len(seen) == 1


def test_connections_leave_descriptors_for_the_logs(limits: Callable[..., list[tuple[int, int]]]) -> None:
    limits(1000, 1000)
    assert app._limits(CONFIG).max_connections == 700
    limits(NONE, NONE)
    assert app._limits(CONFIG).max_connections == CONFIG.number("max.connections")
