"""How a broker logs in to others by GSSAPI (RFC 4752): with tickets that the system's library gets by its keytab.

The library asks the KDC when it has no ticket, or an old one, which may take long: it does so in threads of its own, of
which a few may be busy at a time. Tickets are kept in memory. The other broker has to prove itself, too.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.broker.daemon_threads import in_daemon_thread
from barnabas.broker.security.kerberos import MOST_ROUNDS, NO_LAYER, load_gssapi
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.model.config.sasl import TicketLogin

    Exchange = Callable[[bytes], Awaitable[bytes]]
    """Sends a message to the other broker; gives its answer."""

T = TypeVar("T")
THREADS: Final = 4
CHOICE: Final = bytes((NO_LAYER, 0, 0, 0))
"""No security layer, and so no size of a wrapped message; then the name to act as, which nobody looks at."""
_numbers: Final = itertools.count()


class KerberosClientError(BarnabasError):
    """No ticket, or the other broker is none."""


class KerberosClient:
    """Logs in as one principal."""

    def __init__(self, login: TicketLogin) -> None:
        self._login = login
        self._threads = asyncio.Semaphore(THREADS)
        self._cache = f"MEMORY:barnabas-{next(_numbers)}"

    async def log_in(self, host: str, exchange: Exchange) -> None:
        """Go through the dialogue with the broker of a host. Raises KerberosClientError."""
        context = await self._run(self._context, host)
        answer, rounds = b"", 0
        while not context.complete:
            rounds += 1
            if rounds > MOST_ROUNDS:
                raise KerberosClientError("the context of GSSAPI takes too many messages")
            message = await self._run(context.step, answer or None)
            if message or not context.complete:
                answer = await exchange(message or b"")
                if context.complete:
                    break
            else:
                answer = await exchange(b"")
        await exchange(await self._run(_choose_layer, context, answer))

    def _context(self, host: str) -> Any:
        gssapi, login = load_gssapi(), self._login
        credentials = gssapi.Credentials(
            name=gssapi.Name(login.principal, gssapi.NameType.kerberos_principal),
            usage="initiate",
            mechs=[gssapi.MechType.kerberos],
            store={"client_keytab": f"FILE:{login.keytab}", "ccache": self._cache},
        )
        return gssapi.SecurityContext(
            name=gssapi.Name(f"{login.service}@{host}", gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            flags=[gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity],
            usage="initiate",
        )

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        """Call the library in a thread, which counts as busy until it has ended. Raises KerberosClientError."""
        await self._threads.acquire()
        running = in_daemon_thread("kerberos-login", function, *args)
        running.add_done_callback(self._end)
        try:
            return await asyncio.shield(running)
        except load_gssapi().exceptions.GSSError as error:
            raise KerberosClientError(f"Kerberos gives no login as {self._login.principal}: {error}") from None

    def _end(self, done: asyncio.Future[Any]) -> None:
        self._threads.release()
        if not done.cancelled():
            done.exception()  # whoever waited for it may have left


def _choose_layer(context: Any, offer: bytes) -> bytes:
    """The answer to the layers that the other broker offers."""
    layers: bytes = context.unwrap(offer).message
    if len(layers) < len(CHOICE) or not layers[0] & NO_LAYER:
        raise KerberosClientError("the other broker wants a security layer of GSSAPI, which this one does not have")
    wrapped: bytes = context.wrap(CHOICE, False).message
    return wrapped
