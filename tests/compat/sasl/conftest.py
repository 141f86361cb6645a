"""A broker whose clients log in, as a process of its own; users are added by the command line before it runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.processes import Process, free_port
from tests.support.sasl import PLAIN_MODULE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
NAME, PASSWORD = "alice", "wonder, =land"
"""A password with what SCRAM and JAAS have to escape."""
SESSION_MS = 4500
"""librdkafka logs in again when nine tenths are over: what is left has to do on a busy machine."""


class SaslBroker(Process):
    """`barnabas start` with one listener, which asks for a login."""

    def __init__(self, folder: Path) -> None:
        self.bootstrap = f"127.0.0.1:{free_port()}"
        self.properties = folder / "server.properties"
        self.properties.write_text(
            f"listeners=SASL_PLAINTEXT://{self.bootstrap}\n"
            "security.inter.broker.protocol=SASL_PLAINTEXT\n"
            f"sasl.enabled.mechanisms={','.join(MECHANISMS)}\n"
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={PLAIN_MODULE} required "
            f'user_{NAME}="{PASSWORD}" user_admin="admin";\n'
            f"connections.max.reauth.ms={SESSION_MS}\n"
            "offsets.topic.num.partitions=3\n"
            "group.initial.rebalance.delay.ms=0\n"
            f"log.dirs={folder / 'data'}\n"
        )
        for mechanism in MECHANISMS[1:]:
            self.users("--add", NAME, "--mechanism", mechanism, stdin=PASSWORD)
        words = [sys.executable, "-m", "barnabas.cli.main", "start", "--config", str(self.properties)]
        super().__init__("barnabas", words, folder / "barnabas.log")
        try:
            self.wait_for_output(r"^.*\bready\b.*$")
        except BaseException:
            self.kill()
            raise

    def users(self, *arguments: str, stdin: str = "") -> str:
        """`barnabas users` on the metadata store itself."""
        words = [sys.executable, "-m", "barnabas.cli.main", "users", *arguments, "--config", str(self.properties)]
        return subprocess.run(words, input=stdin, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="session")
def sasl_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as broker:
        yield broker
        assert broker.alive, broker.tail()
        assert PASSWORD not in broker.log.read_text()
        assert broker.stop() == 0, broker.tail()
