"""What to type once a secured cluster runs: a topic, a rule, a record. Every line can be pasted."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.common.connection import DEFAULT_BOOTSTRAP_SERVER
from barnabas.cli.security.properties import ADMIN, CLIENT

if TYPE_CHECKING:
    from barnabas.cli.security.plan import SecurePlan

TOPIC: Final = "greetings"


def next_steps(folder: Path, bootstrap_servers: str) -> str:
    """Command lines for a first look.

    Where port 0 is to take a free one, nobody knows it before the broker is ready.
    """
    found = (each.removeprefix("*") for each in bootstrap_servers.split(","))
    bootstrap_servers = ",".join(f"localhost{each}" if each.startswith(":") else each for each in found)
    is_chosen_later = bootstrap_servers.endswith(":0")
    if is_chosen_later:
        bootstrap_servers = f"{bootstrap_servers.rpartition(',')[2].removesuffix('0')}PORT"
    server = "" if bootstrap_servers == DEFAULT_BOOTSTRAP_SERVER else f" --bootstrap-server {bootstrap_servers}"
    place = path_from_here(folder)
    files = (shlex.quote(str(place / f"{user}.properties")) for user in (ADMIN, CLIENT))
    admin, client = (f"{server} --command-config {file}" for file in files)
    may = f"--allow-principal User:{CLIENT} --producer --consumer --topic {TOPIC} --group '*'"
    port = " PORT is what the broker says when it is ready." if is_chosen_later else ""
    return "\n".join(
        [
            f"Clients log in by TLS and SCRAM-SHA-512, and may do what a rule allows.{port} Type next, in another "
            "terminal:",
            f"  barnabas topics --create --topic {TOPIC}{admin}",
            f"  barnabas acls --add {may}{admin}",
            f"  echo hello | barnabas produce --topic {TOPIC}{client}",
            f"  barnabas consume --topic {TOPIC} --from-beginning --max-messages 1{client}",
            f"confluent-kafka, and kcat with librdkafka 2.6.1 or newer: {place / f'{CLIENT}.librdkafka.properties'}. "
            "More users: barnabas users --help",
        ]
    )


def start_lines(plan: SecurePlan) -> list[str]:
    """What starts the brokers, each in a terminal of its own."""
    files = (plan.folder / broker.server_file for broker in plan.brokers)
    return [f"  barnabas start --config {shlex.quote(str(path_from_here(file)))}" for file in files]


def path_from_here(path: Path) -> Path:
    """A path as it is called from the current folder, if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
