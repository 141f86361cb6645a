"""A secured cluster comes to be: files first, all at once, then its users in the metadata store.

The user of the brokers is written last. So a store without it is one whose users are not complete, because this
process was killed or because the store is a new one: the users are added again, with the passwords of the files. A
store that has a user of one of these names, and no folder, is another cluster's.
"""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.common.broker_options import load_config
from barnabas.cli.common.failures import Failed
from barnabas.cli.common.values.files import read_properties
from barnabas.cli.security import properties as texts
from barnabas.cli.security.folder import write_folder
from barnabas.cli.users.places import Tree
from barnabas.machines.security.scram import LEAST_ITERATIONS
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.authority import Authority, require_cryptography

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.cli.security.plan import SecurePlan

PASSWORD_BYTES: Final = 24
USERS: Final = (texts.CLIENT, texts.ADMIN, texts.BROKER)
"""In the order in which they are added."""


class Made(NamedTuple):
    """What had to be done."""

    files: bool
    users: bool


def secure(plan: SecurePlan) -> Made:
    """Make the files and the users of a cluster, as far as they are not there; raises Failed, ConfigError, OSError."""
    is_new = not os.path.lexists(plan.folder)
    if is_new:
        require_cryptography()
        _refuse_known_users(plan)
        is_new = write_folder(plan.folder, _files(plan))
    _check_files(plan)
    return Made(is_new, _add_users(plan))


def _files(plan: SecurePlan) -> dict[str, str]:
    """All files by name, with new keys and passwords."""
    passwords = {name: secrets.token_urlsafe(PASSWORD_BYTES) for name in USERS}
    known_to_brokers = texts.BrokerSecrets(
        passwords[texts.BROKER], secrets.token_urlsafe(PASSWORD_BYTES), secrets.token_urlsafe(PASSWORD_BYTES)
    )
    authority = Authority.create("Barnabas development CA")
    found = {texts.CA_FILE: authority.own.certificate, texts.CA_KEY_FILE: authority.own.key}
    for broker in plan.brokers:
        settings = texts.server_settings(plan, broker, known_to_brokers)
        BrokerConfig.load(settings)
        found[broker.server_file] = texts.properties_text("The settings of a broker. Keep them secret.", settings)
        found[broker.keystore] = authority.issue(broker.keystore.removesuffix(".pem"), plan.hosts).keystore
    for user in (texts.ADMIN, texts.CLIENT):
        of_java = texts.java_client(plan.folder, user, passwords[user])
        of_librdkafka = texts.librdkafka_client(plan.folder, user, passwords[user])
        found[f"{user}.properties"] = texts.properties_text(
            "For --command-config of every command, and for Java's clients and tools.", of_java
        )
        found[f"{user}.librdkafka.properties"] = texts.librdkafka_text(
            "For librdkafka: kcat -F, and confluent-kafka.", of_librdkafka
        )
    return found


def _refuse_known_users(plan: SecurePlan) -> None:
    """Refuse a metadata store that has users of these names: their passwords are not known here."""
    config = BrokerConfig.load(
        texts.server_settings(plan, plan.brokers[0], texts.BrokerSecrets("none", "none", "none"))
    )
    if config.zookeeper is None and not config.metadata_store.exists():
        return
    known = set(_tree(config).users()) & set(USERS)
    if known:
        raise Failed(
            f"{config.zookeeper or config.metadata_store} has a user {' and '.join(sorted(known))} already, whose "
            f"password is not known here, and there is no {plan.folder}. Choose another --data, or delete the user "
            "with `barnabas users --delete`. Nothing was changed."
        )


def _check_files(plan: SecurePlan) -> None:
    """Refuse a folder that was not made for these brokers."""
    if not plan.folder.is_dir():
        raise Failed(f"{plan.folder} is there, and is no folder: move it away, or choose another --data.")
    found_folder = plan.folder.stat()
    if found_folder.st_uid != os.geteuid() or found_folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Failed(
            f"{plan.folder} belongs to another user, or others may write to it: its certificates and settings may be "
            "theirs. Look at what is in it, and change its owner and mode (chmod 700), or choose another --data."
        )
    if missing := [broker for broker in plan.brokers if not (plan.folder / broker.server_file).exists()]:
        found = len(list(plan.folder.glob("server*.properties")))
        raise Failed(
            f"{plan.folder} has no {missing[0].server_file}: it was made for {found} brokers, or for something else. "
            f"Start as many as it was made for, or choose another --data. Nothing was changed."
        )


def _add_users(plan: SecurePlan) -> bool:
    """Add the users, unless they were added before."""
    server = read_properties(plan.first_server_file)
    # A broker alone may have been moved with its folder; several have their store where the file says.
    tree = _tree(load_config(plan.first_server_file, data=None if plan.is_several else plan.brokers[0].data))
    if texts.BROKER in tree.users():
        return False
    for user in USERS:
        tree.add(user, texts.MECHANISM, _password(plan.folder, user, server), LEAST_ITERATIONS)
    return True


def _password(folder: Path, user: str, server: dict[str, str]) -> str:
    from barnabas.clients.java_properties import from_java

    if user == texts.BROKER:
        login = {"sasl.jaas.config": server.get(texts.JAAS_KEY, "")}
    else:
        login = read_properties(folder / f"{user}.properties")
    return str(from_java(login)["sasl.password"])


def _tree(config: BrokerConfig) -> Tree:
    from barnabas.broker.assembly import open_store

    return Tree(lambda: open_store(config))
