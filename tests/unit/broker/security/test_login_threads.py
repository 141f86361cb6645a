"""What strangers can ask for before they have logged in holds up nothing else, and takes a limited amount of memory."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.security import delegation_tokens, login_threads, oauth_tokens
from barnabas.broker.security.delegation_tokens import DelegationTokens
from barnabas.broker.security.login_threads import MOST_MESSAGES, THREADS, LoginThreads
from barnabas.machines.security.delegation_tokens import TokenParties
from barnabas.machines.security.login_step import LoginRefused
from barnabas.machines.security.oauthbearer import BearerMessage
from barnabas.machines.security.scram import BY_TITLE, ScramCredential, read_opening
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from pathlib import Path

CROWD = 64
"""More than the event loop's own threads, of which there are 32 at most."""
SCRAM = BY_TITLE["SCRAM-SHA-256"]


class Gate:
    """Work that takes until the test says so."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.begun = 0

    def work(self, *_: object) -> Any:
        self.begun += 1
        assert self.opened.wait(60)
        raise LoginRefused("enough")


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


async def crowd_leaves_the_brokers_own_threads_alone(gate: Gate, logins: list[Awaitable[object]]) -> None:
    crowd = [asyncio.ensure_future(login) for login in logins]
    await until(lambda: gate.begun > 0)
    async with asyncio.timeout(20):
        assert await asyncio.gather(*(asyncio.to_thread(int, "7") for _ in range(3))) == [7, 7, 7]
    gate.opened.set()
    results = await asyncio.gather(*crowd, return_exceptions=True)
    assert {str(each) for each in results} == {"enough"}


async def test_a_crowd_of_tokens(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth_tokens, "verify", gate.work)
    settings = {
        "listeners": "PLAINTEXT://:9092,LOGIN://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": "file:///keys",
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": "file:///keys",
        "sasl.oauthbearer.expected.issuer": "me",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    values = BrokerConfig.load(settings).of_listener("LOGIN").of_mechanism("OAUTHBEARER")
    checked = oauth_tokens.OAuthTokens(values, ManualClock(0), lambda url: KEYS)
    message = BearerMessage("e30.e30.e30", "")
    await crowd_leaves_the_brokers_own_threads_alone(gate, [checked.check(message) for _ in range(CROWD)])


async def test_a_crowd_of_delegation_tokens(gate: Gate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "metadata")
    await store.start()
    settings: Any = BrokerConfig.load({})
    tokens = DelegationTokens("key", settings, lambda: store, ManualClock(0))
    token = await tokens.create(TokenParties("User:a", "User:a", ()), -1)
    decoy = ScramCredential.of_password(SCRAM, "none", b"salt")
    opening = read_opening(f"n,,n={token.token_id},r=x,tokenauth=true".encode())

    class Slow(ScramCredential):
        of_password = gate.work  # type: ignore[assignment]

    monkeypatch.setattr(delegation_tokens, "ScramCredential", Slow)
    logins: list[Awaitable[object]] = [tokens.find_scram(SCRAM, opening, decoy) for _ in range(CROWD)]
    await crowd_leaves_the_brokers_own_threads_alone(gate, logins)
    await store.close()


async def test_messages_that_wait_have_a_limit_of_bytes(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_threads, "MOST_BYTES", 100 + 2 * login_threads.OVERHEAD)
    threads = LoginThreads("GSSAPI")
    first = asyncio.ensure_future(threads.run(gate.work, 60))
    second = asyncio.ensure_future(threads.run(gate.work, 40))
    await until(lambda: gate.begun == 2)
    with pytest.raises(LoginRefused, match="too many others log in by GSSAPI"):
        await threads.run(int, 1)
    second.cancel()
    await asyncio.wait((second,))
    with pytest.raises(LoginRefused, match="too many others"):
        await threads.run(int, 1)
    gate.opened.set()
    with pytest.raises(LoginRefused, match="enough"):
        await first
    await until(lambda: threads._bytes == 0)
    assert await threads.run(int, 100) == 0


async def test_empty_messages_that_wait_have_a_limit(gate: Gate) -> None:
    threads = LoginThreads("GSSAPI")
    crowd = [asyncio.ensure_future(threads.run(gate.work, 0)) for _ in range(20_000)]
    await until(lambda: gate.begun == THREADS)
    waiting = [each for each in crowd if not each.done()]
    assert len(waiting) == MOST_MESSAGES
    gate.opened.set()
    results = await asyncio.gather(*crowd, return_exceptions=True)
    assert sum(str(each) == "enough" for each in results) == gate.begun == MOST_MESSAGES
    assert await threads.run(int, 0) == 0


async def test_nothing_is_done_for_clients_that_left_while_they_waited(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    threads = LoginThreads("GSSAPI")
    crowd = [asyncio.ensure_future(threads.run(gate.work, 0)) for _ in range(MOST_MESSAGES)]
    await until(lambda: gate.begun == THREADS)
    for each in crowd:
        each.cancel()
    await asyncio.wait(crowd)
    last = asyncio.ensure_future(threads.run(gate.work, 0))
    await asyncio.sleep(0)
    assert threads._messages == THREADS + 1
    gate.opened.set()
    with pytest.raises(LoginRefused, match="enough"):
        await last
    assert gate.begun == THREADS + 1
    await until(lambda: threads._messages == 0 and threads._bytes == 0)
    gc.collect()
    assert caplog.text == ""


KEYS = (
    b'{"keys":[{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"one",'
    b'"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}'
)
