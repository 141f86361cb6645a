"""The list of topics that is packed by hand: equal to kio's, and given up where there is none to be had."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from kio.schema.metadata.v1.request import MetadataRequest
from kio.schema.metadata.v1.response import MetadataResponse
from kio.schema.types import BrokerId
from kio.serial import entity_reader

from barnabas.clients.wire.topic_list import list_topics, request
from tests.support.kio_messages import written


def test_the_request_is_kafkas() -> None:
    frame = request()
    assert struct.unpack_from(">ihhi", frame) == (len(frame) - 4, 3, 1, 0)
    asked, size = entity_reader(MetadataRequest)(frame, 4 + 8 + 2 + len("barnabas"))
    assert asked == MetadataRequest(topics=None)
    assert size == 4


@pytest.mark.parametrize("bootstrap", ["", "localhost", "localhost:x", ":9092", "localhost:99999", "no.such.host.:1"])
def test_addresses_that_lead_nowhere(bootstrap: str) -> None:
    assert list_topics(bootstrap) is None


@pytest.mark.parametrize("spoken", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", 2) + b"xx"])
def test_something_that_is_no_broker(spoken: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(spoken)

        other = threading.Thread(target=serve)
        other.start()
        assert list_topics(f"127.0.0.1:{server.getsockname()[1]}", timeout=30) is None
        other.join()


def test_the_next_address_is_tried() -> None:
    answer = bytes(4) + written(MetadataResponse(brokers=(), controller_id=BrokerId(1), topics=()))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as gone:
        dead = gone.getsockname()[1]
        gone.close()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

        other = threading.Thread(target=serve)
        other.start()
        assert list_topics(f"127.0.0.1:{dead}, 127.0.0.1:{server.getsockname()[1]}", timeout=30) == []
        other.join()
