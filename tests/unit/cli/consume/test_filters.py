from __future__ import annotations

import click
import pytest

from barnabas.cli.consume.filters import Filter

FIELDS = {
    "key": "eu-7",
    "value": {"total": 150, "user": {"name": "Ann"}, "tags": ["a", "b"]},
    "headers": {"trace": "a1"},
    "topic": "orders",
    "partition": 2,
    "offset": 10,
    "timestamp": 1000,
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("value.total > 100", True),
        ("value['total'] > 200", False),
        ("value.user.name == 'Ann' and partition in (1, 2)", True),
        ("value.missing.deeper == None", True),
        ("value.missing > 5", False),
        ("'b' in value.tags", True),
        ("value.tags[1] == 'b'", True),
        ("value.tags[7] == None", True),
        ("startswith(key, 'eu-') or endswith(key, 'x')", True),
        ("matches('^us-', key)", False),
        ("lower(value.user.name) == 'ann'", True),
        ("headers.trace == 'a1' and not headers.other", True),
        ("offset % 5 == 0", True),
        ("len(value.tags) == 2", True),
        ("int(key) > 5", False),
        ("timestamp >= 1000 and topic != 'x'", True),
        ("offset / 0 == 1", False),
    ],
)
def test_expressions_choose_records(expression: str, expected: bool) -> None:
    assert Filter(expression)(FIELDS) is expected


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("value >", "invalid syntax"),
        ("user == 'x'", "there is no 'user'"),
        ("__import__('os')", "there is no '__import__'|the functions are"),
        ("key.upper()", "the functions are"),
        ("[x for x in value]", "not allowed"),
        ("(lambda: 1)()", "not allowed|the functions are"),
        ("value := 1", "invalid syntax"),
    ],
)
def test_what_is_not_understood_is_refused(expression: str, text: str) -> None:
    with pytest.raises(click.UsageError, match=text):
        Filter(expression)


def test_attributes_are_only_looked_up_in_data() -> None:
    assert Filter("key.__class__ == None")(FIELDS) is True


def test_what_cannot_be_worked_out_is_remembered() -> None:
    chosen = Filter("key > 5")
    assert chosen.misfit is None
    assert chosen(FIELDS) is False
    assert chosen.misfit == "'>' not supported between instances of 'str' and 'int'"
