"""A secured broker for tests: TLS, logins and permissions as in production, with users and rules on demand.

    def test_orders(kafka_secure):
        alice = kafka_secure.user("alice")
        kafka_secure.allow(alice, "Write", topic="orders")
        producer = confluent_kafka.Producer(alice.librdkafka)

The broker is `barnabas start --secure`: one listener for logins by SCRAM-SHA-512 over TLS, and one for clients that
show a certificate. What the fixture itself does, it does as the administrator.
"""

from __future__ import annotations

import secrets
import ssl
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from barnabas.testing.broker import Broker, find_free_port
from barnabas.testing.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.machines.security.acls import Acl, AclFilter, Permission
    from barnabas.net.authority import Authority

MECHANISM: Final = "SCRAM-SHA-512"
CERTIFICATES: Final = "CERTIFICATES"
"""The name of the listener for clients that show a certificate."""
LOGINS: Final = "SASL_SSL"
SETTINGS: Final[Mapping[str, object]] = {
    "listener.security.protocol.map": f"{LOGINS}:SASL_SSL,{CERTIFICATES}:SSL",
    f"listener.name.{CERTIFICATES.lower()}.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/,DEFAULT",
    "connection.failed.authentication.delay.ms": 0,
}


class SecureBroker(Broker):
    """A broker whose clients log in; `client_config` is the administrator's."""

    def __init__(self, config: Mapping[str, object] | None = None, **options: Any) -> None:
        super().__init__({**SETTINGS, **(config or {})}, **options)
        self.certificate_port = 0
        """Where clients with certificates come in; 0 until it was started."""

    @property
    def folder(self) -> Path:
        """Where `barnabas start --secure` has put its files."""
        return self.data.with_name(f"{self.data.name}.security")

    @property
    def ca(self) -> Path:
        """The certificate of the CA."""
        return self.folder / "ca.pem"

    def start(self) -> None:
        """Start it; the administrator's properties are known then."""
        from barnabas.model.config.properties import parse_properties

        super().start()
        file = self.folder / "admin.librdkafka.properties"
        self.client_config.update(parse_properties(file.read_text(encoding="utf-8")))

    def arguments(self, port: int) -> list[str]:
        """What `barnabas start` is given."""
        self.certificate_port = self.certificate_port or find_free_port()
        listeners = f"{LOGINS}://127.0.0.1:{port},{CERTIFICATES}://127.0.0.1:{self.certificate_port}"
        return ["--secure", "--set", f"listeners={listeners}"]


class _Login(ABC):
    """Somebody who gets in, and the properties by which a client does so as he."""

    __slots__ = ()
    name: str

    @property
    def principal(self) -> str:
        """As rules name it."""
        return f"User:{self.name}"

    @property
    @abstractmethod
    def java(self) -> dict[str, str]:
        """For Java's clients, and as a file for the tools of Kafka and Barnabas (`write_properties`)."""

    def write_properties(self, path: Path) -> Path:
        """A file for `--command-config` of Kafka's tools and of ours."""
        from barnabas.model.config.properties import format_property

        path.touch(mode=0o600)
        path.write_text("".join(f"{format_property(*each)}\n" for each in self.java.items()), encoding="utf-8")
        return path


@dataclass(frozen=True, slots=True)
class SecureUser(_Login):
    """A user, and the properties by which clients of all kinds log in as it."""

    name: str
    password: str = field(repr=False)
    bootstrap_servers: str
    ca: Path

    @property
    def librdkafka(self) -> dict[str, Any]:
        """For confluent-kafka, kcat, and the clients of Barnabas."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.name,
            "sasl.password": self.password,
        }

    @property
    def kafka_python(self) -> dict[str, Any]:
        """Keywords of kafka-python's clients."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.ca),
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": self.name,
            "sasl_plain_password": self.password,
        }

    @property
    def aiokafka(self) -> dict[str, Any]:
        """Keywords of aiokafka's clients."""
        rest = {name: value for name, value in self.kafka_python.items() if name != "ssl_cafile"}
        return {**rest, "ssl_context": ssl.create_default_context(cafile=str(self.ca))}

    @property
    def java(self) -> dict[str, str]:
        """For Java's clients, and as a file for the tools of Kafka and Barnabas (`write_properties`)."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        password = self.password.replace("\\", "\\\\").replace('"', '\\"')
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{module} required username="{self.name}" password="{password}";',
        }


@dataclass(frozen=True, slots=True)
class SecureCertificate(_Login):
    """A certificate of a client: its subject is CN=name, its principal User:name."""

    name: str
    bootstrap_servers: str
    ca: Path
    keystore: Path
    """Key and certificate in one file, as PEM."""

    @property
    def librdkafka(self) -> dict[str, Any]:
        """For confluent-kafka, kcat, and the clients of Barnabas."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca),
            "ssl.certificate.location": str(self.keystore),
            "ssl.key.location": str(self.keystore),
        }

    @property
    def kafka_python(self) -> dict[str, Any]:
        """Keywords of kafka-python's clients."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.ca),
            "ssl_certfile": str(self.keystore),
            "ssl_keyfile": str(self.keystore),
        }

    @property
    def aiokafka(self) -> dict[str, Any]:
        """Keywords of aiokafka's clients."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.keystore)
        return {"bootstrap_servers": self.bootstrap_servers, "security_protocol": "SSL", "ssl_context": context}

    @property
    def java(self) -> dict[str, str]:
        """For Java's clients."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
        }


class KafkaSecure(Kafka):
    """A secured broker as one test uses it. Its users and rules end with the test.

    Clients of `producer()`, `consumer()` and so on are the administrator's, unless they get `config=alice.librdkafka`.
    """

    broker: SecureBroker

    def __init__(self, broker: SecureBroker, test: str = "test") -> None:
        super().__init__(broker, test)
        self._users: list[str] = []
        self._rules: list[Acl] = []

    @property
    def ca(self) -> Path:
        """The certificate of the CA, which clients have to trust."""
        return self.broker.ca

    def user(self, name: str, password: str | None = None) -> SecureUser:
        """A user that can log in; with another password, if it is there. It may do nothing yet."""
        from barnabas.machines.security.scram import BY_TITLE, LEAST_ITERATIONS

        chosen = password or secrets.token_urlsafe(12)
        self._cluster.users.add(name, BY_TITLE[MECHANISM], chosen, LEAST_ITERATIONS)
        self._users.append(name)
        return SecureUser(name, chosen, self.bootstrap_servers, self.ca)

    def remove_user(self, user: SecureUser | str) -> None:
        """Let a user log in no more."""
        from barnabas.machines.security.scram import BY_TITLE

        name = user if isinstance(user, str) else user.name
        self._cluster.users.delete(name, [BY_TITLE[MECHANISM]])
        self._users = [each for each in self._users if each != name]

    def certificate(self, name: str, *, expired: bool = False) -> SecureCertificate:
        """A certificate of a client, by which it comes in without a password; or one that is over."""
        issued = self._authority.issue(name, now=datetime.now(UTC) - timedelta(days=9) if expired else None, days=8)
        path = self.broker.folder / f"client-{secrets.token_hex(4)}.pem"
        path.touch(mode=0o600)
        path.write_text(issued.keystore, encoding="utf-8")
        return SecureCertificate(name, f"127.0.0.1:{self.broker.certificate_port}", self.ca, path)

    def untrusted_ca(self) -> Path:
        """The certificate of a CA that has signed nothing here: a client that trusts it alone must not come in."""
        from barnabas.net.authority import Authority

        path = self.broker.folder / f"stranger-{secrets.token_hex(4)}.pem"
        path.write_text(Authority.create("a stranger").own.certificate, encoding="utf-8")
        return path

    def allow(self, who: SecureUser | SecureCertificate | str, *operations: str, **resources: Any) -> None:
        """Let somebody do something: `allow(alice, "Read", topic="orders", group="billing")`.

        `resources` are topic, group, transactional_id, each a name, `cluster=True`, `user` for tokens of others; with
        `prefixed=True` all names that begin so. `*` stands for all. The rule is in force when this returns.
        """
        from barnabas.machines.security.acls import Permission

        self._add_rules(who, operations, Permission.ALLOW, resources)

    def deny(self, who: SecureUser | SecureCertificate | str, *operations: str, **resources: Any) -> None:
        """Forbid somebody something, whatever else allows it."""
        from barnabas.machines.security.acls import Permission

        self._add_rules(who, operations, Permission.DENY, resources)

    def _add_rules(
        self,
        who: SecureUser | SecureCertificate | str,
        operations: tuple[str, ...],
        permission: Permission,
        resources: dict[str, Any],
    ) -> None:
        from barnabas.machines.security.acls import OPERATIONS, WILDCARD, Acl, Entry

        principal = who if isinstance(who, str) else who.principal
        principal = principal if ":" in principal else f"User:{principal}"
        known = {name.lower(): operation for name, operation in OPERATIONS.items()}
        chosen = [known[name.lower()] for name in operations or ("All",)]
        rules = [
            Acl(pattern, Entry(principal, WILDCARD, operation, permission))
            for pattern in _patterns(resources)
            for operation in chosen
        ]
        self._cluster.acls.create(rules)
        self._rules += rules

    @cached_property
    def _cluster(self) -> ClusterAdmin:
        from barnabas.clients.admin.cluster_admin import ClusterAdmin

        properties = {name: str(value) for name, value in self.client_config.items()}
        return self._opened.enter_context(ClusterAdmin(self.bootstrap_servers, properties))

    @cached_property
    def _authority(self) -> Authority:
        from barnabas.net.authority import Authority

        key = (self.broker.folder / "ca.key").read_text(encoding="utf-8")
        return Authority.load(key, self.ca.read_text(encoding="utf-8"))

    def close(self) -> None:
        """Remove the test's rules and users, and what else it has made."""
        if self.broker.running:
            if self._rules:
                self._cluster.acls.delete([_exactly(*acl.pattern, *acl.entry) for acl in self._rules])
            for name in dict.fromkeys(self._users):
                self.remove_user(name)
        super().close()


def _exactly(*parts: Any) -> AclFilter:
    """The filter that means one rule alone."""
    from barnabas.machines.security.acls import AclFilter

    return AclFilter(*parts)


def _patterns(resources: dict[str, Any]) -> list[Any]:
    from barnabas.machines.security.acls import CLUSTER_NAME, AclResourceType, PatternType, ResourcePattern

    named = dict(resources)
    prefixed = PatternType.PREFIXED if named.pop("prefixed", False) else PatternType.LITERAL
    found = []
    if named.pop("cluster", False):
        found.append(ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
    for kind, name in named.items():
        found.append(ResourcePattern(AclResourceType[kind.upper()], name, prefixed))
    if not found:
        raise TypeError(
            "a rule needs something that it is for: topic=, group=, transactional_id=, user= or cluster=True"
        )
    return found
