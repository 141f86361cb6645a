"""TLS in front of a broker that has none: a certificate of one's own, and a relay that shows it to clients."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

import trustme

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, its key, and that of the authority that vouches for it."""

    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def made(cls, folder: Path, name: str) -> Certificate:
        """A new one for 127.0.0.1, by an authority of its own."""
        found = cls(folder / f"{name}-ca.pem", folder / f"{name}.pem", folder / f"{name}.key")
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        authority.cert_pem.write_to_path(found.authority)
        issued.cert_chain_pems[0].write_to_path(found.certificate)
        issued.private_key_pem.write_to_path(found.key)
        return found


class TlsRelay:
    """Takes connections with TLS and hands what they say on to `target`, a port of this host, without it."""

    def __init__(self, shown: Certificate) -> None:
        self.target = 0
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(shown.certificate, shown.key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=self._context))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_pump(reader, broker_writer), _pump(broker_reader, writer))


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()
