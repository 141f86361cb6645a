"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides, as Kafka speaks them.

A broker never knows a password. It keeps, for each user and mechanism, a salt, a number of iterations, and two keys
(`ScramCredential`, whose text is what Kafka's ZooKeeper mode stores below `/config/users`). One of them shows that a
client knows the password, and is not enough to log in with; the other shows the client that the broker knows the user.

    client   n,,n=alice,r=NONCE
    server   r=NONCE+MORE,s=SALT,i=ITERATIONS
    client   c=biws,r=NONCE+MORE,p=PROOF
    server   v=SIGNATURE

What must hold, whoever is at the other end:

- The nonce of the last message is the one that this server sent, and its channel binding is the header that the client
  began with. Otherwise what one client sent could be sent again by another.
- Secrets are compared by `hmac.compare_digest` only.
- A user that is not there gets a challenge like anybody else, the same one each time (`decoy`), which looks like
  that of some user (`scram_decoys`), and is refused where a wrong password is. Neither the answers nor their time tell
  which users there are.
- A client logs in as itself: an authorization id must be the user's name.

The library `scramp` refuses the extension `tokenauth` and authorization ids, which Kafka's clients may send
(docs/adr/0010-scram-without-a-library.md).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from barnabas.machines.security.login_step import OTHER_AUTHORIZATION_ID, LoginRefused
from barnabas.machines.security.scram_salts import SaltKind, salt_of
from barnabas.model.base_error import BarnabasError

LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16_384
"""Of a credential that is stored here; Kafka has the same bounds."""
MOST_ITERATIONS_OF_OTHERS: Final = 1_000_000
"""That a client does because a server asks for them: a second of work."""
NONCE_BYTES: Final = 24
"""Random bytes in the nonce of either side."""
MOST_SALT: Final = 1024
"""Bytes of a salt: every broker sends it to everyone that asks."""
LONGEST_MESSAGE: Final = 8 * 1024
"""Bytes of a client's message. Anybody can send one, and reading it takes the event loop's time: some milliseconds."""

_NAME: Final = r"(?:[^\x00=,]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[^\x00,]+)*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[1-9][0-9]{{0,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),"
    r"p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class ScramMechanism(Enum):
    """The two mechanisms, by name; the numbers are those of AlterUserScramCredentials."""

    SHA_256 = ("SCRAM-SHA-256", "sha256", 1)
    SHA_512 = ("SCRAM-SHA-512", "sha512", 2)

    def __init__(self, title: str, algorithm: str, number: int) -> None:
        self.title = title
        self.algorithm = algorithm
        self.number = number

    @property
    def key_bytes(self) -> int:
        """The length of the mechanism's keys."""
        return _KEY_BYTES[self.algorithm]

    def sign(self, key: bytes, message: bytes) -> bytes:
        """The mechanism's HMAC."""
        return hmac.digest(key, message, self.algorithm)

    def digest(self, data: bytes) -> bytes:
        """The mechanism's hash."""
        return hashlib.new(self.algorithm, data).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """What stands for a password from then on; takes some milliseconds on purpose."""
        return hashlib.pbkdf2_hmac(self.algorithm, password.encode(), salt, iterations)


_KEY_BYTES: Final = {mechanism.algorithm: len(mechanism.digest(b"")) for mechanism in ScramMechanism}
BY_TITLE: Final = {mechanism.title: mechanism for mechanism in ScramMechanism}
BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in ScramMechanism}


class InvalidCredential(BarnabasError):
    """A stored credential, or one that is to be stored, that cannot be used; the message does not show it."""


class CredentialShape(NamedTuple):
    """What the challenges to a user have that does not tell the user from others by itself."""

    iterations: int
    salt: SaltKind


@dataclass(frozen=True, slots=True, repr=False)
class ScramCredential:
    """What is stored of a user's password, for one mechanism. It is a secret, too: its text shows nothing of it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @staticmethod
    def of_salted(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """The credential of a password that was salted elsewhere."""
        client_key = mechanism.sign(salted, b"Client Key")
        return ScramCredential(salt, mechanism.digest(client_key), mechanism.sign(salted, b"Server Key"), iterations)

    @staticmethod
    def of_password(
        mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = LEAST_ITERATIONS
    ) -> ScramCredential:
        """The credential of a password; takes some milliseconds on purpose."""
        salted = mechanism.salted_password(password, salt, iterations)
        return ScramCredential.of_salted(mechanism, salted, salt, iterations)

    @staticmethod
    def decoy(
        mechanism: ScramMechanism, name: str, secret: bytes, shape: CredentialShape | None = None
    ) -> ScramCredential:
        """For a user that is not there: the same each time, on every broker that knows the secret, and of no use.

        It has the iterations and a salt of the given shape; without one it is as Kafka's tools make it. Nobody sees its
        keys, and nobody has a key whose hash is all zeros.
        """
        no_key = bytes(mechanism.key_bytes)
        if shape is None:
            chance = _chance(mechanism, name, secret, "salt")
            return ScramCredential(salt_of(int.from_bytes(chance, "big")), no_key, no_key, LEAST_ITERATIONS)
        count = 2 * shape.salt.length // len(no_key) + 1
        chance = b"".join([_chance(mechanism, name, secret, f"salt {number}") for number in range(count)])
        return ScramCredential(shape.salt.draw(chance), no_key, no_key, shape.iterations)

    @property
    def shape(self) -> CredentialShape:
        """What everybody sees of it who asks for it by the user's name, and so what a decoy has to imitate."""
        return CredentialShape(self.iterations, SaltKind.of(self.salt))

    def encode(self) -> str:
        """As Kafka stores it."""
        fields = {"salt": self.salt, "stored_key": self.stored_key, "server_key": self.server_key}
        texts = [f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items()]
        return ",".join([*texts, f"iterations={self.iterations}"])

    @staticmethod
    def decode(text: str, mechanism: ScramMechanism) -> ScramCredential:
        """What Kafka stored. Raises InvalidCredential."""
        fields = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored_key, server_key = map(
                _from_base64, (fields["salt"], fields["stored_key"], fields["server_key"])
            )
            credential = ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))
        except (KeyError, ValueError):
            raise InvalidCredential(f"the stored credential for {mechanism.title} cannot be read") from None
        if {len(credential.stored_key), len(credential.server_key)} != {mechanism.key_bytes}:
            raise InvalidCredential(f"the stored credential for {mechanism.title} has keys of the wrong length")
        return credential


class ScramOpening(NamedTuple):
    """A client's first message."""

    name: str
    """The user, or the id of a delegation token."""
    is_token: bool
    nonce: str
    header: bytes
    """What the last message has to repeat as its channel binding."""
    bare: str
    """The part that is signed."""


def read_opening(message: bytes) -> ScramOpening:
    """Read a client's first message. Raises LoginRefused."""
    match = _CLIENT_FIRST.fullmatch(_text(message))
    if match is None:
        raise LoginRefused("the first SCRAM message cannot be read")
    name = _unescape(match["name"])
    if match["authzid"] is not None and _unescape(match["authzid"]) != name:
        raise LoginRefused("the client asked to act as somebody else", OTHER_AUTHORIZATION_ID)
    extensions = dict(part.split("=", 1) for part in match["extensions"].split(",")[1:])
    is_token = extensions.get("tokenauth", "").lower() == "true"
    return ScramOpening(name, is_token, match["nonce"], match["header"].encode(), match["bare"])


class ScramServer:
    """The server's side of one login, from the client's first message on: one challenge, one proof."""

    __slots__ = ("_challenge", "_credential", "_mechanism", "_nonce", "_opening")

    def __init__(
        self, mechanism: ScramMechanism, opening: ScramOpening, credential: ScramCredential, nonce: str
    ) -> None:
        self._mechanism = mechanism
        self._opening = opening
        self._credential = credential
        self._nonce = opening.nonce + nonce
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"

    @property
    def challenge(self) -> bytes:
        """The answer to the client's first message."""
        return self._challenge.encode()

    def prove(self, message: bytes) -> bytes:
        """Check the client's last message, and give the server's. Raises LoginRefused."""
        match = _CLIENT_FINAL.fullmatch(_text(message))
        if match is None:
            raise LoginRefused("the last SCRAM message cannot be read")
        channel, proof = _decoded(match["channel"]), _decoded(match["proof"])
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            raise LoginRefused("the nonce of the last SCRAM message is not the one that was sent")
        if not hmac.compare_digest(channel, self._opening.header):
            raise LoginRefused("the channel binding of the last SCRAM message is not that of the first")
        signed = f"{self._opening.bare},{self._challenge},{match['without_proof']}".encode()
        signature = self._mechanism.sign(self._credential.stored_key, signed)
        stored = self._mechanism.digest(_xor(signature, proof.ljust(len(signature), b"\0")[: len(signature)]))
        if not hmac.compare_digest(stored, self._credential.stored_key) or len(proof) != len(signature):
            raise LoginRefused("the password is wrong, or there is no such user")
        return b"v=" + base64.b64encode(self._mechanism.sign(self._credential.server_key, signed))


class ScramClientError(BarnabasError):
    """The server cannot be logged in to: it does not speak SCRAM, or does not know the user's password either."""


class ScramClient:
    """The client's side of one login."""

    def __init__(self, mechanism: ScramMechanism, username: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    @property
    def opening(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def prove(self, challenge: bytes) -> bytes:
        """Answer the server's challenge; takes some milliseconds on purpose. Raises ScramClientError."""
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            text = ""
        match = _SERVER_FIRST.fullmatch(text)
        if match is None or not match["nonce"].startswith(self._nonce) or len(match["nonce"]) == len(self._nonce):
            raise ScramClientError("the broker's SCRAM challenge cannot be used")
        iterations = int(match["iterations"])
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS_OF_OTHERS:
            raise ScramClientError(f"the broker asks for {iterations} iterations of SCRAM, which is not safe")
        try:
            salt = _from_base64(match["salt"])
        except ValueError:
            raise ScramClientError("the broker's SCRAM challenge cannot be used") from None
        mechanism = self._mechanism
        salted = mechanism.salted_password(self._password, salt, iterations)
        client_key = mechanism.sign(salted, b"Client Key")
        without_proof = f"c=biws,r={match['nonce']}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        proof = _xor(client_key, mechanism.sign(mechanism.digest(client_key), signed))
        self._signature = mechanism.sign(mechanism.sign(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, message: bytes) -> None:
        """Check that the server knows the user. Raises ScramClientError."""
        expected = b"v=" + base64.b64encode(self._signature)
        if not self._signature or not hmac.compare_digest(message.partition(b",")[0], expected):
            raise ScramClientError("the broker could not prove that it knows the password")


def _text(message: bytes) -> str:
    if len(message) > LONGEST_MESSAGE:
        raise LoginRefused(f"a SCRAM message has more than {LONGEST_MESSAGE} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginRefused("a SCRAM message is not UTF-8") from None


def _unescape(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _from_base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def _decoded(text: str) -> bytes:
    try:
        return _from_base64(text)
    except binascii.Error:
        raise LoginRefused("the last SCRAM message cannot be read") from None


def _xor(first: bytes, second: bytes) -> bytes:
    """Of two keys of the same length."""
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")


def _chance(mechanism: ScramMechanism, name: str, secret: bytes, purpose: str) -> bytes:
    """Bytes for a decoy that look random to all who do not know the secret."""
    return mechanism.sign(secret, f"{purpose}\0{mechanism.title}\0{name}".encode(errors="surrogatepass"))
