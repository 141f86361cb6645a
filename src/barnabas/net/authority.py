"""A certificate authority for development and tests: makes keys and certificates, and keeps none of them.

Keys are of the curve P-256: made in a millisecond, and every TLS library takes them. They are written in PKCS8, the
only form that Java reads. Host names stand in the subject's alternative names alone, which is where clients look; the
common name says whose certificate it is, and is the name of a principal where clients show certificates.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Final, Self

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 825
"""The longest that all TLS libraries accept of a server (Apple's do not take more)."""
MOST_COMMON_NAME: Final = 64
"""Characters of a common name, by X.520."""
_USAGES: Final = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
_EARLIER: Final = timedelta(hours=1)
"""Before now, from when on certificates count: the clock of another machine may be behind."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A private key and its certificate, as PEM."""

    key: str
    certificate: str

    @property
    def keystore(self) -> str:
        """Both in one text, as Kafka's PEM keystores have them."""
        return self.key + self.certificate


class Authority:
    """A CA: its own key and certificate, as PEM, and what it issues."""

    def __init__(self, key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str) -> Self:
        """A new one; raises ConfigError without the package cryptography."""
        require_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        usage = _usage(key_cert_sign=True, crl_sign=True)
        builder = _builder(_name(name), _name(name), AUTHORITY_DAYS).public_key(key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        return cls(key, _sign(builder, key))

    @classmethod
    def load(cls, key: str, certificate: str) -> Self:
        """One that was made before; raises ConfigError for texts that are none."""
        require_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            loaded = load_pem_private_key(key.encode(), None)
            own = x509.load_pem_x509_certificate(certificate.encode())
        except (ValueError, TypeError) as error:
            raise ConfigError(f"the CA's key or certificate cannot be read: {error}") from None
        if not isinstance(loaded, EllipticCurvePrivateKey) or loaded.public_key() != own.public_key():
            raise ConfigError("the CA's key does not belong to its certificate")
        return cls(loaded, own)

    @property
    def own(self) -> Issued:
        """The CA's key and certificate."""
        return Issued(_key_pem(self._key), _pem(self._certificate))

    def issue(
        self, name: str, hosts: Iterable[str] = (), *, days: float = CERTIFICATE_DAYS, now: datetime | None = None
    ) -> Issued:
        """A certificate for servers and clients; raises ConfigError for a name or host that cannot stand in one."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        if not 0 < len(name) <= MOST_COMMON_NAME:
            raise ConfigError(f"a certificate's name has 1 to {MOST_COMMON_NAME} characters: {name!r} has {len(name)}")
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._certificate.subject, days, now).public_key(key.public_key())
        names = [_general_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(digital_signature=True), critical=True)
        builder = builder.add_extension(purposes, critical=False)
        authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(authority_id, critical=False)
        return Issued(_key_pem(key), _pem(_sign(builder, self._key)))


def require_cryptography() -> None:
    """Raise ConfigError, with what to type, if certificates cannot be made here."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError(
            "certificates are made with the package cryptography, which is not installed: "
            "run `pip install 'barnabas[security]'`"
        ) from None


def hosts_of_certificate(pem: str) -> tuple[str, ...]:
    """The hosts that the first certificate in a PEM text names; raises ConfigError if there is none."""
    require_cryptography()
    from cryptography import x509

    start = pem.find("-----BEGIN CERTIFICATE-----")
    try:
        extensions = x509.load_pem_x509_certificate(pem[max(start, 0) :].encode()).extensions
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except ValueError as error:
        raise ConfigError(f"it has no certificate that can be read: {error}") from None
    return tuple(str(name.value) for name in names if isinstance(name, x509.DNSName | x509.IPAddress))


def host_of_certificate(host: str) -> str:
    """A host name or address as a certificate has it; raises ConfigError for what is neither."""
    text = host.removeprefix("[").removesuffix("]")
    try:
        address = ip_address(text)
    except ValueError:
        return _dns_name(host)
    if isinstance(address, IPv6Address) and address.scope_id:
        raise ConfigError(f"{host} is an address of one network interface, which a certificate cannot name")
    return str(address)


def _dns_name(host: str) -> str:
    """The name in ASCII: labels of letters, digits, - and _, which machines do have; a * stands for a first label."""
    try:
        name = host.removesuffix(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        name = ""
    labels = name.split(".")
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    is_wild = len(labels) > 2 and labels[0] == "*"
    if not 0 < len(name) <= 253 or not all(label and set(label) <= allowed for label in labels[is_wild:]):
        raise ConfigError(f"{host!r} is neither a host name nor an address")
    return name


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    text = host_of_certificate(host)
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, days: float, now: datetime | None = None
) -> x509.CertificateBuilder:
    from cryptography import x509

    begins = (now or datetime.now(UTC)) - _EARLIER
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(begins).not_valid_after(begins + _EARLIER + timedelta(days=days))


def _name(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(**given: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(**(dict.fromkeys(_USAGES, False) | given))


def _sign(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives.hashes import SHA256

    return builder.sign(key, SHA256())


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()
