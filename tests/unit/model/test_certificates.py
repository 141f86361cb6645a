"""What certificates say, and the names of principals that come of it."""

from __future__ import annotations

import contextlib
import ssl
from datetime import UTC, datetime

import pytest

from barnabas.model.certificates import InvalidCertificate, java_name, read_certificate
from barnabas.model.config.principal_rules import NoMatchingRule, PrincipalRules
from barnabas.model.errors import ConfigError
from tests.support.certificates import Authority

SUBJECT = "CN=Ann+UID=a1,OU=Service Users,O=Acme\\, Inc.,C=DE"


def test_a_certificate_says_for_whom_it_is_and_until_when() -> None:
    until = datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)
    for not_after in (until, datetime(2051, 1, 2, tzinfo=UTC)):
        issued = Authority().issue("a.example", "127.0.0.1", common_name="broker", not_after=not_after)
        found = read_certificate(ssl.PEM_cert_to_DER_cert(issued.certificate))
        assert found.subject == "CN=broker,OU=tests,O=Barnabas"
        assert found.not_after == not_after
        assert found.not_before < datetime.now(UTC)
        assert found.alternative_names == {b"\x82\x09a.example", b"\x87\x04\x7f\0\0\1"}


@pytest.mark.parametrize(
    "damage", [b"", b"\x30", b"\x30\x82\xff\xff", b"\x30\0", b"\x04\x02ab", b"\x30\x03\x30\x01\x30"]
)
def test_what_is_no_certificate_is_refused(damage: bytes) -> None:
    with pytest.raises(InvalidCertificate):
        read_certificate(damage)


def test_every_damaged_certificate_is_read_or_refused() -> None:
    der = ssl.PEM_cert_to_DER_cert(Authority().issue("a.example").certificate)
    for place in range(len(der)):
        for byte in (0, 0x30, 0x80, 0xFF):
            damaged = der[:place] + bytes([byte]) + der[place + 1 :]
            with contextlib.suppress(InvalidCertificate):
                read_certificate(damaged)


def test_names_are_escaped_as_java_does() -> None:
    def name(kind: int, value: bytes) -> str:
        attribute = b"\x06\x03\x55\x04\x03" + bytes([kind, len(value)]) + value
        sequence = bytes([0x30, len(attribute)]) + attribute
        whole = bytes([0x31, len(sequence)]) + sequence
        return java_name(bytes([0x30, len(whole)]) + whole)

    assert name(0x0C, b' a#,+"\\<>;= ') == 'CN=\\ a\\#\\,\\+\\"\\\\\\<\\>\\;\\=\\ '
    assert name(0x13, b"a\0b") == "CN=a\\00b"
    assert name(0x0C, "ä中".encode()) == "CN=ä中"
    assert name(0x04, b"ab") == "CN=#04026162"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?)\\+.*$/$1/", "Ann"),
        ("RULE:^CN=(.*?)\\+.*$/$1/L", "ann"),
        ("RULE:^CN=(.*?)\\+UID=(.*?),.*$/$2@$1/U", "A1@ANN"),
        ("RULE:^CN=nobody$/x/, DEFAULT", SUBJECT),
        ("RULE:^.*OU=(.*?),O=.*$/$1 \\$1 $9/", "Service Users $1 $9"),
        ("RULE:^CN=(.).*$/$10/", "A0"),
        (" RULE:^CN=nobody$/x/ ,, RULE:^CN=Ann.*$/a,b\\/c/ ", "a,b/c"),
        ("RULE:^CN=(Ann).*$/${1}/", "${1}"),
    ],
)
def test_rules_make_names_of_subjects(rules: str, principal: str) -> None:
    assert PrincipalRules(rules).name_of(SUBJECT) == principal


def test_a_subject_that_no_rule_is_about_has_no_name() -> None:
    with pytest.raises(NoMatchingRule, match="applies to CN=b"):
        PrincipalRules("RULE:^CN=a$/a/").name_of("CN=b")


@pytest.mark.parametrize("rules", ["default", "RULE:a", "RULE:a/b", "RULE:a/b/X", "DEFAULT RULE:a/b/", "RULE:(/b/"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalRules(rules)


def test_a_hostile_subject_costs_no_more_than_others() -> None:
    rules = PrincipalRules("RULE:^CN=(a+)+$/x/, DEFAULT")
    subject = "CN=" + "a" * 5000 + "b"
    assert rules.name_of(subject) == subject
