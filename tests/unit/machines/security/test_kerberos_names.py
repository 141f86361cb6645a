"""Names of Kerberos become those of users by Kafka's rules."""

from __future__ import annotations

import pytest

from barnabas.machines.security.kerberos_names import KerberosNames, NoLocalName
from barnabas.model.errors import ConfigError

REALM = "REALM.COM"


@pytest.mark.parametrize(
    ("rules", "name", "local"),
    [
        ("DEFAULT", "alice@REALM.COM", "alice"),
        ("DEFAULT", "alice/host@REALM.COM", "alice"),
        ("RULE:[1:$1],RULE:[2:$1]", "alice@OTHER.COM", "alice"),
        ("RULE:[1:$1],RULE:[2:$1]", "service/host@OTHER.COM", "service"),
        (r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g,DEFAULT", "App.service-name@REALM.COM", "service-name"),
        (r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g,DEFAULT", "App.service-name/example.com@REALM.COM", "service-name"),
        ("RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "alice@OTHER.COM", "alice"),
        ("RULE:[1:$1]/L", "ALICE@OTHER.COM", "alice"),
        ("RULE:[1:$1]s/l/r/U", "allice@OTHER.COM", "ARLICE"),
        ("RULE:[1:$1]s/l/r/g/U", "allice@OTHER.COM", "ARRICE"),
        ("RULE:[2:$1;$2](^.*;admin$)s/;admin$//,DEFAULT", "bob/admin@REALM.COM", "bob"),
    ],
)
def test_the_first_rule_that_applies_names_the_user(rules: str, name: str, local: str) -> None:
    assert KerberosNames(rules.split(","), REALM).local(name) == local


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "alice@OTHER.COM"),
        ("DEFAULT", "alice"),
        ("DEFAULT", "a/b/c@REALM.COM"),
        ("DEFAULT", "@REALM.COM"),
        ("RULE:[2:$1]", "alice@REALM.COM"),
        ("RULE:[1:$1](b.*)", "alice@REALM.COM"),
        ("RULE:[1:$1@$0]", "alice@REALM.COM"),
        ("RULE:[2:$1/$2]", "alice/host@REALM.COM"),
    ],
)
def test_a_name_without_a_rule_or_one_that_is_not_simple_is_none(rules: str, name: str) -> None:
    with pytest.raises(NoLocalName):
        KerberosNames(rules.split(","), REALM).local(name)


@pytest.mark.parametrize("rule", ["", "default", "RULE:[x:$1]", "RULE:[1:$1", "RULE:[1:$1](*)", "DEFAULT/L"])
def test_what_is_no_rule_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"principal\.to\.local\.rules"):
        KerberosNames([rule], REALM)
