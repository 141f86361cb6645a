"""`python -m bench.clients.logins PORT SECONDS`: clients that log in by SCRAM again and again, and nothing else.

One thread, one epoll. What takes time on purpose, salting the password, is done once: the salt is the same each time.
The signature of the broker is checked, so a login counts only if both sides have proved themselves. The process prints
how many logins there were in a second.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import select
import sys
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from bench.clients import wire
from bench.clients.neighbours import Tally

if TYPE_CHECKING:
    import socket

MECHANISM: Final = "SCRAM-SHA-512"
MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
CONNECTIONS: Final = 10
"""Clients that are about to log in at the same time."""
_USER: Final = "bench"
_PASSWORD: Final = "bench-secret"
_ITERATIONS: Final = 4096
_NONCE_BYTES: Final = 18
_SILENCE: Final = 30.0


def add_user(port: int) -> None:
    """Let the user log in. It is told on a listener without logins, and changes nothing where the user is known."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    salt = b"the same salt at each start"
    user = UserScramCredentialUpsertion(_USER, info, _PASSWORD.encode(), salt)
    for done in admin.alter_user_scram_credentials([user]).values():
        done.result(60)


class Keys(NamedTuple):
    """What a password and a salt become."""

    client: bytes
    stored: bytes
    server: bytes


@cache
def keys(salt: bytes, iterations: int) -> Keys:
    """The keys of the one user."""
    salted = hashlib.pbkdf2_hmac("sha512", _PASSWORD.encode(), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha512")
    return Keys(client, hashlib.sha512(client).digest(), hmac.digest(salted, b"Server Key", "sha512"))


class Login:
    """One login, step by step."""

    def __init__(self, port: int) -> None:
        self.socket = wire.connect(port)
        self._nonce = base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        self._first = f"n={_USER},r={self._nonce}"
        self._signature = b""
        self._step = 0
        self.socket.sendall(_HANDSHAKE)

    def go_on(self) -> bool:
        """Take an answer and go on; whether that was the last."""
        answer = wire.receive(self.socket)
        self._step += 1
        if self._step == 1:
            self._send(f"n,,{self._first}".encode())
            return False
        taken = wire.parse(SaslAuthenticateResponse, answer)
        if taken.error_code:
            raise RuntimeError(f"a login was refused: {taken.error_message}")
        if self._step == 2:
            self._send(self._prove(taken.auth_bytes.decode()))
            return False
        if base64.b64decode(taken.auth_bytes.removeprefix(b"v=")) != self._signature:
            raise RuntimeError("the broker has not proved that it knows the user")
        return True

    def _prove(self, challenge: str) -> bytes:
        """The last message, by which the client proves that it knows the password."""
        fields = dict(field.split("=", 1) for field in challenge.split(","))
        known = keys(base64.b64decode(fields["s"]), int(fields["i"]))
        without_proof = f"c=biws,r={fields['r']}"
        signed = ",".join((self._first, challenge, without_proof)).encode()
        signature = hmac.digest(known.stored, signed, "sha512")
        proof = bytes(one ^ other for one, other in zip(known.client, signature, strict=True))
        self._signature = hmac.digest(known.server, signed, "sha512")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _send(self, message: bytes) -> None:
        self.socket.sendall(wire.frame(SaslAuthenticateRequest(auth_bytes=message)))


def log_in_for(port: int, seconds: float) -> float:
    """Let clients log in for so long, each anew as soon as it is done; logins in a second."""
    epoll, tally = select.epoll(), Tally.of_this_process()
    by_descriptor: dict[int, Login] = {}

    def begin() -> None:
        login = Login(port)
        by_descriptor[login.socket.fileno()] = login
        epoll.register(login.socket, select.EPOLLIN)

    for _ in range(CONNECTIONS):
        begin()
    started = time.perf_counter()
    done = 0
    while (now := time.perf_counter()) < started + seconds:
        ready = epoll.poll(_SILENCE)
        if not ready:
            raise RuntimeError(f"no login went on for {_SILENCE:.0f} seconds")
        for descriptor, _ in ready:
            if by_descriptor[descriptor].go_on():
                _end(by_descriptor.pop(descriptor).socket)
                done += 1
                tally.add()
                begin()
    for login in by_descriptor.values():
        login.socket.close()
    epoll.close()
    return done / (now - started)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.close()


_HANDSHAKE: Final = wire.frame(SaslHandshakeRequest(mechanism=MECHANISM))


def main() -> None:
    """Log in, and tell how often."""
    print("ready", flush=True)
    print(log_in_for(int(sys.argv[1]), float(sys.argv[2])), flush=True)


if __name__ == "__main__":
    main()
