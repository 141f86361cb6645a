"""The texts of a secured cluster: settings of brokers, and properties of clients for Java, for us, for librdkafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.common.broker_options import SECURE_PROTOCOL as PROTOCOL
from barnabas.machines.security.scram import ScramMechanism
from barnabas.model.config.properties import format_property

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from barnabas.cli.security.plan import PlannedBroker, SecurePlan

ADMIN: Final = "admin"
CLIENT: Final = "client"
BROKER: Final = "broker"
CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca.key"
MECHANISM: Final = ScramMechanism.SHA_512
JAAS_KEY: Final = f"listener.name.{PROTOCOL.lower()}.{MECHANISM.title.lower()}.sasl.jaas.config"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def jaas(user: str, password: str) -> str:
    """A login as Java's sasl.jaas.config has it; the password has no character to be escaped."""
    return f'{_MODULE} required username="{user}" password="{password}";'


class BrokerSecrets(NamedTuple):
    """What only the brokers of a cluster know."""

    password: str
    """Of the user as which they log in to each other."""
    token_key: str
    """Signs delegation tokens."""
    encoder_secret: str
    """Encrypts passwords that are set while brokers run."""


def server_settings(plan: SecurePlan, broker: PlannedBroker, secrets: BrokerSecrets) -> dict[str, str]:
    """The settings of one broker."""
    where = {}
    if plan.zookeeper is not None:
        where["zookeeper.connect"] = plan.zookeeper
    elif plan.metadata_store is not None:
        where["metadata.store"] = str(plan.metadata_store)
    return {
        **({} if broker.number is None else {"node.id": str(broker.number)}),
        "listeners": f"{PROTOCOL}://{broker.listen}",
        "security.inter.broker.protocol": PROTOCOL,
        "log.dirs": str(broker.data),
        **where,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(plan.folder / broker.keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(plan.folder / CA_FILE),
        "sasl.enabled.mechanisms": MECHANISM.title,
        "sasl.mechanism.inter.broker.protocol": MECHANISM.title,
        JAAS_KEY: jaas(BROKER, secrets.password),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN};User:{BROKER}",
        "delegation.token.secret.key": secrets.token_key,
        "password.encoder.secret": secrets.encoder_secret,
    }


def java_client(folder: Path, user: str, password: str) -> dict[str, str]:
    """The properties of a client, for Java's clients and tools and for ours."""
    return {
        "security.protocol": PROTOCOL,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / CA_FILE),
        "sasl.mechanism": MECHANISM.title,
        "sasl.jaas.config": jaas(user, password),
    }


def librdkafka_client(folder: Path, user: str, password: str) -> dict[str, str]:
    """The same under librdkafka's names."""
    return {
        "security.protocol": PROTOCOL,
        "ssl.ca.location": str(folder / CA_FILE),
        "sasl.mechanisms": MECHANISM.title,
        "sasl.username": user,
        "sasl.password": password,
    }


def librdkafka_text(comment: str, values: Mapping[str, str]) -> str:
    """A file for `kcat -F`, which takes values as they are, without escapes."""
    return "".join([f"# {comment}\n", *(f"{name}={value}\n" for name, value in values.items())])


def properties_text(comment: str, values: Mapping[str, str]) -> str:
    """A file of Java's form."""
    return "".join([f"# {comment}\n", *(f"{format_property(name, value)}\n" for name, value in values.items())])
