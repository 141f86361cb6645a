"""Metrics that clients push: what is read of them, who may push, and what nobody can make the console hold."""

from __future__ import annotations

import gzip
import random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from barnabas.console.settings import TelemetrySettings
from barnabas.console.telemetry import clients as kept
from barnabas.console.telemetry import otlp, receiver
from barnabas.console.telemetry.clients import Pusher, PushingClients
from barnabas.console.telemetry.figures import figures_of
from barnabas.console.telemetry.otlp import NotOtlp, PointKind, parse
from barnabas.console.telemetry.receiver import MOST_BODY, MOST_COMPRESSED, PushReceiver
from tests.support.otlp import CUMULATIVE, DELTA, attribute, gauge, part, point, request, total, varint

if TYPE_CHECKING:
    from collections.abc import MutableMapping

KAFKA = "org.apache.kafka."
INSTANCE = "00000000-0000-0000-0000-000000000005"
PRODUCER = request(
    gauge(f"{KAFKA}producer.record.send.rate", point(12.5)),
    gauge(f"{KAFKA}producer.node.request.latency.avg", point(2, node_id="1"), point(4, node_id="2")),
    gauge(f"{KAFKA}producer.node.request.latency.max", point(7, node_id="1"), point(9, node_id="2")),
    total(f"{KAFKA}producer.connection.creation.total", DELTA, point(3)),
    transactional_id="orders",
)


def pusher(number: int = 5) -> Pusher:
    return Pusher(UUID(int=number), "app", "librdkafka 2.16", "127.0.0.1", "User:ANONYMOUS")


def test_points_are_read_with_names_labels_and_kinds() -> None:
    found = parse(PRODUCER + request(total("in.all", CUMULATIVE, point(-4, topic="t")), gauge("fraction", point(0.5))))
    assert found.resource == {"transactional_id": "orders"}
    assert found.points[0] == (f"{KAFKA}producer.record.send.rate", (), 12.5, PointKind.GAUGE)
    assert found.points[1].labels == (("node_id", "1"),)
    assert [(each.value, each.kind) for each in found.points[-3:]] == [
        (3, PointKind.DELTA),
        (-4, PointKind.TOTAL),
        (0.5, PointKind.GAUGE),
    ]


def test_values_of_labels_become_texts() -> None:
    labels = [attribute("text", "x"), attribute("yes", value=True), attribute("less", -1), attribute("half", 0.5)]
    about = part(1, part(1, b"".join(part(1, each) for each in labels)))
    assert parse(about).resource == {"text": "x", "yes": "true", "less": "-1", "half": "0.5"}


def test_what_is_no_number_and_histograms_are_left_out() -> None:
    found = parse(request(gauge("rate", point(float("nan")), point(float("inf"))), part(1, "times") + part(9, b"")))
    assert (found.points, found.unread) == ([], 1)
    assert parse(b"").points == []


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05x",
        b"\x00\x00",
        b"\x0b",
        b"\xff" * 20,
        varint(1 << 3) + varint(1),
        part(1, part(2, part(2, part(1, b"\xff\xfe")))),
        request(part(1, "name") + part(5, part(1, varint(4 << 3) + varint(1)))),
        request(part(1, "name") + part(7, varint(2 << 3 | 5) + b"1234")),
    ],
)
def test_bytes_that_are_something_else_are_refused(data: bytes) -> None:
    with pytest.raises(NotOtlp):
        parse(data)


def test_any_bytes_are_read_or_refused() -> None:
    """Pieces of what a client writes, broken in all ways."""
    chance = random.Random(20)
    for _ in range(3_000):
        data = bytearray(PRODUCER)
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(data))
            data[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        try:
            parse(bytes(data))
        except NotOtlp:
            continue


def test_points_fields_labels_and_texts_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "ä" * 5_000
    (found,) = parse(request(gauge(long, point(1, **{f"{long}{number}": long for number in range(40)})))).points
    assert len(found.name) == otlp.MOST_CHARACTERS
    assert len(found.labels) == otlp.MOST_LABELS
    assert {len(text) for each in found.labels for text in each} == {otlp.MOST_CHARACTERS}
    assert len(parse(request(gauge("€" * 5_000, point(1)))).points[0].name) == otlp.MOST_CHARACTERS
    monkeypatch.setattr(otlp, "MOST_POINTS", 10)
    with pytest.raises(NotOtlp, match="points"):
        parse(request(gauge("name", *[point(1)] * 11)))
    monkeypatch.setattr(otlp, "MOST_FIELDS", 100)
    with pytest.raises(NotOtlp, match="fields"):
        parse(b"\x0a\x00" * 101)


def test_figures_of_librdkafka_and_of_java() -> None:
    ours = figures_of(parse(PRODUCER).points)
    assert (ours.kind, ours.records, ours.latency, ours.worst, ours.lag) == ("producer", 12.5, 3, 9, None)
    fetching = f"{KAFKA}consumer.fetch.manager."
    java = parse(
        request(
            gauge(f"{fetching}records.consumed.rate", point(10.0), point(4.0, topic="a"), point(6.0, topic="b")),
            gauge(f"{fetching}bytes.consumed.rate", point(40.0, topic="a"), point(60.0, topic="b")),
            gauge(f"{fetching}records.lag", point(5, topic="a", partition="0"), point(7, topic="b", partition="1")),
            gauge(f"{fetching}records.lag.max", point(7)),
            gauge(f"{fetching}fetch.latency.avg", point(1.5)),
        )
    ).points
    assert figures_of(java) == ("consumer", 10.0, 100.0, None, 1.5, None, 12)
    lag_alone = parse(request(gauge(f"{fetching}records.lag.max", point(7)))).points
    assert figures_of(lag_alone).lag == 7
    sharing = parse(request(gauge(f"{KAFKA}consumer.share.fetch.manager.records.consumed.rate", point(1.0)))).points
    assert (figures_of(sharing).kind, figures_of(sharing).records) == ("share consumer", 1.0)
    assert figures_of(parse(request(gauge("other", point(1)))).points) == ("", *[None] * 6)


def test_the_last_push_of_a_client_counts() -> None:
    now = 1_000.0
    clients = PushingClients(lambda: now)
    clients.take(pusher(), parse(PRODUCER))
    now = 1_010.0
    clients.take(pusher(), parse(request(gauge("one", point(1)))))
    (found,) = clients.all()
    assert (found.at, found.due, len(found.points)) == (1_010.0, 10.0, 1)


def test_clients_series_bytes_and_ages_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    clients = PushingClients(lambda: now)
    monkeypatch.setattr(kept, "MOST_SERIES", 3)
    clients.take(pusher(1), parse(request(gauge("x", *[point(1)] * 10))))
    assert [(len(each.points), each.omitted) for each in clients.all()] == [(3, 7)]
    monkeypatch.setattr(kept, "MOST_CLIENTS", 5)
    for number in range(10):
        clients.take(pusher(number), parse(PRODUCER))
    clients.take(pusher(5), parse(PRODUCER))
    assert [each.pusher.instance.int for each in clients.all()] == [6, 7, 8, 9, 5]
    assert clients.forgotten == 5
    monkeypatch.setattr(kept, "MOST_BYTES", 3 * clients.all()[0].size)
    clients.take(pusher(6), parse(PRODUCER))
    assert [each.pusher.instance.int for each in clients.all()] == [9, 5, 6]
    now += kept.QUIET_SECONDS + 1
    assert clients.all() == []
    assert clients.find(UUID(int=6)) is None
    clients.take(pusher(6), parse(PRODUCER))
    assert clients.find(UUID(int=6)) is not None


class Console:
    """The receiver, asked as a server would."""

    def __init__(self, token: str | None = None) -> None:
        self.clients = PushingClients()
        self.receiver = PushReceiver(TelemetrySettings(token), self.clients)

    async def push(
        self, body: bytes | None = PRODUCER, method: str = "POST", address: str = "127.0.0.1", **headers: str | None
    ) -> tuple[int, bytes]:
        """What a push is answered; a body of None never comes."""
        length = len(body or b"")
        given: dict[str, str | None] = {
            "host": "localhost:8080",
            "content-type": "application/x-protobuf",
            "content-length": str(length),
            "x-kafka-client-instance-id": INSTANCE,
            "x-kafka-client-id": "app",
        }
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope: MutableMapping[str, Any] = {
            "type": "http",
            "method": method,
            "path": receiver.PATH,
            "query_string": b"",
            "client": (address, 1),
            "headers": [(name.encode(), value.encode()) for name, value in given.items() if value is not None],
        }
        answers: list[Any] = []

        async def receive() -> MutableMapping[str, Any]:
            if body is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            answers.append(message)

        await self.receiver(scope, receive, send)
        return answers[0]["status"], answers[1]["body"]


async def test_a_push_is_kept_with_its_client() -> None:
    console = Console()
    assert await console.push(x_kafka_client_software="librdkafka 2.16", x_kafka_principal="User:a") == (200, b"")
    assert await console.push(gzip.compress(PRODUCER), content_encoding="gzip") == (200, b"")
    (found,) = console.clients.all()
    assert (found.pusher.instance, found.pusher.client_id, len(found.points)) == (UUID(int=5), "app", 6)


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (400, {"body": b"\xff" * 50}),
        (400, {"body": None}),
        (400, {"x_kafka_client_instance_id": None}),
        (400, {"x_kafka_client_instance_id": "x"}),
        (400, {"content_encoding": "gzip"}),
        (400, {"body": gzip.compress(PRODUCER)[:-4], "content_encoding": "gzip"}),
        (400, {"body": gzip.compress(PRODUCER) + b"more", "content_encoding": "gzip"}),
        (405, {"method": "GET"}),
        (411, {"content_length": None}),
        (411, {"content_length": "-1"}),
        (411, {"content_length": "٣"}),
        (413, {"content_length": str(MOST_BODY + 1)}),
        (413, {"content_length": "9" * 5_000}),
        (413, {"body": bytes(MOST_BODY + 1), "content_length": "5"}),
        (413, {"content_length": str(MOST_COMPRESSED + 1), "content_encoding": "gzip"}),
        (413, {"body": gzip.compress(bytes(MOST_BODY + 1)), "content_encoding": "gzip"}),
        (415, {"content_type": "application/json"}),
        (415, {"content_encoding": "zstd"}),
        (403, {"address": "10.0.0.7"}),
        (403, {"host": "console.example.com"}),
        (403, {"host": "console.example.com:8080"}),
        (403, {"x_forwarded_for": "10.0.0.7"}),
        (403, {"origin": "http://localhost:8080"}),
        (403, {"sec_fetch_site": "same-origin"}),
        (403, {"cookie": "barnabas-console-8080=x"}),
    ],
)
async def test_what_is_not_a_brokers_push_is_refused_and_disturbs_nobody(status: int, changes: dict[str, Any]) -> None:
    console = Console()
    assert (await console.push(**changes))[0] == status
    assert console.clients.all() == []
    assert (await console.push())[0] == 200
    assert len(console.clients.all()) == 1


async def test_with_a_token_only_those_who_have_it_push_from_anywhere() -> None:
    console = Console("secret")
    for given in (None, "", "secret", "Bearer", "Bearer secre", "Bearer secret2", "bearer secret", "Bearer é"):
        assert (await console.push(authorization=given))[0] == 401
    assert (await console.push(authorization="Bearer secret", address="10.0.0.7", host="console:8443"))[0] == 200


async def test_few_pushes_are_read_at_the_same_time() -> None:
    console = Console()
    console.receiver._reading = receiver.AT_ONCE
    assert (await console.push())[0] == 429
