"""Log lines: one each, and not without end."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.log_format import MOST, WINDOW, Limit, OneLine

FORM = "%(levelname)s %(name)s: %(message)s"


def record(name: str, message: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, "", 0, message, args, None)


@pytest.mark.parametrize("client_id", ["x\n2026-01-01 ERROR all is lost", "\x1b[2J", "a\rb", "a\x85b\u2028c", "\0"])
def test_what_a_client_calls_itself_stays_on_its_line(client_id: str) -> None:
    line = OneLine(FORM).format(record("barnabas.broker.handlers.topics", "created for %s", client_id))
    assert line.isprintable()
    assert len(line.splitlines()) == 1


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        failed = record("barnabas.net.connection", "failed")
        failed.exc_info = type(error), error, error.__traceback__
    lines = OneLine(FORM).format(failed).splitlines()
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: broken"


class TestLimit:
    NET = "barnabas.net.connection"

    def test_each_kind_is_written_so_often_and_then_counted(self) -> None:
        now = [0.0]
        limit = Limit(lambda: now[0])
        written = [limit.filter(record(self.NET, "closed %d", number)) for number in range(MOST + 7)]
        assert written == [True] * MOST + [False] * 7
        assert limit.filter(record(self.NET, "another kind"))
        now[0] = WINDOW
        later = record(self.NET, "closed %d", 99)
        assert limit.filter(later)
        assert later.getMessage() == "closed 99 (7 more lines like this one were left out)"

    def test_the_last_one_says_that_more_may_be_missing(self) -> None:
        limit = Limit(lambda: 0.0)
        records = [record(self.NET, "%s", "50 %") for _ in range(MOST)]
        assert all(map(limit.filter, records))
        assert records[-1].getMessage() == "50 % (more of these within 10 s are left out)"

    @pytest.mark.parametrize(
        "name",
        ["broker.coordinators.shard", "broker.security.oauth_tokens", "machines.groups.migration.conversion"],
    )
    def test_all_that_clients_can_cause_is_limited(self, name: str) -> None:
        limit = Limit(lambda: 0.0)
        assert sum(limit.filter(record(f"barnabas.{name}", "again %d", number)) for number in range(500)) == MOST

    def test_what_a_broker_says_by_itself_is_never_left_out(self) -> None:
        limit = Limit(lambda: 0.0)
        assert all(
            limit.filter(record("barnabas.storage.recovery.loading", "cut %d", number)) for number in range(5 * MOST)
        )
