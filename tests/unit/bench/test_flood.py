"""A flood keeps requests unanswered and looks at how answers begin; the floor stores or sends what it should."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from bench.clients.flood import Flood
from bench.clients.flood_requests import Repeated
from bench.clients.sockets import deliveries
from bench.floor import Floor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FRAME = (96).to_bytes(4, "big") + b"f" * 96
NOWHERE = slice(0)


def core() -> tuple[int]:
    return (min(os.sched_getaffinity(0)),)


@contextmanager
def serve_one(answer: Callable[[int], bytes]) -> Iterator[int]:
    """A server that answers the frames of one connection, each by its number; gives its port."""

    def serve() -> None:
        with listener.accept()[0] as connection:
            number = 0
            try:
                while len(connection.recv(len(FRAME), socket.MSG_WAITALL)) == len(FRAME):
                    connection.sendall(answer(number))
                    number += 1
            except ConnectionError:  # a flood that saw an error leaves in the middle
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1]
        server.join()


def test_what_the_floor_appends_is_what_it_was_sent(tmp_path: Path) -> None:
    with (
        Floor(core(), "append", str(tmp_path), "3") as floor,
        Flood.at(floor.port, [Repeated(FRAME, slice(4, 10)) for _ in range(2)]) as flood,
    ):
        load = flood.run(0.05)
    assert load.requests >= 10
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert sizes == {f"{number}.log": load.requests * (len(FRAME) // 3) for number in range(3)}


def test_what_the_floor_sends_is_the_beginning_of_a_file(tmp_path: Path) -> None:
    file, size = tmp_path / "sent", 3_000_000
    file.write_bytes(bytes(size))
    with (
        Floor(core(), "send", str(file), str(size)) as floor,
        Flood.at(floor.port, [Repeated(FRAME, NOWHERE, least=size)]) as flood,
    ):
        assert flood.run(0.05).requests >= 5


@pytest.mark.parametrize("size", [0, 100, 5000, 3_000_000])
def test_answers_of_all_sizes_are_counted_and_none_is_left_over(size: int) -> None:
    answer = (size + 2).to_bytes(4, "big") + bytes(2 + size)
    with (
        serve_one(lambda number: answer) as port,
        Flood.at(port, [Repeated(FRAME, slice(4, 6), least=size)]) as flood,
    ):
        assert flood.run(0.01).requests >= 5
        assert flood.run(0.01).requests >= 5


def test_an_answer_with_an_error_ends_the_flood() -> None:
    with (
        serve_one(lambda number: b"\0\0\0\2\0" + bytes([number > 7])) as port,
        Flood.at(port, [Repeated(FRAME, slice(4, 6))]) as flood,
        pytest.raises(RuntimeError, match="answered"),
    ):
        flood.run(5)


def test_a_connection_whose_requests_nobody_reads_does_not_hold_up_another() -> None:
    """Time spent in a blocking send is no processor time: the client would be the limit without a sign of it."""
    large = (1 << 24).to_bytes(4, "big") + bytes(1 << 24)
    answered_meanwhile = 0

    def serve() -> None:
        nonlocal answered_meanwhile
        with listener.accept()[0] as unread, listener.accept()[0] as other:
            other.settimeout(10)
            for _ in range(20):
                if len(other.recv(len(FRAME), socket.MSG_WAITALL)) < len(FRAME):
                    break
                other.sendall(bytes([0, 0, 0, 2, 0, 0]))
                answered_meanwhile += 1
            for connection in (unread, other):
                connection.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        with (
            Flood.at(listener.getsockname()[1], [Repeated(large, slice(4, 6)), Repeated(FRAME, slice(4, 6))]) as flood,
            pytest.raises(ConnectionError),
        ):
            flood.run(10)
        server.join()
    assert answered_meanwhile == 20


def test_the_relay_answers_who_waits_with_as_many_bytes_as_came() -> None:
    fetch, produce = ((60).to_bytes(4, "big") + key + bytes(58) for key in (b"\0\1", b"\0\0"))
    with Floor(core(), "relay") as floor:
        assert len(deliveries(floor.port, lambda offset: fetch, produce, 20, 1000.0)) == 20
