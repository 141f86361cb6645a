"""A cluster over ZooKeeper in which everything is encrypted and everybody proves who he is.

Brokers talk TLS to each other, to ZooKeeper and to clients, and log in to each other; clients log in by SCRAM and may
do what ACLs let them. What is in ZooKeeper is for the brokers' login alone. While a run goes on, certificates of
brokers and the password of the clients are replaced.
"""

from __future__ import annotations

import ssl
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.certificates import Authority
from tests.support.clusters import Cluster
from tests.support.sasl import PLAIN_MODULE, log_in
from tests.support.waiting import wait_until
from tests.support.wire import Connection
from tests.support.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.history.workload import Workload

USER: Final = "client"
MECHANISM: Final = "SCRAM-SHA-512"
PASSWORDS: Final = ("the first password", "the second password", "the third password")
PAUSE: Final = 2.5
"""Seconds between two changes: brokers look at their files every five."""
SETTINGS: Final = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
    "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN_MODULE} required "
    'username="broker" password="of brokers" user_broker="of brokers" user_admin="of all";',
    "connections.max.reauth.ms": "4000",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "listener.name.plaintext.ssl.client.auth": "required",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker;User:admin",
    "zookeeper.ssl.client.enable": "true",
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
    "zookeeper.set.acl": "true",
    "zookeeper.auth.username": "brokers",
    "zookeeper.auth.password": "of brokers",
}


def passwords(seconds: float | None) -> Sequence[str]:
    """Those of a run of so many seconds, one after the other; the first is there from the beginning."""
    more = 0 if seconds is None else int(seconds / (3 * PAUSE)) - len(PASSWORDS)
    return (*PASSWORDS, *(f"another password, number {number}" for number in range(more)))


class SecuredCluster(Cluster):
    """Three brokers; `login` is the administrator's, `client_login` that of clients."""

    def __init__(self, folder: Path, authority: Authority, zookeeper: str, settings: Mapping[str, str]) -> None:
        self._authority = authority
        self._keystore = folder / "broker.pem"
        self._newest = ""
        ca = authority.write(folder / "ca.pem")
        self.renew_certificate()
        own = authority.issue("client.example", common_name="client").write(folder / "client.pem")
        self._tls = ssl.create_default_context(cafile=ca)
        self._tls.load_cert_chain(own)
        encrypted = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca),
            "ssl.certificate.location": str(own),
            "ssl.key.location": str(own),
        }
        self.login = {**encrypted, "sasl.mechanism": "PLAIN", "sasl.username": "admin", "sasl.password": "of all"}
        self.client_login = {
            **encrypted,
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORDS[0],
        }
        files = {
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.location": str(ca),
            "zookeeper.ssl.keystore.location": str(self._keystore),
            "zookeeper.ssl.truststore.location": str(ca),
        }
        super().__init__(folder, settings={**settings, **SETTINGS, **files}, zookeeper=zookeeper)
        self.set_password(PASSWORDS[0])
        self._allow()

    def connection(self, broker_id: int) -> Connection:
        """A connection to one broker, of the administrator."""
        wire = self._encrypted(broker_id)
        assert log_in(wire, "PLAIN", "admin", "of all").error_code.value == 0
        return wire

    def _encrypted(self, broker_id: int) -> Connection:
        connection = Connection(self.address(broker_id))
        connection.socket = self._tls.wrap_socket(connection.socket, server_hostname="127.0.0.1")
        return connection

    def renew_certificate(self) -> None:
        """Give all brokers another certificate, by a rename."""
        issued = self._authority.issue("127.0.0.1", common_name="broker")
        self._newest = issued.certificate
        issued.write(self._keystore.with_suffix(".new")).rename(self._keystore)

    def set_password(self, password: str) -> None:
        """Change the password of clients, while brokers may be away."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(USER, info, password.encode())

        def is_set() -> bool:
            try:
                self.admin.alter_user_scram_credentials([wanted], request_timeout=5)[USER].result(30)
            except KafkaException:
                return False
            return True

        wait_until(is_set, "a controller to set the password")

    def shows_newest_certificate(self, broker_id: int) -> bool:
        """Whether a broker shows the certificate that was issued last to those who connect now."""
        with self._encrypted(broker_id) as wire:
            assert isinstance(wire.socket, ssl.SSLSocket)
            return wire.socket.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(self._newest)

    def takes_password(self, broker_id: int, password: str) -> bool:
        """Whether clients can log in to a broker with a password."""
        with self._encrypted(broker_id) as wire:
            return bool(log_in(wire, MECHANISM, USER, password).error_code.value == 0)

    def _allow(self) -> None:
        kinds = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
        rules = [
            AclBinding(kind, "*", ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)
            for kind in kinds
            for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
        ]
        patient = AdminClient({"bootstrap.servers": self.bootstrap, **self.login})
        for created in patient.create_acls(rules).values():
            created.result(60)


@contextmanager
def secured_cluster(folder: Path, settings: Mapping[str, str]) -> Iterator[SecuredCluster]:
    """The cluster, and its ZooKeeper with TLS."""
    authority = Authority()
    issued = authority.issue("127.0.0.1")
    keystore = issued.write(folder / "zookeeper.pem", issued.pkcs8_key + issued.certificate)
    with (
        ZooKeeper(folder, keystore=keystore, truststore=authority.write(folder / "zookeeper-ca.pem")) as zookeeper,
        SecuredCluster(folder, authority, zookeeper.secure, settings) as cluster,
    ):
        yield cluster


def renew_all(cluster: SecuredCluster, chosen: Sequence[str], workload: Workload) -> None:
    """Replace certificate and password by turns, until every password was used."""
    for password in chosen[1:]:
        cluster.renew_certificate()
        time.sleep(PAUSE)
        cluster.set_password(password)
        workload.change_password(USER, password)
        time.sleep(PAUSE)


def check_renewed(cluster: SecuredCluster, chosen: Sequence[str]) -> None:
    """Every broker shows the last certificate, takes the last password, and none of those before."""
    for broker_id in cluster.nodes:
        is_shown = partial(cluster.shows_newest_certificate, broker_id)
        wait_until(is_shown, f"broker {broker_id} to show the last certificate", every=0.2)
        taken = [password for password in chosen if cluster.takes_password(broker_id, password)]
        assert taken == [chosen[-1]], f"broker {broker_id} takes {taken}"
