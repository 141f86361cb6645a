"""The shell of a controller: one request at a time, decided by the rules, written to the tree, sent to the others."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.static.primitive import i64

from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import Registered
from barnabas.metadata.images.announcements import announcements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.machines.controller.changes import Change
    from barnabas.machines.controller.decision import Answer, Key
    from barnabas.machines.controller.image import BrokerImage, ClusterImage
    from barnabas.machines.controller.requests import Request
    from barnabas.machines.outcome import Outcome
    from barnabas.metadata.images.announcements import Announcement
    from tests.simulation.broker import Broker

_TIMEOUT = 25.0
"""How long an updater waits for an answer (ms)."""


class ActiveController:
    """A broker's term as controller."""

    def __init__(self, broker: Broker, term: int) -> None:
        self._broker = broker
        self._tree = broker.tree
        self._term = term
        self._requests: deque[tuple[Request, Callable[[dict[Key, Answer] | None], None]]] = deque()
        self._busy = False
        self._updaters: dict[tuple[int, int], BrokerUpdater] = {}
        self._machine = ControllerMachine(self._tree.image(), broker.mistakes.defaults, lambda: UUID(int=1))
        self.is_over = False
        self._requests.append((Registered(dict(self._tree.brokers), self._tree.restarted()), lambda _: None))
        self._next()

    @property
    def image(self) -> ClusterImage:
        """The cluster as decided so far."""
        return self._machine.image

    def ask(self, request: Request, reply: Callable[[dict[Key, Answer] | None], None]) -> None:
        """Decide when it is this request's turn; None is the answer of a controller that was replaced."""
        if self.is_over:
            reply(None)
            return
        self._requests.append((request, reply))
        self._next()

    def brokers_changed(self) -> None:
        """Look who is registered."""
        if self._tree.brokers != self._machine.image.brokers:
            self.ask(Registered(dict(self._tree.brokers)), lambda _: None)

    def end(self) -> None:
        """Another broker is the controller."""
        self.is_over = True
        for updater in self._updaters.values():
            updater.dismissed = True
        for _, reply in self._requests:
            reply(None)
        self._requests.clear()

    def _next(self) -> None:
        if self._busy or not self._requests:
            return
        self._busy = True
        request, reply = self._requests.popleft()
        outcome = self._machine.handle(request)
        world = self._broker.world
        world.after(world.random.random(), self._write, outcome, reply)

    def _write(self, outcome: Outcome[Change, Key, Answer], reply: Callable[[Any], None]) -> None:
        """On its way to the tree already, so it arrives even if the process is no more."""
        stored = self._tree.write(self._term, outcome.changes)
        self._broker.after(self._broker.world.random.random(), self._stored, stored, outcome, reply)

    def _stored(self, stored: bool, outcome: Outcome[Change, Key, Answer], reply: Callable[[Any], None]) -> None:
        self._busy = False
        if self.is_over or not stored:
            self.end()
            reply(None)
            return
        self._machine.replay(outcome.changes)
        self._publish()
        reply(dict(outcome.replies))
        self._next()

    def _publish(self) -> None:
        image = self._machine.image
        self._broker.decided(image)
        wanted = {
            (each.broker_id, each.epoch): each for each in image.brokers.values() if each.broker_id != self._broker.host
        }
        for key in self._updaters.keys() - wanted.keys():
            self._updaters.pop(key).dismissed = True
        for key, each in wanted.items():
            if key not in self._updaters:
                self._updaters[key] = BrokerUpdater(self._broker, each)
            self._updaters[key].publish(image)


class BrokerUpdater:
    """Sends one registration of a broker what differs from what it has acknowledged."""

    def __init__(self, broker: Broker, target: BrokerImage) -> None:
        self._broker = broker
        self._target = target
        self._newest: ClusterImage | None = None
        self._acknowledged: ClusterImage | None = None
        self._attempt = 0
        self._on_the_way = False
        self.dismissed = False

    def publish(self, image: ClusterImage) -> None:
        """Send this image instead of any that was not sent yet."""
        self._newest = image
        if not self._on_the_way:
            self._tell()

    def _tell(self) -> None:
        image = self._newest
        if self.dismissed or image is None or image is self._acknowledged:
            self._on_the_way = False
            return
        self._on_the_way = True
        self._send(image, announcements(self._acknowledged, image, self._target))

    def _send(self, image: ClusterImage, rest: Iterator[Announcement]) -> None:
        message = next(rest, None)
        if message is None:
            self._acknowledged = image
            self._tell()
            return
        self._attempt += 1
        attempt = self._attempt

        def answered(taken: bool) -> None:
            if self._attempt == attempt and not self.dismissed:
                self._attempt += 1
                if taken:
                    self._send(image, rest)
                else:
                    self.dismissed = True

        self._broker.ask(self._target.broker_id, "apply_update", replace(message, number=i64(attempt)), answered)
        self._broker.after(_TIMEOUT, self._give_up, attempt)

    def _give_up(self, attempt: int) -> None:
        """A message that was not answered may have been applied: everything is sent anew."""
        if self._attempt == attempt and not self.dismissed:
            self._attempt += 1
            self._acknowledged = None
            self._tell()
