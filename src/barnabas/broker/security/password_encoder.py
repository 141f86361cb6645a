"""Passwords among dynamic settings, encrypted with `password.encoder.secret` before they are stored.

Form and algorithms are those of Kafka's ZooKeeper mode, so that either reads what the other has stored: AES in CBC mode
with a key that PBKDF2 makes of the secret. While a secret is replaced, `password.encoder.old.secret` reads what the old
one has encrypted. Without a secret, passwords are stored as they are. Nothing here is authenticated: whoever can write
the metadata tree can set other passwords anyway.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

    from barnabas.model.config.values import Values

CIPHER: Final = "AES/CBC/PKCS5Padding"
HASHES: Final = {"PBKDF2WithHmacSHA512": "sha512", "PBKDF2WithHmacSHA256": "sha256", "PBKDF2WithHmacSHA1": "sha1"}
DEFAULT_FACTORY: Final = "PBKDF2WithHmacSHA512"
KEY_BITS: Final = (128, 192, 256)
MOST_ITERATIONS: Final = 1_000_000
SALT_BYTES: Final = 256
BLOCK: Final = 16
MARK: Final = "encryptedPassword:"


class CannotDecrypt(BarnabasError):
    """A stored password that neither secret reads."""


class PasswordEncoder:
    """Encrypts and decrypts, as the broker's configuration says. Raises ConfigError if that cannot be done."""

    def __init__(self, values: Values) -> None:
        old, new = values.text_or_none("password.encoder.old.secret"), values.text_or_none("password.encoder.secret")
        self._secrets = [secret for secret in (new, old) if secret]
        self._can_encrypt = bool(new)
        self._factory = values.text_or_none("password.encoder.keyfactory.algorithm") or DEFAULT_FACTORY
        self._key_bits = values.number("password.encoder.key.length")
        self._iterations = values.number("password.encoder.iterations")
        if self._secrets:
            self._check(values)

    def _check(self, values: Values) -> None:
        cipher = values.text("password.encoder.cipher.algorithm")
        if cipher != CIPHER:
            raise ConfigError(f"password.encoder.cipher.algorithm is {cipher}: only {CIPHER} works")
        if self._factory not in HASHES:
            raise ConfigError(f"password.encoder.keyfactory.algorithm is {self._factory}: it takes {', '.join(HASHES)}")
        if self._key_bits not in KEY_BITS:
            raise ConfigError(f"password.encoder.key.length is {self._key_bits}: a key has 128, 192 or 256 bits")
        try:
            import cryptography  # noqa: F401
        except ImportError:
            raise ConfigError(
                "password.encoder.secret needs cryptography, which is not installed: run `pip install "
                "'barnabas[security]'`"
            ) from None

    def encode(self, password: str) -> str:
        """What is stored of a password."""
        if not self._can_encrypt:
            return password
        from cryptography.hazmat.primitives.padding import PKCS7

        salt, vector, data = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(BLOCK), password.encode()
        padder = PKCS7(8 * BLOCK).padder()
        key = _key(self._secrets[0], self._factory, salt, self._iterations, self._key_bits)
        encryptor = _cipher(key, vector).encryptor()
        encrypted = encryptor.update(padder.update(data) + padder.finalize()) + encryptor.finalize()
        fields = {
            "keyFactoryAlgorithm": self._factory,
            "cipherAlgorithm": CIPHER,
            "keyLength": str(self._key_bits),
            "salt": base64.b64encode(salt).decode(),
            "iterations": str(self._iterations),
            "encryptedPassword": base64.b64encode(encrypted).decode(),
            "passwordLength": str(_length(password)),
            "initializationVector": base64.b64encode(vector).decode(),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """The password that was stored; one that is not encrypted is what it is. Raises CannotDecrypt."""
        if MARK not in text:
            return text
        for secret in self._secrets:
            password = _decrypt(secret, text)
            if password is not None:
                return password
        raise CannotDecrypt("it is encrypted, and password.encoder.secret does not fit")


@lru_cache(maxsize=64)
def _decrypt(secret: str, text: str) -> str | None:
    """The password; None if the secret does not fit. Kept, because each costs some milliseconds."""
    from cryptography.hazmat.primitives.padding import PKCS7

    fields = dict(part.partition(":")[::2] for part in text.split(","))
    try:
        iterations, bits = int(fields["iterations"]), int(fields["keyLength"])
        if iterations > MOST_ITERATIONS or bits not in KEY_BITS or fields["cipherAlgorithm"] != CIPHER:
            return None
        salt, encrypted, vector = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "encryptedPassword", "initializationVector")
        )
        key = _key(secret, fields["keyFactoryAlgorithm"], salt, iterations, bits)
        decryptor, unpadder = _cipher(key, vector).decryptor(), PKCS7(8 * BLOCK).unpadder()
        data = unpadder.update(decryptor.update(encrypted) + decryptor.finalize()) + unpadder.finalize()
        password = data.decode()
        return password if _length(password) == int(fields["passwordLength"]) else None
    except (KeyError, ValueError):
        return None


def _length(password: str) -> int:
    """As Java counts: in units of UTF-16."""
    return len(password.encode("utf-16-le")) // 2


def _key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[factory], secret.encode(), salt, iterations, bits // 8)


def _cipher(key: bytes, vector: bytes) -> Cipher[modes.CBC]:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CBC(vector))
