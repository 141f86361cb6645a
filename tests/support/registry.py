"""A schema registry as Confluent's answers, for the console: Avro, Protobuf and JSON under three subjects."""

from __future__ import annotations

import base64
import json
import struct
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD: Final = "user:the secret"
AVRO: Final = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
HOSTILE: Final = "<img src=x onerror='window.harmed = 1'>"
PROTO: Final = 'syntax = "proto3"; // <script>window.harmed = 1</script>'


def _descriptors() -> tuple[descriptor_pb2.FileDescriptorProto, descriptor_pb2.FileDescriptorProto]:
    text, whole, message = 9, 5, 11
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    kind = money.message_type.add(name="Money")
    kind.field.add(name="cents", number=1, type=whole, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="default", package="shop", syntax="proto3")
    order.dependency.append("shop/money.proto")
    order.message_type.add(name="First").field.add(name="only", number=1, type=text, label=1)
    kind = order.message_type.add(name="Order")
    kind.field.add(name="customer", number=1, type=text, label=1)
    kind.field.add(name="total", number=2, type=message, label=1, type_name=".shop.Money")
    return money, order


MONEY, ORDER = _descriptors()


def descriptor_set() -> bytes:
    """What protoc would have compiled."""
    return bytes(descriptor_pb2.FileDescriptorSet(file=[MONEY, ORDER]).SerializeToString())


def order(customer: str, cents: int) -> bytes:
    """An order, as Protobuf."""
    pool = descriptor_pool.DescriptorPool()
    pool.Add(MONEY)
    pool.Add(ORDER)
    kind: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    made = kind(customer=customer)
    made.total.cents = cents
    return bytes(made.SerializeToString())


def framed(schema: int, data: bytes) -> bytes:
    """A value as serializers of a registry write it."""
    return struct.pack(">bI", 0, schema) + data


class FakeRegistry:
    """Where it is, and whether it compiles."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.with_password = f"http://{PASSWORD.replace(' ', '%20')}@127.0.0.1:{port}"
        self.compiles = True
        self.asked: list[str] = []

    def find(self, path: str, query: dict[str, list[str]]) -> object:
        """What it has at an address; None for nothing."""
        compiled = self.compiles and query.get("format") == ["serialized"]
        imports = [{"name": "shop/money.proto", "subject": "money", "version": 1}]
        source = base64.b64encode(ORDER.SerializeToString()).decode() if compiled else PROTO
        schemas: dict[str, dict[str, Any]] = {
            "1": {"schema": json.dumps(AVRO)},
            "2": {"schemaType": "PROTOBUF", "schema": source, "references": imports},
            "3": {"schemaType": "JSON", "schema": "{}"},
        }
        money = base64.b64encode(MONEY.SerializeToString()).decode() if compiled else PROTO
        subjects = {
            "orders-value": schemas["2"],
            HOSTILE: schemas["1"],
            "money": {"schemaType": "PROTOBUF", "schema": money},
        }
        match path.strip("/").split("/"):
            case ["subjects"]:
                return list(subjects)
            case ["schemas", "ids", number] if number in schemas:
                return schemas[number]
            case ["subjects", subject, "versions"] if unquote(subject) in subjects:
                return [1, 2]
            case ["subjects", subject, "versions", version] if unquote(subject) in subjects:
                return {"id": 7, "version": 1 if version == "1" else 2, **subjects[unquote(subject)]}
            case ["config", _]:
                return {"compatibilityLevel": "BACKWARD"}
        return None


@contextmanager
def running_registry() -> Iterator[FakeRegistry]:
    """A registry for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            registry.asked.append(self.path)
            allowed = self.headers.get("authorization") == f"Basic {base64.b64encode(PASSWORD.encode()).decode()}"
            found = registry.find(parts.path, parse_qs(parts.query)) if allowed else None
            self.send_response(200 if found is not None else 404 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry = FakeRegistry(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
