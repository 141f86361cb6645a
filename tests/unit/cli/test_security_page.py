"""Whoever goes from plaintext to secured as docs/security.md says ends with all that `barnabas security init` sets."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from barnabas.cli.security.plan import make_plan
from barnabas.cli.security.properties import BrokerSecrets, server_settings
from tests.cluster.securing import TAKEN_OVER

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
OF_THE_CLUSTER = {"node.id", "log.dirs", "zookeeper.connect"}
"""What a cluster that runs has already."""


def steps() -> list[str]:
    """What each step names between backticks, without values."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("## From plaintext to secured")[2].partition("`make secure-live`")[0]
    return [" ".join(re.findall(r"`([a-z.*]+)[^`]*`", step)) for step in re.split(r"^\d\. ", section, flags=re.M)]


def test_every_setting_of_a_secured_broker_is_in_one_of_the_steps(tmp_path: Path) -> None:
    plan = make_plan(data=tmp_path / "data", count=3, zookeeper="localhost:2181/x")
    settings = server_settings(plan, plan.brokers[0], BrokerSecrets("a", "b", "c")).keys() - OF_THE_CLUSTER
    named = " ".join(steps()).split()
    assert {name for name in settings if not any(fnmatchcase(name, each) for each in named)} == set()


def test_what_is_tried_takes_over_what_the_first_step_says() -> None:
    first = steps()[2].split()
    assert [each for each in TAKEN_OVER if each not in first] == []
    assert {each for each in first if each.endswith(("*", ".key", ".secret"))} == {*TAKEN_OVER}
