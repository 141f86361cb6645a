"""OpenSSL between two buffers: records cut in any way, and clients that send what they should not."""

from __future__ import annotations

import random
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.model.errors import InvalidFrame
from barnabas.net.tls import HEAD, LARGEST, MOST_SEALED, MOST_WITHOUT_DATA, RECEIVED_MORE, RECORD, TlsPipe
from tests.support.servers import TlsSides
from tests.support.tls_records import SUITE, ForgedRecords

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
CUTS = [1, 2, HEAD - 1, HEAD, HEAD + 1, 21, RECORD, RECORD + HEAD, RECEIVED_MORE]


class Client:
    """The other end of a pipe."""

    def __init__(self, sides: TlsSides) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl = sides.client.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self.pipe = TlsPipe(sides.server.context)
        ends: dict[ssl.SSLObject, bool] = {self.ssl: False, self.pipe.ssl: False}
        while not all(ends.values()):
            for end in ends:
                try:
                    end.do_handshake()
                    ends[end] = True
                except ssl.SSLWantReadError:
                    pass
            self._incoming.write(self.pipe.outgoing.read())
            if not ends[self.pipe.ssl]:
                self.pipe.incoming.write(self._outgoing.read())
        self.pipe.end_handshake()

    def seal(self, data: bytes) -> bytes:
        """One record or more."""
        self.ssl.write(data)
        return self._outgoing.read()

    def farewell(self) -> bytes:
        """What ends the stream."""
        with pytest.raises(ssl.SSLWantReadError):
            self.ssl.unwrap()
        return self._outgoing.read()


def received(pipe: TlsPipe, pieces: list[bytes], room: int = RECORD) -> bytes:
    """What the pipe makes of pieces that arrive one after the other in the same buffer."""
    buffer, into = memoryview(bytearray(max(map(len, pieces)))), memoryview(bytearray(room))
    data = b""
    for piece in pieces:
        buffer[: len(piece)] = piece
        pipe.take(buffer[: len(piece)])
        while pipe.has_more and (count := pipe.decrypt(into)):
            data += into[:count]
        pipe.keep()
        buffer[:] = bytes(len(buffer))
    return data


def cut(data: bytes, size: int) -> list[bytes]:
    """The same in pieces."""
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def client(request: pytest.FixtureRequest) -> Client:
    """A client of each version whose handshake is done."""
    sides = TlsSides.made()
    sides.client.minimum_version = sides.client.maximum_version = request.param
    return Client(sides)


@pytest.fixture
def forged(tmp_path: Path) -> tuple[TlsPipe, ForgedRecords]:
    """A pipe, and records for it that no client of Python's can make."""
    sides = TlsSides.made()
    sides.client.keylog_filename = str(tmp_path / "keys")
    client = Client(sides)
    assert client.ssl.cipher() is not None and client.ssl.cipher()[0] == SUITE  # type: ignore[index]
    return client.pipe, ForgedRecords(tmp_path / "keys")


@pytest.mark.parametrize("size", CUTS)
def test_records_may_be_cut_anywhere(client: Client, size: int) -> None:
    sizes = [1, 0x101, 700, 4096, RECORD - 1, RECORD, RECORD, 3, 5 * RECORD, 2]
    data = [random.Random(size).randbytes(count) for count in sizes]
    assert received(client.pipe, cut(b"".join(map(client.seal, data)), size)) == b"".join(data)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_busy_connection_leaves_is_decrypted_later(client: Client, seed: int) -> None:
    """It takes some of what has arrived, keeps the rest, and goes on whenever it can."""
    dice = random.Random(seed)
    data = [dice.randbytes(dice.choice([1, 30, 900, RECORD, 40_000])) for _ in range(12)]
    sealed, wanted, found = b"".join(map(client.seal, data)), b"".join(data), b""
    room = memoryview(bytearray(dice.choice([1_000, RECORD, 100_000])))
    while sealed or client.pipe.has_more:
        size = dice.choice([1, 3, HEAD, 100, RECORD, 60_000])
        piece, sealed = bytearray(sealed[:size]), sealed[size:]
        client.pipe.take(memoryview(piece))
        for _ in range(dice.randrange(4) if sealed else 1_000):
            found += room[: client.pipe.decrypt(room)]
        client.pipe.keep()
        piece[:] = bytes(len(piece))
    assert found == wanted


def test_what_comes_with_the_end_of_the_handshake_is_not_lost() -> None:
    for kept in (0, 1, HEAD, 30, 100):
        client = Client(TlsSides.made())
        sealed = client.seal(b"first") + client.seal(b"second")
        client.pipe.incoming.write(sealed[:kept])
        client.pipe.end_handshake()
        room = memoryview(bytearray(RECORD))
        found = bytes(room[: client.pipe.decrypt(room)])
        if sealed[kept:]:
            found += received(client.pipe, [sealed[kept:]])
        assert found == b"firstsecond"


def test_openssl_never_waits_for_the_rest_of_a_record(client: Client) -> None:
    """It would say so by an exception, for each record anew: a quarter of the time that decryption takes."""
    waits = 0
    read = client.pipe.ssl.read

    class Watched:
        """OpenSSL, watched."""

        pending = client.pipe.ssl.pending

        def read(self, *args: Any) -> Any:
            nonlocal waits
            try:
                return read(*args)
            except ssl.SSLWantReadError:
                waits += 1
                raise

    client.pipe.ssl = Watched()  # type: ignore[assignment]
    data = bytes(500_000)
    assert received(client.pipe, cut(client.seal(data), 20_000)) == data
    assert waits == 0


def test_a_farewell_ends_the_stream(client: Client) -> None:
    assert received(client.pipe, cut(client.seal(b"last") + client.farewell(), 7)) == b"last"
    assert client.pipe.is_ended
    assert not client.pipe.has_more


@pytest.mark.parametrize("size", [1, HEAD - 1, HEAD, 4 * RECORD])
def test_a_record_that_is_too_long_is_refused_by_its_head(client: Client, size: int) -> None:
    head = client.seal(b"x")[:3] + (MOST_SEALED + 1).to_bytes(2, "big")
    with pytest.raises(ssl.SSLError):
        received(client.pipe, cut(head, size))


@pytest.mark.parametrize("size", [HEAD, 1_000, RECEIVED_MORE])
def test_garbage_is_refused(client: Client, size: int) -> None:
    with pytest.raises(ssl.SSLError):
        received(client.pipe, cut(random.Random(size).randbytes(100_000), size))


def test_data_between_key_updates_arrives(forged: tuple[TlsPipe, ForgedRecords]) -> None:
    """However much of it there is, and wherever what arrives at once ends."""
    pipe, records = forged
    data = bytes(number % 251 for number in range(3_000))
    sealed = b"".join(
        records.key_update() + records.record(b"") + records.record(bytes([number])) + records.key_update()
        for number in data
    )
    assert received(pipe, cut(sealed, 5_000)) == data


@pytest.mark.parametrize("size", [100, RECORD, RECEIVED_MORE])
def test_key_updates_without_end_are_refused_before_all_of_them_were_followed(
    forged: tuple[TlsPipe, ForgedRecords], size: int
) -> None:
    """However many have come at once."""
    pipe, records = forged
    flood = b"".join(records.key_update() for _ in range(RECEIVED_MORE // 20))
    with pytest.raises(InvalidFrame, match="without a byte of data"):
        received(pipe, cut(flood, size))
    assert pipe.without_data <= MOST_WITHOUT_DATA + LARGEST
