"""Certificates for tests: an authority, and brokers and clients that it vouches for, as Kafka's keys have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key and its certificate, as PEM."""

    key: str
    certificate: str

    @property
    def pem(self) -> str:
        """Both in one text, as Kafka's PEM keystores have them."""
        return self.key + self.certificate

    def write(self, path: Path, text: str | None = None) -> Path:
        """Write the keystore, or another text, to a file that only its owner reads."""
        path.touch(mode=0o600)
        path.write_text(text or self.pem, encoding="utf-8")
        return path

    @property
    def pkcs8_key(self) -> str:
        """The key in the only form that Java reads."""
        key = load_pem_private_key(self.key.encode(), None)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def encrypted_key(self, password: str) -> str:
        """The key, encrypted."""
        key = load_pem_private_key(self.key.encode(), None)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())).decode()

    def pkcs12(self, password: str) -> bytes:
        """Both as PKCS12."""
        key = load_pem_private_key(self.key.encode(), None)
        certificate = x509.load_pem_x509_certificate(self.certificate.encode())
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"broker", key, certificate, None, encryption)  # type: ignore[arg-type]  # the key is of a kind that works


class Authority:
    """A CA of one test."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    @property
    def pem(self) -> str:
        """Its certificate."""
        return self._ca.cert_pem.bytes().decode()

    def write(self, path: Path) -> Path:
        """Write its certificate to a file."""
        path.write_text(self.pem, encoding="utf-8")
        return path

    def issue(self, *hosts: str, common_name: str | None = None, not_after: datetime | None = None) -> Issued:
        """A certificate for these hosts, 127.0.0.1 if none is named."""
        issued = self._ca.issue_cert(
            *(hosts or ("127.0.0.1",)),
            common_name=common_name,
            organization_name="Barnabas",
            organization_unit_name="tests",
            not_after=not_after,
        )
        return Issued(issued.private_key_pem.bytes().decode(), issued.cert_chain_pems[0].bytes().decode())
