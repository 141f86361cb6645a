"""A broker in this process whose clients log in, and the login spoken directly."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.broker.app import App
from barnabas.broker.assembly import BrokerOptions
from barnabas.machines.security.scram import BY_TITLE, ScramClient
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.server import Server
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping
    from pathlib import Path

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
HANDSHAKE, AUTHENTICATE, API_VERSIONS, METADATA = 17, 36, 18, 3
SETTINGS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="wonder" user_bob="builder";',
    "connection.failed.authentication.delay.ms": "0",
}


class LoginBroker:
    """Where the broker listens, and the broker itself; its event loop runs in another thread."""

    def __init__(
        self, app: App, server: Server, open_address: str, login_address: str, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.app = app
        self.server = server
        self.open_address = open_address
        """Without a login."""
        self.login_address = login_address
        self._loop = loop

    def call(self, function: Any) -> Any:
        """What a function gives on the broker's event loop."""

        async def run() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine gives on the broker's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def add_user(self, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
        """Let somebody log in by SCRAM."""
        chosen = BY_TITLE[mechanism]
        upsertion = {
            "name": name,
            "mechanism": chosen.number,
            "iterations": 4096,
            "salt": b"salt",
            "salted_password": chosen.salted_password(password, b"salt", 4096),
        }
        with Connection(self.open_address) as admin:
            (result,) = admin.ask(51, 0, {"deletions": [], "upsertions": [upsertion]}).results
        assert result.error_code.value == 0, result


@contextmanager
def login_broker(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[LoginBroker]:
    """A broker with a listener that asks for a login, and one that does not."""
    config = BrokerConfig.load({**SETTINGS, "log.dirs": str(folder / "data"), **(settings or {})})
    started: list[LoginBroker] = []
    failed: list[BaseException] = []
    servers: list[Server] = []
    ready = threading.Event()

    def make_server(*parts: Any) -> Server:
        servers.append(Server(*parts))
        return servers[0]

    async def main() -> None:
        stopping = asyncio.Event()
        app = App(config, BrokerOptions(make_server=make_server))
        try:
            listeners = {each.name: each.port for each in (await app.start()).listeners}
            loop = asyncio.get_running_loop()
            open_address, login_address = (f"127.0.0.1:{listeners[name]}" for name in ("PLAINTEXT", "LOGIN"))
            started.append(LoginBroker(app, servers[0], open_address, login_address, loop))
            stop.append(lambda: loop.call_soon_threadsafe(stopping.set))
            ready.set()
            await stopping.wait()
        finally:
            await app.stop()

    def run() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # whoever waits for the start is told
            failed.append(error)
            ready.set()

    stop: list[Any] = []
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        if failed:
            raise failed[0]
        yield started[0]
    finally:
        for end in stop:
            end()
        thread.join(60)
    if failed:
        raise failed[0]


def shake_hands(connection: Connection, mechanism: str, version: int = 1) -> Any:
    """Choose a mechanism."""
    return connection.ask(HANDSHAKE, version, {"mechanism": mechanism})


def authenticate(connection: Connection, message: bytes, version: int = 2) -> Any:
    """Send a message of the mechanism."""
    return connection.ask(AUTHENTICATE, version, {"auth_bytes": message})


def log_in(connection: Connection, mechanism: str, name: str, password: str, version: int = 2) -> Any:
    """Log in; gives the last answer."""
    assert shake_hands(connection, mechanism).error_code.value == 0
    if mechanism == "PLAIN":
        return authenticate(connection, f"\0{name}\0{password}".encode(), version)
    client = ScramClient(BY_TITLE[mechanism], name, password, "nonce")
    challenge = authenticate(connection, client.opening, version)
    last = authenticate(connection, client.prove(challenge.auth_bytes), version)
    if last.error_code.value == 0:
        client.check(last.auth_bytes)
    return last


def is_served(connection: Connection) -> bool:
    """Whether the broker answers a request that needs a login."""
    return bool(connection.ask(METADATA, 9, {"topics": []}).brokers)
