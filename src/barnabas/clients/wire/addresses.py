"""Where brokers are: lists of addresses as bootstrap.servers has them, and a first connection to one of them."""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

from barnabas.clients.errors import AddressInvalid, AddressUnknown, BrokerUnreachable

DEFAULT_PORT: Final = 9092
NO_SUCH_HOST: Final = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))
"""What the system says of a name that nobody has; that it could not ask is something else, and may pass."""


class Connected(NamedTuple):
    """A connection, the host's name as it was given, and the addresses that come after this one."""

    socket: socket.socket
    host: str
    others: str


def connect(bootstrap_servers: str, timeout: float) -> Connected:
    """A connection to the first address that takes one; BrokerUnreachable says what happened at each of them.

    It is AddressInvalid if none of them is an address, and AddressUnknown if no host has any of their names.
    """
    failures = []
    kind: type[BrokerUnreachable] = AddressInvalid
    addresses = [part.strip() for part in bootstrap_servers.split(",") if part.strip()]
    for number, address in enumerate(addresses, 1):
        try:
            host, port = split_address(address)
            plain = socket.create_connection((host, port), timeout)
            return Connected(plain, host, ",".join(addresses[number:]))
        except ValueError as error:
            failures.append(str(error))
        except TimeoutError:
            failures.append(f"{address} (no answer within {timeout:g} s)")
            kind = BrokerUnreachable
        except OSError as error:
            failures.append(f"{address} ({(error.strerror or str(error)).lower()})")
            if not isinstance(error, socket.gaierror) or error.errno not in NO_SUCH_HOST:
                kind = BrokerUnreachable
            elif kind is AddressInvalid:
                kind = AddressUnknown
    raise kind(f"no broker answers at {', '.join(failures) or 'an empty list of addresses'}")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of HOST, HOST:PORT, [IPV6]:PORT or PROTOCOL://HOST:PORT."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or (":" in host and not host.endswith("]")):
        host, port = address, str(DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{address} (not an address of the form HOST:PORT)")
    return host.strip("[]"), int(port)
