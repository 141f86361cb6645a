"""Passwords among dynamic settings: encrypted as Kafka 3.9 does it, and read with the old secret, too."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.security.password_encoder import CannotDecrypt, PasswordEncoder
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError

KAFKAS = (
    "initializationVector:wrLSro8FPirbXsLWTAoabQ==,keyLength:128,salt:5ofIei0+C/XGYn6KtuhnDY6ciVeW/P+cV9N"
    "IIoM24s7OtIoZrTxTkguC01RQv1i+nUsxxc34PSiCzZMHlnwQRYrQTy31eJwLgVv5qGDuuvJs+inYM5OKd+H79KdXi3jpinQpOdf"
    "9xF3Edyz8IqqJRTlrsUZbPnuw2vlacVIcDeZ8ORqbWWkitth9pvBp0Y64YMkYLFT69hRdULoRAv8CcY758JJ6ZqbuNLrpzBWJGk7"
    "fsmLAmK/2W1RRJ1uAK/up39ENmb7n87WVFwD2+hcvwVaxD+aW7PeL9kw7enxCHk/Br0GGd9RzobSFixpRkGcyhy2J+Q+jTKYJeLp"
    "nROobjQ==,keyFactoryAlgorithm:PBKDF2WithHmacSHA512,cipherAlgorithm:AES/CBC/PKCS5Padding,iterations:4"
    "096,passwordLength:13,encryptedPassword:2aPPHsu6r5YMEKpyOaTiUQ=="
)
"""What Apache Kafka 3.9.1 made of a password and the secret below."""
SECRET, PASSWORD = "the secret", "pässword, one"


def encoder(**settings: str) -> PasswordEncoder:
    keys = {f"password.encoder.{name.replace('_', '.')}": text for name, text in settings.items()}
    return PasswordEncoder(BrokerConfig.load({"log.dirs": "/nowhere", **keys}))


def test_what_kafka_has_stored_is_read() -> None:
    assert encoder(secret=SECRET).decode(KAFKAS) == PASSWORD


@settings(max_examples=30)  # each takes some milliseconds on purpose
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.sampled_from(["128", "192", "256"]))
def test_what_is_encrypted_is_decrypted_and_never_the_same_twice(password: str, bits: str) -> None:
    one = encoder(secret=SECRET, key_length=bits, iterations="1024")
    first, second = one.encode(password), one.encode(password)
    assert first != second
    assert one.decode(first) == one.decode(second) == password


def test_the_old_secret_reads_what_it_has_encrypted() -> None:
    assert encoder(secret="new", old_secret=SECRET).decode(KAFKAS) == PASSWORD
    assert encoder(old_secret=SECRET).encode("plain") == "plain"


@pytest.mark.parametrize("text", [KAFKAS[:-8], KAFKAS.replace("iterations:4096", "iterations:99999999")])
def test_what_cannot_be_read_is_no_password(text: str) -> None:
    with pytest.raises(CannotDecrypt):
        encoder(secret=SECRET).decode(text)
    with pytest.raises(CannotDecrypt):
        encoder(secret="another").decode(KAFKAS)
    with pytest.raises(CannotDecrypt):
        encoder().decode(KAFKAS)


def test_without_a_secret_a_password_is_what_it_is() -> None:
    assert encoder().encode("x") == encoder().decode("x") == encoder(secret=SECRET).decode("x") == "x"


@pytest.mark.parametrize(
    ("name", "text"),
    [("cipher_algorithm", "DES/CBC"), ("key_length", "40"), ("keyfactory_algorithm", "PBKDF2WithMD5")],
)
def test_settings_that_cannot_be_used_stop_the_start(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=r"password\.encoder"):
        encoder(secret=SECRET, **{name: text})
