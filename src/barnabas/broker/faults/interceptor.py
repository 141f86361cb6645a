"""Serves in front of the dispatcher, and applies faults to requests.

Faults are checked in the order in which they were set, and a request meets at most one: the first that matches it and
has not happened often enough. So two faults for the same API that happen once each happen one after the other.
A fault is for a whole request, whatever else is in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from barnabas.broker.faults.delayed_request import DelayedRequest, give_up, lost
from barnabas.broker.faults.intercepted_request import GROUP_FIELDS, NAME_TOPICS, InterceptedRequest
from barnabas.broker.faults.refusals import refuse
from barnabas.broker.serving.registry import APIS, BY_KEY
from barnabas.model.errors import ErrorCode
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.faults import FaultRule, InvalidFault

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.net.connection import Connection

Serve = Callable[["Connection", memoryview], "Answer | Parked"]


class ActiveFault:
    """A fault, and how often it has happened."""

    def __init__(self, fault: FaultRule) -> None:
        self.fault = fault
        self.fired = 0
        self.held: set[DelayedRequest] = set()
        """The requests and answers that it delays."""
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def is_meant_for(self, connection: Connection, intercepted: InterceptedRequest) -> bool:
        """Whether the fault applies to this request."""
        fault = self.fault
        return (
            (fault.times is None or self.fired < fault.times)
            and (fault.api is None or fault.api is intercepted.api.key)
            and (fault.client_id is None or fault.client_id == intercepted.client_id)
            and (fault.topic is None or intercepted.is_about_topic(fault.topic))
            and (fault.group is None or intercepted.is_about_group(fault.group))
        )

    def happens(self, connection: Connection) -> None:
        """Count one more request that it was applied to."""
        self.fired += 1
        for times, future in self._waiting:
            if self.fired >= times and not future.done():
                future.set_result(None)

    async def has_happened(self, times: int, seconds: float) -> bool:
        """Wait until it was applied this many times; False if the time was over first."""
        if self.fired < times:
            waiting = times, asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await asyncio.wait((waiting[1],), timeout=seconds)
            self._waiting.remove(waiting)
        return self.fired >= times

    def end(self) -> None:
        """End all delays of this fault."""
        for held in list(self.held):
            held.let_go()


class MovedLeader(ActiveFault):
    """A leader moved: each producer that was connected gets NOT_LEADER_OR_FOLLOWER once."""

    def __init__(self, topic: str, partition: int, connections: Collection[Connection]) -> None:
        super().__init__(
            FaultRule(kind="fail", api=ApiKey.PRODUCE, error=ErrorCode.not_leader_or_follower, topic=topic)
        )
        self._partition = partition
        self._connections = set(connections)

    def is_meant_for(self, connection: Connection, intercepted: InterceptedRequest) -> bool:
        """Whether the request is the first of its connection to the partition since."""
        return (
            connection in self._connections
            and super().is_meant_for(connection, intercepted)
            and any(index == self._partition for _, index, _ in intercepted.request.partitions)
        )

    def happens(self, connection: Connection) -> None:
        """The producer of this connection has had its error."""
        self._connections.discard(connection)
        super().happens(connection)


class Interceptor:
    """Serves requests with `serve`, except for those that a fault applies to."""

    def __init__(self, broker: BrokerContext, serve: Serve) -> None:
        self._broker = broker
        self._serve = serve
        self._last_number = 0
        self._numbered: dict[int, ActiveFault] = {}
        self._active: list[ActiveFault] = []

    def serve(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Serve one request, or apply a fault to it."""
        if not self._active:
            return self._serve(connection, frame)
        intercepted = InterceptedRequest.of(self._broker, frame)
        if intercepted is not None:
            for active in self._active:
                if active.is_meant_for(connection, intercepted):
                    active.happens(connection)
                    return self._happen(active, connection, intercepted)
        return self._serve(connection, frame)

    def add(self, fault: FaultRule) -> int:
        """Activate a fault; returns its number. Raises InvalidFault for one that could never apply."""
        _check(fault)
        self._last_number += 1
        active = self._numbered[self._last_number] = ActiveFault(fault)
        self._active.append(active)
        return self._last_number

    def add_move(self, topic: str, partition: int, connections: Collection[Connection]) -> None:
        """Have connected producers find that a leader moved."""
        self._active.append(MovedLeader(topic, partition, connections))

    def find(self, number: int) -> ActiveFault:
        """The fault of this number, also when it was removed."""
        try:
            return self._numbered[number]
        except KeyError:
            raise InvalidFault(f"there is no fault {number}: was the broker restarted?") from None

    def remove(self, number: int) -> ActiveFault:
        """Deactivate a fault and end its delays; it may have been removed before."""
        active = self.find(number)
        self._active = [one for one in self._active if one is not active]
        active.end()
        return active

    def clear(self) -> int:
        """Remove all faults; returns how many there were."""
        active, self._active = self._active, []
        for one in active:
            one.end()
        return sum(not isinstance(one, MovedLeader) for one in active)

    def close(self) -> None:
        """Remove all faults, and close delayed connections: the broker stops."""
        for active in self._active:
            for held in list(active.held):
                held.hang_up()
        self._active = []

    def _happen(self, active: ActiveFault, connection: Connection, intercepted: InterceptedRequest) -> Answer | Parked:
        fault = active.fault
        if fault.kind == "fail":
            return refuse(self._broker, connection, intercepted, fault.error)
        if fault.kind == "drop":
            return HANG_UP if fault.when == "before" else lost(self._serve(connection, intercepted.frame))
        if fault.when == "before":
            frame = memoryview(bytearray(intercepted.frame))  # the buffer that it came in is used for others meanwhile
            held = DelayedRequest(
                fault.seconds,
                lambda: self._serve(connection, frame),
                give_up=lambda: None,
                done=active.held.discard,
            )
        else:
            answer = self._serve(connection, intercepted.frame)
            held = DelayedRequest(
                fault.seconds, lambda: answer, give_up=lambda: give_up(answer), done=active.held.discard
            )
        active.held.add(held)
        return held.parked


def _check(fault: FaultRule) -> None:
    """Refuse a fault that could never apply: a test would wait for it in vain."""
    if fault.api is None:
        return
    api: Any = BY_KEY.get(fault.api.value)
    if api is None:
        served = ", ".join(sorted(each.key.name for each in APIS))
        raise InvalidFault(f"this broker does not serve {fault.api.name}; it serves {served}")
    if fault.kind == "fail" and not api.raw and api.format.errors is None:
        raise InvalidFault(f"answers of {fault.api.name} have no place for an error; drop or delay its requests")
    if fault.topic is not None and fault.api not in NAME_TOPICS:
        raise InvalidFault(f"requests of {fault.api.name} name no topics, so they cannot be told apart by topic")
    if fault.group is not None and fault.api not in GROUP_FIELDS:
        raise InvalidFault(f"requests of {fault.api.name} name no groups, so they cannot be told apart by group")
