from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.output import print_table

if TYPE_CHECKING:
    import pytest

COLUMNS = ("Topic", "Partition", "Log end", "Consumer")
ROWS = [("orders", 0, 1234567, "-"), ("a-topic-with-a-long-name", 11, 0, "consumer-1")]


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(COLUMNS, ROWS)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_text_is_folded_where_the_terminal_is_narrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = shown(capsys, monkeypatch, 50)
    assert max(map(len, lines)) <= 50
    assert any("1234567" in line for line in lines)
    assert not any("a-topic-with-a-long-name" in line for line in lines)


def test_rows_become_lines_where_it_is_too_narrow_for_the_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert shown(capsys, monkeypatch, 40) == [
        "",
        "Topic      orders",
        "Partition  0",
        "Log end    1234567",
        "Consumer   -",
        "",
        "Topic      a-topic-with-a-long-name",
        "Partition  11",
        "Log end    0",
        "Consumer   consumer-1",
        "",
    ]
