"""Private keys and certificates from keystores and truststores: PEM files, PEM in settings (KIP-651), PKCS12.

Everything is read into memory first. OpenSSL takes a private key only from a file, so it gets one that has no name and
no place on a disk (memfd). A file whose key others can read gets a warning.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import ssl
import stat
import textwrap
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from barnabas.model.config.tls import PEM
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.model.config.per_listener import ListenerValues

logger = logging.getLogger(__name__)

JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How Java's own formats JKS and JCEKS begin."""
MOST_BYTES: Final = 16 << 20
"""No keystore is larger."""
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.+?)-----END \1-----", re.DOTALL)


class KeyPair(NamedTuple):
    """A private key and its certificates, the broker's own first."""

    key: str
    """PEM, perhaps encrypted with `password`."""
    certificates: tuple[str, ...]
    """PEM, one each."""
    password: str | None

    @property
    def leaf(self) -> bytes:
        """The broker's own certificate (DER)."""
        return ssl.PEM_cert_to_DER_cert(self.certificates[0])

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let a context use the pair; raises ConfigError when the two do not fit, or the password is wrong."""
        with _file_in_memory("\n".join((self.key, *self.certificates))) as path:
            try:
                context.load_cert_chain(path, password=self.password or "")
            except ssl.SSLError as error:
                raise ConfigError(_load_failure(error, is_encrypted=_is_encrypted(self.key))) from None


def read_key_pair(values: ListenerValues) -> KeyPair | None:
    """The key and certificates that ssl.keystore.* name; None if they name nothing. Raises ConfigError."""
    password = values.text_or_none("ssl.key.password")
    key, chain = values.text_or_none("ssl.keystore.key"), values.text_or_none("ssl.keystore.certificate.chain")
    if key and chain:
        return pem_pair(
            key, chain, password, values.name_of("ssl.keystore.key"), values.name_of("ssl.keystore.certificate.chain")
        )
    location = values.text_or_none("ssl.keystore.location")
    if not location:
        return None
    name = f"{values.name_of('ssl.keystore.location')} {location}"
    data = read_store(location, name)
    with suppress(FileNotFoundError):  # it is being replaced
        _warn_of_readers(location)
    if values.text("ssl.keystore.type").upper() == PEM:
        text = _pem_text(data, name)
        return pem_pair(text, text, password, name, name)
    return pkcs12_pair(data, values.text_or_none("ssl.keystore.password"), name, location)


def read_trusted(values: ListenerValues) -> str | None:
    """The certificates that ssl.truststore.* name, as PEM; None if they name nothing. Raises ConfigError."""
    inline, location = (
        values.text_or_none("ssl.truststore.certificates"),
        values.text_or_none("ssl.truststore.location"),
    )
    if inline:
        return _certificates(inline, values.name_of("ssl.truststore.certificates"))
    if not location:
        return None
    name = f"{values.name_of('ssl.truststore.location')} {location}"
    data = read_store(location, name)
    if values.text("ssl.truststore.type").upper() == PEM:
        return _certificates(_pem_text(data, name), name)
    store = _load_pkcs12(_pkcs12(data, name, location), values.text_or_none("ssl.truststore.password"), name)
    certificates = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    if not certificates:
        raise ConfigError(f"{name} has no certificates")
    return "\n".join(_to_pem(each) for each in certificates)


def read_store(location: str, name: str) -> bytes:
    """The bytes of a keystore or truststore; raises ConfigError."""
    try:
        with Path(location).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{name} is no keystore: it is larger than {MOST_BYTES >> 20} MiB")
    return data


def _warn_of_readers(location: str) -> None:
    mode = Path(location).stat().st_mode
    if stat.S_ISREG(mode) and mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        logger.warning(
            "%s holds a private key, and others can %s it (mode %03o): chmod 600 it.",
            location,
            "read" if mode & stat.S_IROTH else "change",
            stat.S_IMODE(mode),
        )


# PEM


def _pem_text(data: bytes, name: str) -> str:
    if data.startswith(JKS_MAGIC) or data[:1] == b"\x30":
        raise ConfigError(f"{name} is not PEM, as its type says: set the type to PKCS12, or name a PEM file")
    return data.decode("utf-8", "replace")


def _blocks(text: str) -> list[tuple[str, str]]:
    """The blocks of PEM in a text: what each one is, and the block with its lines as OpenSSL wants them.

    In settings the lines of a block may have come to stand in one.
    """
    return [(match[1], _block(match[1], match[2])) for match in _BLOCK.finditer(text)]


def _block(label: str, body: str) -> str:
    if ":" in body:  # headers of the old form of encryption, whose lines are as they have to be
        return f"-----BEGIN {label}-----{body}-----END {label}-----\n"
    lines = "\n".join(textwrap.wrap("".join(body.split()), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def pem_pair(key_text: str, chain_text: str, password: str | None, key_name: str, chain_name: str) -> KeyPair:
    """A private key and its certificates from texts; raises ConfigError, in which the names are said."""
    keys = [block for label, block in _blocks(key_text) if label.endswith("PRIVATE KEY")]
    chain = tuple(block for label, block in _blocks(chain_text) if label == "CERTIFICATE")
    if len(keys) != 1:
        raise ConfigError(f"{key_name} must have one private key (-----BEGIN PRIVATE KEY-----); it has {len(keys)}")
    if not chain:
        raise ConfigError(f"{chain_name} has no certificate (-----BEGIN CERTIFICATE-----)")
    if _is_encrypted(keys[0]) and not password:
        raise ConfigError(f"the private key of {key_name} is encrypted: set ssl.key.password")
    _check_base64(chain, chain_name)
    return KeyPair(keys[0], chain, password)


def _is_encrypted(key: str) -> bool:
    return "ENCRYPTED" in key  # in the first line, or in the header of the old form; no key has that in its text


def _certificates(text: str, name: str) -> str:
    blocks = tuple(block for label, block in _blocks(text) if label == "CERTIFICATE")
    if not blocks:
        raise ConfigError(f"{name} has no certificate (-----BEGIN CERTIFICATE-----)")
    _check_base64(blocks, name)
    return "\n".join(blocks)


def _check_base64(blocks: tuple[str, ...], name: str) -> None:
    for block in blocks:
        try:
            base64.b64decode("".join(block.split("-----")[2].split()), validate=True)
        except ValueError:
            raise ConfigError(f"{name} has a certificate that cannot be read") from None


# PKCS12


def _pkcs12(data: bytes, name: str, location: str) -> bytes:
    """The bytes of a file that must be PKCS12, by whatever type it is called."""
    if data.startswith(JKS_MAGIC):
        raise ConfigError(
            f"{name} is in Java's own format JKS, which only Java reads. Convert it: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {Path(location).with_suffix('.p12')} -deststoretype PKCS12; then "
            "name the new file and set its type to PKCS12"
        )
    if b"-----BEGIN " in data[:4096]:
        raise ConfigError(f"{name} is a PEM file: set its type to PEM")
    if data[:1] != b"\x30":
        raise ConfigError(f"{name} is not a PKCS12 file")
    return data


def _load_pkcs12(data: bytes, password: str | None, name: str):  # type: ignore[no-untyped-def]  # cryptography is optional
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise ConfigError(
            f"{name} is PKCS12, which needs the package cryptography: pip install 'barnabas[security]', or use PEM"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigError(f"{name} cannot be opened, perhaps because its password is wrong: {error}") from None


def pkcs12_pair(data: bytes, password: str | None, name: str, location: str) -> KeyPair:
    """The key and certificates of a PKCS12 file; raises ConfigError."""
    store = _load_pkcs12(_pkcs12(data, name, location), password, name)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if store.key is None or store.cert is None:
        raise ConfigError(f"{name} has no private key with its certificate")
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    others = [each.certificate for each in store.additional_certs]
    return KeyPair(key, tuple(map(_to_pem, (store.cert.certificate, *others))), None)


def _to_pem(certificate: object) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return str(certificate.public_bytes(Encoding.PEM).decode())  # type: ignore[attr-defined]  # a certificate of cryptography


# OpenSSL


@contextmanager
def _file_in_memory(text: str) -> Iterator[str]:
    """The name of a file with this text that is on no disk, and of which nobody else knows."""
    if not hasattr(os, "memfd_create"):
        _refuse_elsewhere()
    descriptor = os.memfd_create("barnabas-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _refuse_elsewhere() -> NoReturn:
    raise ConfigError("listeners with TLS need Linux, which can keep a private key in a file without a disk")


def _load_failure(error: ssl.SSLError, *, is_encrypted: bool) -> str:
    if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
        return "the private key and the certificate of the keystore do not belong together"
    if is_encrypted and error.reason is None:  # OpenSSL has no word of its own for it
        return "the private key of the keystore cannot be decrypted: ssl.key.password is wrong"
    return f"the private key or certificate of the keystore cannot be used: {error.reason or error}"
