"""Which authorizers there are, and who is a super user."""

from __future__ import annotations

import pytest

from barnabas.model.config.authorizer import AUTHORIZERS, has_authorizer, super_users
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError


@pytest.mark.parametrize("name", AUTHORIZERS)
def test_kafkas_authorizers_mean_our_own(name: str) -> None:
    assert has_authorizer(BrokerConfig.load({"authorizer.class.name": name}))
    assert not has_authorizer(BrokerConfig.load({}))


def test_another_class_stops_the_start_with_words() -> None:
    with pytest.raises(ConfigError, match=r"com\.example\.Ours: Barnabas runs no Java class\. Set it to org\.apache"):
        BrokerConfig.load({"authorizer.class.name": "com.example.Ours"})


def test_super_users_are_principals_with_semicolons_between_them() -> None:
    config = BrokerConfig.load({"super.users": "User:a ; User:CN=b,C=d;"})
    assert super_users(config) == {"User:a", "User:CN=b,C=d"}
    with pytest.raises(ConfigError, match=r"super\.users has 'alice'.*User:alice"):
        BrokerConfig.load({"super.users": "alice"})
