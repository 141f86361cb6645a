"""Faults, from Python: what goes wrong on a broker, when and how often.

    with broker.faults.fail("PRODUCE", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        my_program.send_order()
    assert fault.fired == 2

A fault begins when it is made and ends with its `with` block, by `remove()`, or with the test (the fixtures see to
that). It is for requests that arrive while it is there: a fetch that was waiting before is not touched.

Every call asks the broker over its private socket, which takes well under a millisecond: no need to await it.
"""

from __future__ import annotations

import json
import socket
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from barnabas.model.errors import BarnabasError
from barnabas.protocol.faults import InvalidFault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ANSWER_SECONDS: Final = 30.0
LOOK_AGAIN_SECONDS: Final = 0.01


class BrokerFailed(BarnabasError):
    """The broker did not start, or is not running any more; the message says what is known of it."""


class PrivateSocket:
    """The private socket of a broker: a line of JSON each way, one connection per question."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def ask(self, do: str, *, waits: float = 0.0, **words: Any) -> Any:
        """Have something done; raises InvalidFault if it cannot be, BrokerFailed if there is no broker."""
        try:
            with self.connect() as connection:
                connection.settimeout(waits + ANSWER_SECONDS)
                return self.exchange(connection, do, words)
        except OSError as error:
            raise BrokerFailed(f"the broker does not answer at {self.path}: is it running? ({error})") from error

    def connect(self) -> socket.socket:
        """A connection."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.path))
        except BaseException:
            connection.close()
            raise
        return connection

    def exchange(self, connection: socket.socket, do: str, words: dict[str, Any]) -> Any:
        """Ask over a connection that is there."""
        connection.sendall(json.dumps({"do": do, **words}).encode() + b"\n")
        with connection.makefile("rb") as lines:
            line = lines.readline()
        if not line:
            raise ConnectionError("it hung up")
        reply = json.loads(line)
        if "error" in reply:
            raise InvalidFault(reply["error"])
        return reply["answer"]


class Fault:
    """Something that happens to requests until it is removed. As a context manager it is removed at the end."""

    def __init__(self, places: Sequence[tuple[PrivateSocket, int]], description: str) -> None:
        """`places` are the brokers that it was set on, with the number that it has there."""
        self._places = places
        self._description = description
        self._last_fired = dict.fromkeys(places, 0)
        """What each broker said last: one that stopped since says nothing more."""
        self._removed = False

    def __repr__(self) -> str:
        return f"<Fault {self._description}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.remove()

    @property
    def fired(self) -> int:
        """How often it has happened, on all brokers together."""
        if not self._removed:
            self._ask_all("fired")
        return sum(self._last_fired.values())

    def wait(self, times: int = 1, timeout: float = 30.0) -> None:
        """Wait until it has happened so often. Raises TimeoutError; in a coroutine, `await asyncio.to_thread(...)`."""
        deadline = time.monotonic() + timeout
        while (fired := self.fired) < times:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(
                    f"within {timeout:g} s it happened {fired} times and not {times}: {self._description}"
                )
            if len(self._places) > 1:  # nobody knows where it happens next
                time.sleep(min(left, LOOK_AGAIN_SECONDS))
            else:
                ((private, number),) = self._places
                private.ask("wait", number=number, times=times, seconds=left, waits=left)

    def remove(self) -> None:
        """Let it happen no more; requests that it delays go on. Removing twice does nothing."""
        if not self._removed:
            self._removed = True
            self._ask_all("remove")

    def _ask_all(self, do: str) -> None:
        for place in self._places:
            with suppress(InvalidFault, BrokerFailed):  # a broker that stopped since has no faults
                private, number = place
                self._last_fired[place] = int(private.ask(do, number=number))


class Faults(ABC):
    """What can go wrong on one broker, or on the brokers of a cluster.

    `api` is Kafka's name of a request, as "PRODUCE", "FETCH", "METADATA" or "InitProducerId", or "*" for all. The next
    `times` requests are met, or all while the fault is there. `topic`, `group` and `client_id` narrow it down to
    requests that name the topic or group, or come from such a client.
    Faults are looked at in the order in which they were set, and a request meets one at most.
    """

    def fail(
        self,
        api: str,
        error: str | int,
        *,
        times: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Answer requests with an error, as "NOT_LEADER_OR_FOLLOWER" or its number, and do nothing of what they ask."""
        return self._add(f"fail {api} with {error}", "fail", api, times, topic, group, client_id, error=error)

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        when: Literal["before", "after"] = "before",
        times: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Hold requests back, or (`when="after"`) do what they ask and hold their answers back.

        Removing the fault lets everything go on at once, so `delay(api, 3600)` in a `with` holds until its end. The
        requests behind a delayed one on the same connection wait too, as on a slow broker.
        """
        what = f"delay {api} by {seconds:g} s"
        return self._add(what, "delay", api, times, topic, group, client_id, seconds=seconds, when=when)

    def drop(
        self,
        api: str,
        *,
        when: Literal["before", "after"] = "before",
        times: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Close the connection instead of answering: before the request takes effect, or `when="after"` it has."""
        return self._add(f"drop {api} {when} its effect", "drop", api, times, topic, group, client_id, when=when)

    def _add(
        self,
        description: str,
        kind: str,
        api: str,
        times: int | None,
        topic: str | None,
        group: str | None,
        client_id: str | None,
        **words: Any,
    ) -> Fault:
        narrowed: dict[str, Any] = {"times": times, "topic": topic, "group": group, "client_id": client_id}
        conditions = ", ".join(f"{name}={value!r}" for name, value in narrowed.items() if value is not None)
        places = self._set({"kind": kind, "api": api, **narrowed, **words})
        return Fault(places, f"{description}{' (' if conditions else ''}{conditions}{')' if conditions else ''}")

    @abstractmethod
    def rebalance(self, group: str) -> None:
        """Make a group rebalance now.

        Members of a classic group have to join again. A group of the new protocol gets a new epoch and a new
        assignment, which may be the same as before.
        """

    @abstractmethod
    def settle(self) -> None:
        """Wait until everything is served that clients had asked for when they were closed."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all faults; requests that were delayed go on. Costs nothing if there were none."""

    @abstractmethod
    def _set(self, fault: dict[str, Any]) -> list[tuple[PrivateSocket, int]]:
        """Let a fault happen from now on; returns where, and its number there."""


class BrokerFaults(Faults):
    """What can go wrong on one broker."""

    def __init__(self, private: PrivateSocket) -> None:
        self._private = private
        self._touched = False

    def rebalance(self, group: str) -> None:
        """Make a group rebalance now; this broker has to be its coordinator."""
        self._private.ask("rebalance", group=group)

    def move_leader(self, topic: str, partition: int = 0) -> int:
        """Let a partition have a new leader epoch, as when its leader moved; returns the epoch.

        Consumers and waiting producers learn of it, and each producer that was connected before is told once that this
        is not the leader: clients fetch metadata and go on.
        """
        self._touched = True
        return int(self._private.ask("move_leader", topic=topic, partition=partition))

    def advance_retention_clock(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, topic: str | None = None
    ) -> int:
        """Remove what retention would have removed so much later, in one topic or in all; returns how many segments.

        Each call counts from now, and the broker's own clock goes on as before: records that are written afterwards
        are new. Without a time it runs retention as of now, which is enough for `retention.bytes`.
        """
        ahead = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return int(self._private.ask("expire", topic=topic, ahead_ms=round(ahead * 1000)))

    def settle(self) -> None:
        """Wait until everything is served that clients had asked for when they were closed."""
        self._private.ask("settle")

    def log_starts(self, topic: str | None = None) -> dict[str, int]:
        """Where the broker's logs begin, whether it leads them or follows, by topic and partition."""
        return dict(self._private.ask("log_starts", topic=topic))

    def clear(self) -> None:
        """Remove all faults of this broker."""
        if self._touched:
            self._touched = False
            with suppress(BrokerFailed):  # a broker that stopped since has no faults
                self._private.ask("clear")

    def _set(self, fault: dict[str, Any]) -> list[tuple[PrivateSocket, int]]:
        self._touched = True
        return [(self._private, self._private.ask("add", **fault))]
