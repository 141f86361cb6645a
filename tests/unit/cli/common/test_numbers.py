from __future__ import annotations

import click
import pytest

from barnabas.cli.common.values.numbers import INT32, SIGNED64, Decimal, Whole


def test_numbers_in_their_range() -> None:
    assert Whole(1, 100).convert("100", None, None) == 100
    assert SIGNED64.convert("-5", None, None) == -5
    assert Decimal(0, 60).convert("0.5", None, None) == 0.5
    assert Decimal().convert("-1", None, None) == -1.0


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (Whole(1, 100), "0", "0 is not from 1 to 100."),
        (Whole(1, 100), "1.5", "'1.5' is not a whole number."),
        (INT32, str(2**31), "2147483648 is not from 0 to 2147483647."),
        (Decimal(0, 60), "61", "61 is not from 0 to 60."),
        (Decimal(), "nan", "'nan' is not a number."),
        (Decimal(), "soon", "'soon' is not a number."),
    ],
)
def test_what_is_none_is_told(kind: Whole | Decimal, text: str, told: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(text, None, None)
    assert caught.value.message == told


def test_ranges_of_fields_go_without_saying() -> None:
    assert (INT32.range, SIGNED64.range) == ("", "")
    assert Whole(1, 100).range == "1 to 100"
