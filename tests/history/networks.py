"""Hosts on this host: each broker in a network namespace of its own, so that the network between them can fail.

All hosts hang on one bridge. What a host sends to another is lost when its neighbour table names a hardware address
that nobody has: one-way, at once, for open connections too, and without an error at either end, as on a real network.
Nothing ever leaves this host: when a network is gone, a client that is still there finds its addresses unreachable, and
not somebody else's, until the process ends. Needs Linux, root and iproute2, nothing else.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
from typing import TYPE_CHECKING, Final, Self

from tests.support.clusters import Cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NOBODY: Final = "02:00:00:00:00:fe"
CLIENTS: Final = 254
"""The number of this host, where the clients are."""
STORE: Final = 253
"""The number of the host for a ZooKeeper."""
LAST_RESORT: Final = 2**31
"""The metric of a route that others go before."""


class Network:
    """Hosts 1 to `size` for brokers, one for a ZooKeeper, and this one; as a context manager it is gone at the end."""

    def __init__(self, size: int) -> None:
        _require()
        self._tag = secrets.token_hex(3)
        self._bridge = f"bn{self._tag}"
        self.brokers = range(1, size + 1)
        self._hosts = (*self.brokers, STORE)
        self.prefix = f"10.{secrets.randbelow(200) + 20}.{secrets.randbelow(250)}"
        self._seal()
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.address(CLIENTS)}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for number in self._hosts:
                self._add(number)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take it down; the processes in it have ended before."""
        for number in self._hosts:
            _ip("netns", "del", self._space(number), check=False)
            _ip("link", "del", self._wire(number), check=False)
        _ip("link", "del", self._bridge, check=False)

    def address(self, number: int) -> str:
        """The address of a host."""
        return f"{self.prefix}.{number}"

    def inside(self, number: int) -> list[str]:
        """The words before a command that run it on a host."""
        return ["ip", "netns", "exec", self._space(number)]

    def cut(self, source: int, target: int) -> None:
        """Lose what `source` sends to `target`; the other way stays open."""
        self._neighbour(source, "replace", self.address(target), "lladdr", NOBODY, "nud", "permanent")

    def join(self, source: int, target: int) -> None:
        """Undo `cut`."""
        self._neighbour(source, "del", self.address(target))

    def _seal(self) -> None:
        """Say where the addresses lead once the bridge, whose own route goes before, is not there."""
        route = ("unreachable", f"{self.prefix}.0/24", "metric", str(LAST_RESORT))
        _ip("route", "add", *route)
        atexit.register(_ip, "route", "del", *route, check=False)

    def _neighbour(self, number: int, *words: str) -> None:
        if number == CLIENTS:
            _ip("neigh", *words, "dev", self._bridge)
        else:
            _ip("-n", self._space(number), "neigh", *words, "dev", "eth0")

    def _add(self, number: int) -> None:
        space, wire = self._space(number), self._wire(number)
        _ip("netns", "add", space)
        _ip("link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", wire, "master", self._bridge, "up")
        _ip("-n", space, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def _space(self, number: int) -> str:
        return f"barnabas-{self._tag}-{number}"

    def _wire(self, number: int) -> str:
        return f"v{self._tag}-{number}"


def _require() -> None:
    """Say how to get what is missing."""
    if shutil.which("ip") is None:
        raise AssertionError("network faults need the program ip: install the package iproute2 (Linux only)")
    if os.geteuid() != 0:
        raise AssertionError(
            "network faults need root, to make network namespaces: run these tests as root, for example in a "
            "container with --cap-add NET_ADMIN --cap-add SYS_ADMIN"
        )


def _ip(*words: str, check: bool = True) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Hosts(Cluster):
    """A cluster whose brokers are on hosts of their own."""

    def __init__(
        self, folder: Path, network: Network, settings: Mapping[str, str] | None = None, zookeeper: str | None = None
    ) -> None:
        self._network = network
        super().__init__(folder, len(network.brokers), settings, zookeeper)

    def address(self, broker_id: int) -> str:
        """Where one broker listens."""
        return f"{self._network.address(broker_id)}:9092"

    def inside(self, broker_id: int) -> Sequence[str]:
        """The words before the command of one broker."""
        return self._network.inside(broker_id)
