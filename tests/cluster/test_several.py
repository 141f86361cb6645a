"""`barnabas start --brokers N`: a cluster of processes on one host."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_three_brokers_start_together_and_stop_together(tmp_path: Path) -> None:
    port = free_port(3)
    words = [sys.executable, "-m", "barnabas.cli.main", "start", "--brokers", "3"]
    words += ["--listen", f"127.0.0.1:{port}", "--data", str(tmp_path / "data")]
    with Process("three brokers", words, tmp_path / "brokers.log") as brokers:
        wait_until(lambda: len(re.findall(r"is ready on", brokers.output())) == 3, "three brokers to be ready")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        wait_until(lambda: len(admin.list_topics(timeout=30).brokers) == 3, "three brokers to be known")
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)

        def leaders() -> set[int]:
            return {each.leader for each in admin.list_topics("t", timeout=30).topics["t"].partitions.values()}

        wait_until(lambda: leaders() == {0, 1, 2}, "each broker to lead a partition")
        assert brokers.stop() == 0
    assert {folder.name for folder in (tmp_path / "data").iterdir()} >= {"0", "1", "2", "metadata"}
