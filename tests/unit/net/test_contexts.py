"""Keystores, truststores, ciphers and versions: what becomes a TLS context, and what is refused with which words."""

from __future__ import annotations

import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from barnabas.model.certificates import read_certificate
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError
from barnabas.net import keystores
from barnabas.net.ciphers import TLS_1_3, openssl_name
from barnabas.net.contexts import (
    TlsContext,
    check_successor,
    check_trusts_itself,
    client_context,
    listener_context,
)
from barnabas.net.keystores import KeyPair
from tests.support.certificates import Authority, Issued

pytestmark = pytest.mark.slow

PASSWORD = "only for this test"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("127.0.0.1", common_name="broker")


def context_of(settings: dict[str, str], client_auth: str = "none") -> TlsContext:
    base = {"listeners": "SSL://127.0.0.1:9093", "security.inter.broker.protocol": "SSL"}
    return listener_context(BrokerConfig.load(base | settings).of_listener("SSL"), client_auth)


def connected(server: TlsContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """The client's side of a connection whose handshake is done."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = server.context.wrap_bio(to_server, to_client, server_side=True)
    there = client.wrap_bio(to_client, to_server)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (there, here):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    return there


def shake_hands(server: TlsContext, authority: Authority) -> tuple[str, str]:
    """The version and the suite that a client gets, which trusts the authority."""
    client = ssl.create_default_context(cadata=authority.pem)
    client.check_hostname = False
    there = connected(server, client)
    suite = there.cipher()
    assert suite is not None
    return there.version() or "", suite[0]


def one_line(pem: str) -> str:
    return " ".join(pem.split("\n"))


def test_a_pem_file_holds_key_and_certificate(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    path = issued.write(tmp_path / "broker.pem")
    made = context_of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})
    assert shake_hands(made, authority)[0] == "TLSv1.3"
    assert made.certificate is not None
    assert "CN=broker" in made.certificate.subject


@pytest.mark.parametrize("write", [str, one_line])
@pytest.mark.parametrize("encrypted", [False, True])
def test_pem_in_settings_works_also_in_one_line(
    authority: Authority, issued: Issued, write: type[str], encrypted: bool
) -> None:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": write(issued.encrypted_key(PASSWORD) if encrypted else issued.key),
        "ssl.keystore.certificate.chain": write(issued.certificate),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": write(authority.pem),
        **({"ssl.key.password": PASSWORD} if encrypted else {}),
    }
    assert shake_hands(context_of(settings), authority)
    assert len(context_of(settings, "required").context.get_ca_certs()) == 1


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_works_by_javas_old_name_too(authority: Authority, issued: Issued, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "broker.p12"
    path.touch(0o600)
    path.write_bytes(issued.pkcs12(PASSWORD))
    settings = {"ssl.keystore.location": str(path), "ssl.keystore.type": kind, "ssl.keystore.password": PASSWORD}
    assert shake_hands(context_of(settings), authority)
    with pytest.raises(ConfigError, match="password is wrong"):
        context_of(settings | {"ssl.keystore.password": "wrong"})


def test_stores_that_javas_keytool_wrote_are_read(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    def keytool(*words: str) -> None:
        subprocess.run(["keytool", "-noprompt", "-storepass", PASSWORD, *words], check=True, capture_output=True)

    (tmp_path / "ca.pem").write_text(authority.pem)
    (tmp_path / "own.p12").write_bytes(issued.pkcs12(PASSWORD))
    trust, jks = tmp_path / "trust.p12", tmp_path / "broker.jks"
    keytool("-importcert", "-alias", "ca", "-file", str(tmp_path / "ca.pem"), "-keystore", str(trust))
    keytool(
        *("-importkeystore", "-srckeystore", str(tmp_path / "own.p12"), "-srcstorepass", PASSWORD),
        *("-destkeystore", str(jks), "-deststoretype", "JKS", "-destkeypass", PASSWORD),
    )
    own = {"ssl.keystore.location": str(tmp_path / "own.p12"), "ssl.keystore.password": PASSWORD}
    trusting = own | {"ssl.truststore.location": str(trust), "ssl.truststore.password": PASSWORD}
    assert len(context_of(trusting, "required").context.get_ca_certs()) == 1
    with pytest.raises(ConfigError, match=rf"keytool -importkeystore -srckeystore {jks} -destkeystore .*broker\.p12"):
        context_of(own | {"ssl.keystore.location": str(jks)})


def test_keys_from_settings_and_pkcs12_are_never_in_a_file(
    issued: Issued, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def watch(self: ssl.SSLContext, certfile: str, **words: object) -> None:
        paths.append(str(Path(certfile).readlink()))
        load(self, certfile, **words)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watch)
    before = set(Path("/proc/self/fd").iterdir())
    context_of(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": issued.key,
            "ssl.keystore.certificate.chain": issued.certificate,
        }
    )
    assert paths == ["/memfd:barnabas-key (deleted)"]
    assert len(list(Path("/proc/self/fd").iterdir())) == len(before)


def test_a_key_that_others_can_read_gets_a_warning(
    issued: Issued, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = issued.write(tmp_path / "broker.pem")
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    context_of(settings)
    assert "chmod 600" not in caplog.text
    path.chmod(0o644)
    context_of(settings)
    assert "others can read it (mode 644): chmod 600 it." in caplog.text


def test_what_cannot_be_used_is_said(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    other = authority.issue("127.0.0.1")
    texts = {
        "mismatch": (issued.key + other.certificate, "do not belong together"),
        "no-key": (issued.certificate, "must have one private key"),
        "no-certificate": (issued.key, "has no certificate"),
        "encrypted": (issued.encrypted_key(PASSWORD) + issued.certificate, "is encrypted: set ssl.key.password"),
        "garbage": ("nothing of the kind", "must have one private key"),
        "broken": (issued.key + "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "cannot be used"),
    }
    for name, (text, complaint) in texts.items():
        path = issued.write(tmp_path / f"{name}.pem", text)
        with pytest.raises(ConfigError, match=complaint):
            context_of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)})
    path = issued.write(tmp_path / "encrypted.pem", texts["encrypted"][0])
    with pytest.raises(ConfigError, match=r"ssl\.key\.password is wrong"):
        context_of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path), "ssl.key.password": "wrong"})
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        context_of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "absent")})
    with pytest.raises(ConfigError, match="is a PEM file: set its type to PEM"):
        context_of({"ssl.keystore.location": str(path), "ssl.keystore.password": "x"})
    with pytest.raises(ConfigError, match="larger than"):
        keystores.read_store("/dev/zero", "the store")


@pytest.mark.parametrize(
    ("settings", "version", "suite"),
    [
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2", None),
        ({"ssl.protocol": "TLSv1.2"}, "TLSv1.2", None),
        ({"ssl.protocol": "TLS"}, "TLSv1.3", None),
        (
            {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"},
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_versions_and_suites_are_those_that_were_set(
    authority: Authority, issued: Issued, tmp_path: Path, settings: dict[str, str], version: str, suite: str | None
) -> None:
    path = issued.write(tmp_path / "broker.pem")
    made = context_of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path), **settings})
    got = shake_hands(made, authority)
    assert got[0] == version
    assert suite is None or got[1] == suite


@pytest.mark.parametrize(
    ("suites", "complaint"),
    [
        ("TLS_NOTHING_WITH_NOTHING_SHA", "does not have"),
        ("TLS_AES_128_GCM_SHA256", "add it"),
    ],
)
def test_suites_that_cannot_be_used_are_refused(issued: Issued, tmp_path: Path, suites: str, complaint: str) -> None:
    path = issued.write(tmp_path / "broker.pem")
    with pytest.raises(ConfigError, match=complaint):
        context_of({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path), "ssl.cipher.suites": suites})


def test_openssl_has_the_suites_that_it_is_asked_for_by_javas_names() -> None:
    known = {cipher["name"] for cipher in ssl.create_default_context().get_ciphers()}
    java = [
        *(f"TLS_ECDHE_{kind}_WITH_AES_256_GCM_SHA384" for kind in ("RSA", "ECDSA")),
        *(f"TLS_ECDHE_{kind}_WITH_CHACHA20_POLY1305_SHA256" for kind in ("RSA", "ECDSA")),
        *(f"TLS_ECDHE_{kind}_WITH_AES_128_CBC_SHA256" for kind in ("RSA", "ECDSA")),
        "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256",
    ]
    assert {openssl_name(name) for name in java} <= known
    assert known >= TLS_1_3


def test_a_new_certificate_has_to_be_for_the_same_names(authority: Authority) -> None:
    values = BrokerConfig.load({}).of_listener("PLAINTEXT")
    lenient = BrokerConfig.load({"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"})

    def context(issued: Issued) -> TlsContext:
        der = ssl.PEM_cert_to_DER_cert(issued.certificate)
        return TlsContext(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), read_certificate(der))

    old = context(authority.issue("a.example", "b.example", common_name="broker"))
    check_successor(old, context(authority.issue("a.example", "b.example", "c.example", common_name="broker")), values)
    fewer = context(authority.issue("a.example", common_name="broker"))
    renamed = context(authority.issue("a.example", "b.example", common_name="another"))
    for new, complaint in ((fewer, "lacks names"), (renamed, r"ssl\.allow\.dn\.changes")):
        with pytest.raises(ConfigError, match=complaint):
            check_successor(old, new, values)
        check_successor(old, new, lenient.of_listener("PLAINTEXT"))
    expired = authority.issue(
        "a.example", "b.example", common_name="broker", not_after=datetime.now(UTC) - timedelta(days=1)
    )
    with pytest.raises(ConfigError, match="has expired"):
        check_successor(old, context(expired), values)


def test_brokers_have_to_trust_each_other(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    path = issued.write(tmp_path / "broker.pem")
    settings = {
        "listeners": "SSL://127.0.0.1:9093",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(path),
        "ssl.truststore.type": "PEM",
    }

    def both(trusted: str) -> tuple[TlsContext, TlsContext]:
        values = BrokerConfig.load(settings | {"ssl.truststore.certificates": trusted}).of_listener("SSL")
        return listener_context(values, "required"), client_context(values)

    check_trusts_itself(*both(authority.pem))
    with pytest.raises(ConfigError, match="would not trust each other"):
        check_trusts_itself(*both(Authority().pem))


def test_sessions_of_clients_with_certificates_are_kept_by_the_clients(authority: Authority, issued: Issued) -> None:
    """The broker would keep the certificates of twenty thousand sessions, and who has one can make as many."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.pem}
    own = {"ssl.keystore.key": issued.key, "ssl.keystore.certificate.chain": issued.certificate}
    server = context_of({"ssl.keystore.type": "PEM", **own, **trust}, "required")
    client = ssl.create_default_context(cadata=authority.pem)
    client.check_hostname = False
    KeyPair(issued.key, (issued.certificate,), None).load_into(client)
    for version, has_ticket in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, False)):
        client.minimum_version = ssl.TLSVersion.TLSv1_2
        client.maximum_version = version
        session = connected(server, client).session
        assert session is not None
        assert session.has_ticket is has_ticket
    assert server.context.session_stats()["number"] == 0
