"""A real ZooKeeper, as Apache Kafka 3.9.1 brings it along."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

from tests.support import java
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_HEAP: Final = (
    "-Xms64m",
    "-Xmx128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.admin.enableServer=false",
)


class ZooKeeper(Process):
    """One server. Started again in the same folder it has its port and its tree; `connect` is for clients.

    It takes anybody; `users`, with their passwords, can say who they are by SASL.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
        longest_session_ms: int = 10_000,
        keystore: Path | None = None,
        truststore: Path | None = None,
    ) -> None:
        """No session is longer than `longest_session_ms`, whatever a client asks for.

        With a keystore (PEM) and a truststore it also takes clients with TLS, at `secure`, which have to show a
        certificate.
        """
        self.secure = f"{host}:{free_port()}"
        self.port = port or free_port()
        self.connect = f"{host}:{self.port}"
        self._host = host
        config = folder / "zookeeper.properties"
        config.write_text(
            f"dataDir={folder / 'zookeeper'}\n"
            f"clientPort={self.port}\n"
            f"clientPortAddress={host}\n"
            "tickTime=500\n"
            f"maxSessionTimeout={longest_session_ms}\n"
            "maxClientCnxns=0\n"
            "4lw.commands.whitelist=srvr\n"
            "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            + (self._with_tls(keystore, truststore) if keystore is not None and truststore is not None else "")
        )
        logins = folder / "zookeeper.jaas"
        known = " ".join(f'user_{name}="{password}"' for name, password in (users or {}).items())
        logins.write_text(f"Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {known}; }};\n")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        flags = [*_HEAP, *([f"-Djava.security.auth.login.config={logins}"] if users else [])]
        words = [*inside, *java.command("3.9.1", main, *flags), str(config)]
        super().__init__("zookeeper", words, folder / "zookeeper.log")
        try:
            if keystore is None:  # with TLS it has another server inside, which does not say so
                self.wait_for_output(r"binding to port")
            wait_until(self._serves, "ZooKeeper to answer srvr", 60)
        except BaseException:
            self.kill()
            raise

    def _with_tls(self, keystore: Path, truststore: Path) -> str:
        return (
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"secureClientPort={self.secure.rpartition(':')[2]}\n"
            f"ssl.keyStore.location={keystore}\n"
            f"ssl.trustStore.location={truststore}\n"
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n"
        )

    def _serves(self) -> bool:
        """A server that is bound but not ready yet may leave a client hanging, so its own status is asked first."""
        with contextlib.suppress(OSError), socket.create_connection((self._host, self.port), 0.5) as probe:
            probe.sendall(b"srvr")
            return b"Zookeeper version" in probe.recv(1000)
        return False
