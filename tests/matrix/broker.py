"""The broker of the matrix: a listener for each manner of coming in, and of failing to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
)
from joserfc import jwt
from joserfc.jwk import RSAKey

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from tests.support.certificates import Authority
from tests.support.processes import Process, free_port
from tests.support.sasl import PLAIN_MODULE

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.clients.admin.delegation_tokens import DelegationToken

LISTENERS: Final = {
    "LOGIN": "SASL_PLAINTEXT",
    "LOGIN_TLS": "SASL_SSL",
    "CERTIFICATE": "SSL",
    "EXPIRED": "SASL_SSL",
    "OTHER_HOST": "SASL_SSL",
}
TOPIC: Final = "matrix"
ADMIN: Final = ("admin", "of all")
PASSWORD: Final = "wonder, =land"
"""With what SCRAM and JAAS have to escape."""
SESSION_MS: Final = 5000
"""Clients log in again in the last seventh of it: on a busy machine that has to be time enough."""
SCRAM: Final = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_TOKEN_SECONDS: Final = 3600


class MatrixBroker(Process):
    """`barnabas start` with all listeners, users, and rules by which alice alone may use the topic."""

    session_seconds = SESSION_MS / 1000

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = {name: free_port() for name in LISTENERS}
        self._authority, self._other = Authority(), Authority()
        self.ca = self._authority.write(folder / "ca.pem")
        self.other_ca = self._other.write(folder / "other-ca.pem")
        self._key = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
        self._stranger = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
        self._write_certificates()
        (folder / "keys.json").write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self._properties = folder / "server.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        for mechanism in SCRAM:
            for user in ("alice", "removed"):
                self._users("--add", user, "--mechanism", mechanism, stdin=PASSWORD)
        words = [sys.executable, "-m", "barnabas.cli.main", "start", "--config", str(self._properties)]
        super().__init__("barnabas", words, folder / "barnabas.log")
        try:
            self.wait_for_output(r"^.*\bready\b.*$")
            self._prepare()
        except BaseException:
            self.kill()
            raise

    def address(self, listener: str) -> str:
        """Where a listener listens."""
        return f"127.0.0.1:{self._ports[listener]}"

    def client(self, name: str) -> Path:
        """A client's certificate."""
        return self.folder / f"{name}.crt"

    def secrets(self, mechanism: str) -> tuple[str, str]:
        """What alice proves herself with, and what does not do."""
        if mechanism != "OAUTHBEARER":
            return PASSWORD, "wrong"
        return self._token(self._key), self._token(self._stranger)

    def _token(self, key: RSAKey) -> str:
        now = int(time.time())
        claims = {"iss": "me", "aud": "kafka", "sub": "alice", "iat": now, "exp": now + _TOKEN_SECONDS}
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)

    def _write_certificates(self) -> None:
        yesterday = datetime.now(UTC) - timedelta(days=1)
        self._authority.issue("127.0.0.1", common_name="broker").write(self.folder / "broker.pem")
        self._authority.issue("127.0.0.1", not_after=yesterday).write(self.folder / "expired.pem")
        self._authority.issue("other.example").write(self.folder / "other-host.pem")
        for name, authority, not_after in (
            ("alice", self._authority, None),
            ("late", self._authority, yesterday),
            ("stranger", self._other, None),
        ):
            issued = authority.issue(f"{name}.example", common_name="alice", not_after=not_after)
            issued.write(self.folder / f"{name}.key", issued.key)
            issued.write(self.folder / f"{name}.crt", issued.certificate)
            issued.write(self.folder / f"{name}.pem", issued.pkcs8_key + issued.certificate)

    def _settings(self) -> dict[str, object]:
        prefix = "listener.name"
        keys = (self.folder / "keys.json").as_uri()
        return {
            "listeners": ",".join(f"{name}://{self.address(name)}" for name in LISTENERS),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
            "inter.broker.listener.name": "LOGIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            **_plain_users("alice", "removed"),
            "sasl.oauthbearer.jwks.endpoint.url": keys,
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys,
            "sasl.oauthbearer.expected.issuer": "me",
            "sasl.oauthbearer.expected.audience": "kafka",
            "connections.max.reauth.ms": SESSION_MS,
            "delegation.token.secret.key": "of the matrix",
            "password.encoder.secret": "of the matrix",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.folder / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            f"{prefix}.expired.ssl.keystore.location": self.folder / "expired.pem",
            f"{prefix}.other_host.ssl.keystore.location": self.folder / "other-host.pem",
            f"{prefix}.certificate.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN[0]}",
            "auto.create.topics.enable": "false",
            "log.dirs": self.folder / "data",
        }

    def _users(self, *arguments: str, stdin: str = "") -> None:
        words = [sys.executable, "-m", "barnabas.cli.main", "users", *arguments, "--config", str(self._properties)]
        subprocess.run(words, input=stdin, capture_output=True, text=True, check=True, timeout=60)

    def _prepare(self) -> None:
        """Make the topic, let alice use it, remove a user while the broker runs, and have tokens made."""
        admin = AdminClient(
            {
                "bootstrap.servers": self.address("LOGIN"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": ADMIN[0],
                "sasl.password": ADMIN[1],
            }
        )
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        rules = [_allow(ResourceType.TOPIC, TOPIC), _allow(ResourceType.GROUP, TOPIC)]
        for created in admin.create_acls(rules).values():
            created.result(30)
        deletions: list[UserScramCredentialAlteration] = [
            UserScramCredentialDeletion("removed", mechanism) for mechanism in SCRAM.values()
        ]
        admin.alter_user_scram_credentials(deletions)["removed"].result(30)
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in _plain_users("alice").items()
        ]
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(30)
        self.tokens = self._make_tokens()

    def _make_tokens(self) -> tuple[DelegationToken, DelegationToken]:
        """Two of alice, the second of which she has ended."""
        alice = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        }
        with ClusterAdmin(self.address("LOGIN"), alice) as cluster:
            right, ended = (cluster.delegation_tokens.create() for _ in range(2))
            cluster.delegation_tokens.expire(ended.hmac)
            return right, ended


def _plain_users(*names: str) -> dict[str, str]:
    """The settings by which these users, and the administrator, log in by PLAIN."""
    users = "".join(f' user_{name}="{PASSWORD}"' for name in names)
    value = f'{PLAIN_MODULE} required user_{ADMIN[0]}="{ADMIN[1]}"{users};'
    logins = [name for name, protocol in LISTENERS.items() if protocol.startswith("SASL")]
    return {f"listener.name.{name.lower()}.plain.sasl.jaas.config": value for name in logins}


def _allow(kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.ALL, AclPermissionType.ALLOW
    )
