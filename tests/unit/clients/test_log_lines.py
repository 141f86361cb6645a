from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.clients.log_lines import MOST_LINES, QUIET_SECONDS, Echo, ProducerLog

if TYPE_CHECKING:
    import pytest

AWAY = (
    "FAIL [rdkafka#producer-%d] [thrd:b:1/bootstrap]: b:1/bootstrap: Connect failed: Connection refused "
    "(after %dms in state CONNECT)"
)


def line(text: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("barnabas.clients", logging.ERROR, __file__, 1, text, arguments, None)


def test_a_line_of_librdkafka_is_logged_again_only_after_a_while() -> None:
    now = 100.0
    echo = Echo(lambda: now)
    assert echo.filter(line(AWAY, 1, 0))
    assert not echo.filter(line(AWAY, 1, 3))
    assert echo.filter(line(AWAY, 2, 0))
    now += QUIET_SECONDS - 1
    assert not echo.filter(line(AWAY, 1, 0))
    now += 1
    assert echo.filter(line(AWAY, 1, 0))


def test_lines_of_our_own_are_all_logged() -> None:
    echo = Echo(lambda: 0.0)
    assert all(echo.filter(line("records are being discarded")) for _ in range(3))


def test_clients_that_come_and_go_take_no_room() -> None:
    echo = Echo(lambda: 0.0)
    for number in range(3 * MOST_LINES):
        assert echo.filter(line(AWAY, number, 0))
    assert len(echo._quiet_until) <= MOST_LINES


def test_that_a_producer_failed_for_good_is_kept_for_its_own_line(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[str] = []
    log = ProducerLog(logging.getLogger("barnabas.clients.test"), kept.append)
    lines = {"FATAL": "[thrd:main]: Fatal error: Failed to acquire a PID", "FAIL": "[thrd:b:1]: Connection refused"}
    for facility, text in lines.items():
        log.log(logging.CRITICAL, "%s [%s] %s", facility, "rdkafka#producer-1", text)
    assert kept == ["Fatal error: Failed to acquire a PID"]
    assert caplog.messages == ["FAIL [rdkafka#producer-1] [thrd:b:1]: Connection refused"]
