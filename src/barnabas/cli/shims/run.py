"""What a shim runs: `python -m barnabas.cli.shims.run FOLDER SCRIPT WORDS...`."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import click

from barnabas import __version__
from barnabas.cli.common.failures import Failed, errors_in_one_line
from barnabas.cli.common.output import remark
from barnabas.cli.shims import servers
from barnabas.cli.shims.scripts import ABSENT
from barnabas.cli.shims.translation import names_a_broker, translate

BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP_SERVER"
KAFKA = "4.3.0"


def words_for(folder: Path, script: str, given: list[str]) -> list[str] | None:
    """The words for `barnabas`; None when the script is done already."""
    match script:
        case "kafka-server-start":
            return servers.start_broker(folder, given)
        case "zookeeper-server-start":
            return servers.start_zookeeper(folder, given)
        case "kafka-server-stop":
            servers.stop_brokers(folder)
            return None
        case "zookeeper-server-stop":
            servers.stop_zookeepers(folder)
            return None
        case "kafka-storage":
            servers.storage(given)
            return None
        case "zookeeper-shell":
            servers.zookeeper_shell(given)
    if script in ABSENT:
        raise Failed(ABSENT[script])
    if "--version" in given:
        click.echo(f"{__version__} (Barnabas, with the protocol of Apache Kafka {KAFKA})")
        return None
    if script == "kafka-configs" and (words := _words_for_a_user(given)) is not None:
        return words
    words, warnings = translate(script, given, os.environ.get(BOOTSTRAP_VARIABLE))
    for warning in warnings:
        remark(f"WARNING: {warning}")
    return words


def _words_for_a_user(given: list[str]) -> list[str] | None:
    """The words of kafka-configs about a user of SCRAM; None if they are about something else."""
    from barnabas.cli.shims.scram_users import scram_user  # here: it loads the clients, which most scripts do not need

    if (user := scram_user(given)) is None:
        return None
    if user.password is not None:
        sys.stdin = io.StringIO(f"{user.password}\n")
    address = os.environ.get(BOOTSTRAP_VARIABLE)
    return [*user.words, *(["--bootstrap-server", address] if address and not names_a_broker(user.words) else [])]


def main() -> None:
    """Do what the script would do."""
    folder, script, *given = sys.argv[1:]
    try:
        with errors_in_one_line():
            words = words_for(Path(folder), script, given)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    if words is not None:
        from barnabas.cli.main import main

        sys.argv = ["barnabas", *words]
        main()


if __name__ == "__main__":
    main()
