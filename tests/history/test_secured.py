"""A secured cluster loses and repeats nothing while brokers fail and certificates and passwords are replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.history.checker import Fate
from tests.history.faults import Plan
from tests.history.run import over_secured_zookeeper
from tests.history.secured import PASSWORDS

if TYPE_CHECKING:
    from pathlib import Path

FAULTS: Final = ("kill leader", "kill controller", "stop leader")


@pytest.mark.timeout(600)
def test_a_secured_cluster_keeps_its_promises_while_its_secrets_change(tmp_path: Path) -> None:
    report = over_secured_zookeeper(tmp_path, Plan(seed=18, kinds=FAULTS, is_patient=True))
    print(report)
    assert report.passed, report
    assert sorted(report.faults) == sorted(FAULTS)
    assert any(send.transaction and send.fate is Fate.ACKNOWLEDGED for send in report.history.sends)
    logs = "".join(log.read_text() for log in tmp_path.glob("broker-*.log"))
    assert not [password for password in PASSWORDS if password in logs]
