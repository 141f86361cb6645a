"""The clients of the matrix. Each tries all of its cells at once, and says how each ended."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiokafka
import aiokafka.abc
import aiokafka.errors
import kafka
import kafka.errors
import kafka.net.sasl.oauth
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.matrix.broker import TOPIC
from tests.matrix.cells import IN, LOGIN, OUT, SCRAM, TLS, Cell
from tests.matrix.java_properties import java_properties
from tests.matrix.spark import spark
from tests.support import jars, java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Outcomes = dict[str, str]
"""By cell, how it ended, and after a tab what the client said."""

JAVA: Final = "4.3.0"
SECONDS: Final = 60.0
"""To come in, or to be told why not."""
HERE: Final = Path(__file__).parent


def _at_once(attempt: Callable[[Cell], str], cells: Iterable[Cell]) -> Outcomes:
    """Try cells in threads."""
    tried = list(cells)
    with ThreadPoolExecutor(len(tried)) as pool:
        return {cell.name: outcome for cell, outcome in zip(tried, pool.map(attempt, tried), strict=True)}


# librdkafka


def librdkafka_config(cell: Cell) -> dict[str, Any]:
    """A cell in librdkafka's words."""
    config: dict[str, Any] = {"bootstrap.servers": cell.address, "security.protocol": cell.protocol}
    if cell.mechanism is not None:
        config["sasl.mechanism"] = cell.mechanism
        if cell.mechanism != "OAUTHBEARER":
            config |= {"sasl.username": cell.user, "sasl.password": cell.secret}
    if cell.ca is not None:
        config["ssl.ca.location"] = str(cell.ca)
    if cell.certificate is not None:
        config |= {
            "ssl.certificate.location": str(cell.certificate),
            "ssl.key.location": str(cell.certificate.with_suffix(".key")),
        }
    return config


def librdkafka(cells: Iterable[Cell]) -> Outcomes:
    """confluent-kafka, with the librdkafka of its wheel."""
    return _at_once(_librdkafka, cells)


def _librdkafka(cell: Cell) -> str:
    errors: list[KafkaError] = []
    config = {**librdkafka_config(cell), "error_cb": errors.append, "log_level": 0}
    if cell.mechanism == "OAUTHBEARER":
        config["oauth_cb"] = lambda _: (cell.secret, time.time() + 3600)
    producer, failed, stored = Producer({**config, "message.timeout.ms": int(SECONDS * 1000)}), [], []
    value = uuid.uuid4().bytes

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is None:
            stored.append(message.offset())
        else:
            failed.append(error)

    producer.produce(TOPIC, value, on_delivery=delivered)
    ends = time.monotonic() + SECONDS
    while not (stored or failed or _reason(errors)) and time.monotonic() < ends:
        producer.poll(0.05)
    if not stored:
        code = _reason(errors)
        producer.purge()
        producer.flush(5)
        return f"{code or OUT}\t{[error.str() for error in errors][:1]}"
    errors.clear()  # before it has its first token, librdkafka complains of that
    ends = time.monotonic() + cell.seconds
    while time.monotonic() < ends:
        producer.produce(TOPIC, value, on_delivery=delivered)
        producer.poll(0.01)
    if producer.flush(SECONDS) or failed or (cell.seconds and errors):
        return f"{OUT}\t{[error.str() for error in (*failed, *errors)][:1]}"
    consumer = Consumer({**config, "group.id": "matrix"})
    consumer.assign([TopicPartition(TOPIC, 0, stored[0])])
    message = consumer.poll(SECONDS)
    consumer.close()
    return IN if message is not None and message.value() == value else f"{OUT}\tthe record was not read"


def _reason(errors: Iterable[KafkaError]) -> str | None:
    """Why librdkafka is turned away; an alert that comes after the handshake is for it an error of the connection."""
    for error in errors:
        if error.code() == KafkaError._AUTHENTICATION:
            return LOGIN
        if error.code() == KafkaError._SSL or "SSL routines" in error.str():
            return TLS
    return None


# kcat


def kcat(cells: Iterable[Cell]) -> Outcomes:
    """kcat, with the system's librdkafka; it has no way to be given a token."""
    return _at_once(_kcat, (cell for cell in cells if cell.mechanism != "OAUTHBEARER" and not cell.seconds))


def _kcat(cell: Cell) -> str:
    config = librdkafka_config(cell)
    options = [word for name, value in config.items() for word in ("-X", f"{name}={value}")]
    words = [jars.program("kcat"), "-P", "-t", TOPIC, *options, "-X", "message.timeout.ms=30000", "-X", "retries=0"]
    try:
        done = subprocess.run(words, input="x\n", capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode()
        return f"{_kcat_reason(said)}\t{said[:200]}"
    return IN if done.returncode == 0 else f"{_kcat_reason(done.stderr)}\t{done.stderr[:200]}"


def _kcat_reason(said: str) -> str:
    if "authentication" in said.lower():
        return LOGIN
    return TLS if "SSL" in said or "certificate" in said else OUT


# kafka-python


class _Token(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]  # it has no types
    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def kafka_python(cells: Iterable[Cell]) -> Outcomes:
    """kafka-python."""
    return _at_once(_kafka_python, cells)


def _kafka_python(cell: Cell) -> str:
    config: dict[str, Any] = {
        "bootstrap_servers": cell.address,
        "security_protocol": cell.protocol,
        "bootstrap_timeout_ms": 12_000,
    }
    if cell.mechanism is not None:
        config |= {"sasl_mechanism": cell.mechanism}
        if cell.mechanism == "OAUTHBEARER":
            config["sasl_oauth_token_provider"] = _Token(cell.secret)
        else:
            config |= {"sasl_plain_username": cell.user, "sasl_plain_password": cell.secret}
    if cell.ca is not None:
        config["ssl_cafile"] = str(cell.ca)
    if cell.certificate is not None:
        config |= {
            "ssl_certfile": str(cell.certificate),
            "ssl_keyfile": str(cell.certificate.with_suffix(".key")),
        }
    value = uuid.uuid4().bytes
    try:
        producer = kafka.KafkaProducer(**config, max_block_ms=int(SECONDS * 1000))
    except Exception as error:
        return f"{OUT}\t{error!r}"
    try:
        first = producer.send(TOPIC, value).get(SECONDS)
        ends = time.monotonic() + cell.seconds
        sent = []
        while time.monotonic() < ends:
            sent.append(producer.send(TOPIC, value))
            time.sleep(0.01)
        for each in sent:
            each.get(SECONDS)
        consumer = kafka.KafkaConsumer(**config)
        partition = kafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, first.offset)
        found = next(consumer).value
        consumer.close()
        return IN if found == value else f"{OUT}\tthe record was not read"
    except Exception as error:
        return f"{OUT}\t{error!r}"
    finally:
        producer.close(1)


# aiokafka


class _AioToken(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]  # it has no types
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def aio(cells: Iterable[Cell]) -> Outcomes:
    """aiokafka."""

    async def all_of_them() -> Outcomes:
        tried = list(cells)
        done = await asyncio.gather(*(asyncio.wait_for(_aio(cell), 2 * SECONDS) for cell in tried))
        return {cell.name: outcome for cell, outcome in zip(tried, done, strict=True)}

    return asyncio.run(all_of_them())


async def _aio(cell: Cell) -> str:
    config: dict[str, Any] = {"bootstrap_servers": cell.address, "security_protocol": cell.protocol}
    if cell.mechanism is not None:
        config |= {"sasl_mechanism": cell.mechanism}
        if cell.mechanism == "OAUTHBEARER":
            config["sasl_oauth_token_provider"] = _AioToken(cell.secret)
        else:
            config |= {"sasl_plain_username": cell.user, "sasl_plain_password": cell.secret}
    if cell.ca is not None:
        context = ssl.create_default_context(cafile=str(cell.ca))
        if cell.certificate is not None:
            context.load_cert_chain(cell.certificate, cell.certificate.with_suffix(".key"))
        config["ssl_context"] = context
    value = uuid.uuid4().bytes
    producer, consumer = aiokafka.AIOKafkaProducer(**config), aiokafka.AIOKafkaConsumer(**config)
    try:
        await producer.start()
        first = await producer.send_and_wait(TOPIC, value)
        ends = time.monotonic() + cell.seconds
        while time.monotonic() < ends:
            await producer.send_and_wait(TOPIC, value)
            await asyncio.sleep(0.01)
        await consumer.start()
        partition = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, first.offset)
        found = await asyncio.wait_for(consumer.getone(), SECONDS)
        return IN if found.value == value else f"{OUT}\tthe record was not read"
    except (aiokafka.errors.KafkaError, TimeoutError) as error:
        return f"{OUT}\t{error!r}"
    finally:
        await producer.stop()
        await consumer.stop()


# Java's and Go's, a process each


def java_clients(cells: Iterable[Cell]) -> Outcomes:
    """Apache Kafka's own clients, all cells in one JVM."""
    flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
    lines = ["\x1f".join((cell.name, str(cell.seconds), *java_properties(cell))) for cell in cells]
    return _harness(java.command(JAVA, str(HERE / "Matrix.java"), *flags), lines)


def franz_go(cells: Iterable[Cell]) -> Outcomes:
    """franz-go, all cells in one process; needs Go and its module proxy."""
    if shutil.which("go") is None:
        raise jars.MissingProgram("franz-go needs Go, which is not installed: https://go.dev/doc/install")
    binary = jars.CACHE / "matrix-franz-go"
    subprocess.run(["go", "build", "-o", str(binary), "."], cwd=HERE / "go", check=True, timeout=600)
    lines = [
        "\x1f".join(
            (
                cell.name,
                str(cell.seconds),
                cell.address,
                cell.mechanism or "",
                cell.user,
                cell.secret,
                str(cell.ca or ""),
                str(cell.certificate or ""),
                str(cell.certificate.with_suffix(".key")) if cell.certificate else "",
            )
        )
        for cell in cells
    ]
    return _harness([str(binary)], lines)


def _harness(words: list[str], lines: list[str]) -> Outcomes:
    """Give a program the cells, one in a line, and read from it how they ended."""
    done = subprocess.run(
        words, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=180
    )
    told = dict(line.split("\x1f", 1) for line in done.stdout.splitlines() if "\x1f" in line)
    missing = {line.partition("\x1f")[0] for line in lines} - told.keys()
    assert not missing, f"{words[0]} said nothing of {sorted(missing)}:\n{done.stdout}\n{done.stderr}"
    return told


NEEDS_GO: Final = "franz-go"
"""The one client that does not run wherever `make test` does."""
SPARK: Final = "Spark"
NOT_IN_CI: Final = frozenset({NEEDS_GO, SPARK})
"""Spark's tasks take half a minute; that a login is enough for it is seen in tests/pipelines, too."""
CLIENTS: Final = {
    "Java 4.3": java_clients,
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aio,
    "kcat": kcat,
    SPARK: spark,
    NEEDS_GO: franz_go,
}
WITH_TOKENS: Final = frozenset({"Java 4.3"})
"""Clients that say in a login by SCRAM that it is one by a delegation token. (franz-go can, too.)"""
TELL_WHY: Final = frozenset({"Java 4.3", "librdkafka", NEEDS_GO})
"""Clients that tell a login that failed from TLS that failed."""


def able(client: str, cells: Iterable[Cell]) -> list[Cell]:
    """The cells that a client can try."""
    return [cell for cell in cells if not cell.is_token or client in WITH_TOKENS]


def expected(client: str, cell: Cell) -> set[str]:
    """How a cell may end."""
    if client == "kcat" and cell.mechanism in SCRAM and cell.expected != TLS:
        return {LOGIN}  # its librdkafka 2.0.2 ends SCRAM with a wrong nonce (CVE-2024-56128)
    if cell.expected == IN:
        return {IN}
    if client == NEEDS_GO and cell.mechanism == "OAUTHBEARER" and cell.expected != TLS:
        return {OUT}  # it does not read why its token was refused, and says "unexpected data in oauth response"
    if client in TELL_WHY and cell.expected != OUT:
        return {cell.expected}
    return {LOGIN, TLS, OUT}


def wrong(client: str, cells: Iterable[Cell], outcomes: Outcomes) -> list[str]:
    """What ended as it must not, in words."""
    found = []
    for cell in cells:
        outcome, _, said = outcomes.get(cell.name, "").partition("\t")
        if outcome and outcome not in expected(client, cell):
            found.append(f"{cell.name}: {outcome!r} instead of {sorted(expected(client, cell))}. {said}")
    return found
