"""The value of sasl.jaas.config, read as Kafka reads it."""

from __future__ import annotations

import pytest

from barnabas.model.config.jaas import parse_jaas
from barnabas.model.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {}),
        ('username="admin" password="s e;c=r/et"', {"username": "admin", "password": "s e;c=r/et"}),
        ("username = admin", {"username": "admin"}),
        ("username='it\\'s' // a comment\n other=1", {"username": "it's", "other": "1"}),
        ("/* two\nlines */ a=b", {"a": "b"}),
        (r'a="tab\tquote\"octal\101"', {"a": 'tab\tquote"octalA'}),
        ('user_alice="über" user_bob=pässword', {"user_alice": "über", "user_bob": "pässword"}),
    ],
)
def test_options_are_read(options: str, expected: dict[str, str]) -> None:
    (module,) = parse_jaas("k", f"{PLAIN} required {options} ;")
    assert module.name == PLAIN
    assert module.options == expected


def test_there_may_be_several_modules() -> None:
    assert [module.name for module in parse_jaas("k", "a required x=y; b OPTIONAL;")] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "a",
        "a required",
        "a maybe x=secret;",
        "a required x;",
        "a required x=;",
        "a required x=secret",
        "= b c;",
        "secret",
        "a required x=first;secret y=z;",
        'a required x=y; "secret" required',
    ],
)
def test_what_cannot_be_read_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^the\.key ") as error:
        parse_jaas("the.key", text)
    assert "secret" not in str(error.value)


def test_a_module_does_not_show_its_options() -> None:
    assert "secret" not in repr(parse_jaas("k", "a required password=secret;"))
