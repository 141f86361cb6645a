"""Why TLS or SASL does not come about.

librdkafka tells it to its error callback, goes on trying, and says in the end only that nobody answered. So the last
such error of each broker is kept here, to be told in place of the silence. A broker that takes no connection since does
not keep us out any more: it may only have stopped in the middle of a login, and be back in a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import LoginFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_CONNECTED: Final = "in state CONNECT"
"""How librdkafka ends what it says of a broker that takes no connection. Its code does not tell: every other time, a
certificate that is not trusted has the same one."""


CONNECT_SECONDS: Final = 3.0


def require_login(bootstrap_servers: str, properties: Mapping[str, Any]) -> None:
    """Raise BrokerUnreachable at once, with the reason, where librdkafka would try for minutes.

    For tools, before they open a client of librdkafka: it costs a connection, and where there is TLS or a login that,
    too. A client that brings neither is served by one plain request, without loading what others need.
    """
    from barnabas.clients.security import security_properties
    from barnabas.clients.wire import topic_list

    security = security_properties(properties)
    if not security and topic_list.is_served(bootstrap_servers, CONNECT_SECONDS):
        return
    from barnabas.clients.wire.diagnosis import check_login

    check_login(bootstrap_servers, security, CONNECT_SECONDS)


class LoginErrors:
    """An error callback of librdkafka."""

    def __init__(self) -> None:
        self._by_broker: dict[str, str] = {}

    def __call__(self, error: Any) -> None:
        """Keep it, if it is about TLS or SASL; if it is that the broker is gone, what was before is over."""
        told = error.str()
        broker = told.partition(": ")[0]  # as ssl://host:9092/1
        if error.code() in (error._AUTHENTICATION, error._SSL):
            self._by_broker.pop(broker, None)
            self._by_broker[broker] = told
        elif NOT_CONNECTED in told:
            self._by_broker.pop(broker, None)

    def forget(self) -> None:
        """A broker has answered: what was before is over."""
        self._by_broker.clear()

    @property
    def failure(self) -> LoginFailed | None:
        """The last one that still holds."""
        return LoginFailed(list(self._by_broker.values())[-1]) if self._by_broker else None
