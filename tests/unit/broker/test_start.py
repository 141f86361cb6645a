"""What a broker loads when it starts: nothing of TLS, logins, permissions, quotas, queues and groups before they are
needed, no handler before its first request, and nothing that carries messages before there is one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

LATE = (
    "barnabas.broker.faults",
    "barnabas.broker.handlers.",
    "barnabas.broker.permissions.access",
    "barnabas.broker.security.delegation_tokens",
    "barnabas.broker.security.kerberos",
    "barnabas.broker.security.mechanisms",
    "barnabas.broker.security.metering",
    "barnabas.broker.security.oauth_tokens",
    "barnabas.broker.security.password_encoder",
    "barnabas.broker.serving.certificates",
    "barnabas.broker.serving.login",
    "barnabas.broker.shares.hosted",
    "barnabas.clients",
    "barnabas.machines.groups.coordinator",
    "barnabas.machines.security.authorizer",
    "barnabas.machines.security.delegation_tokens",
    "barnabas.machines.security.quota",
    "barnabas.machines.security.scram",
    "barnabas.machines.shares",
    "barnabas.machines.transactions.coordinator",
    "barnabas.metadata.delegation_tokens",
    "barnabas.metadata.stores.zookeeper",
    "barnabas.model.certificates",
    "barnabas.model.config.jaas",
    "barnabas.model.config.principal_rules",
    "barnabas.model.config.sasl",
    "barnabas.model.config.tls",
    "barnabas.net.contexts",
    "barnabas.net.handshakes",
    "barnabas.net.tls",
    "barnabas.pipelines",
    "barnabas.protocol.coordinator_records",
    "barnabas.storage.check.",
    "confluent_kafka",
    "cryptography",
    "difflib",
    "encodings.idna",
    "gssapi",
    "hypothesis",
    "kazoo",
    "kio.index",
    "kio.serial",
    "random",
    "rich",
    "secrets",
    "shutil",
    "typing_extensions",
    "urllib.request",
)
"""How the names of modules begin that only some brokers need, or only some requests."""

PROGRAM = """
import json, os, signal, sys
from barnabas.broker import collector
tune = collector.tune_process
def tell():
    tune()
    print(json.dumps([name for name, module in sys.modules.items() if module]), file=sys.stderr)
    os.kill(os.getpid(), signal.SIGTERM)
collector.tune_process = tell
from barnabas.cli.main import main
main()
"""
"""Runs the program, which stops as soon as the broker is ready, and tells what was loaded until then."""


def loaded_by(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.modules['hypothesis'] = None; {PROGRAM}", "start", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(next(line for line in done.stderr.splitlines() if line.startswith("["))))


def test_a_plain_broker_loads_only_what_it_needs_to_listen(tmp_path: Path) -> None:
    loaded = loaded_by("--listen", "localhost:0", "--data", str(tmp_path / "data"))
    assert "barnabas.broker.assembly" in loaded
    assert sorted(name for name in loaded if name.startswith(LATE)) == []


def test_a_group_coordinator_loads_nothing_of_share_coordinators() -> None:
    loaded = "'barnabas.machines.shares.coordinator' in sys.modules"
    program = f"import barnabas.machines.groups.coordinator, sys; print({loaded})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.slow
def test_a_broker_with_a_login_loads_what_logins_need(tmp_path: Path) -> None:
    loaded = loaded_by(
        *("--data", str(tmp_path / "data"), "--listen", "localhost:0"),
        *("--set", "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT"),
        *("--set", "sasl.enabled.mechanisms=PLAIN"),
        *("--set", "sasl.mechanism.inter.broker.protocol=PLAIN"),
        "--set",
        "listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule "
        'required username="me" password="secret" user_me="secret";',
    )
    assert {"barnabas.broker.serving.login", "barnabas.broker.security.mechanisms"} <= loaded
    assert not {"barnabas.net.tls", "barnabas.net.contexts", "gssapi"} & loaded
