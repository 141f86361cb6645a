"""Stories that are played on two brokers: what each request was answered, in the order of the story.

A story is written once, with the newest versions of all APIs; it is played again for each version of each API that it
is about. Member ids that brokers invent get names, and everything else in the answers must be the same.
"""

from __future__ import annotations

import contextlib
import itertools
import pprint
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.compat.same.scene import Scene, neutral
from tests.support import group_wire, transaction_wire
from tests.support.waiting import wait_until
from tests.support.wire import Connection, plain, read_response, request

if TYPE_CHECKING:
    from collections.abc import Callable

NEWEST: Final = {**group_wire.NEWEST, **transaction_wire.NEWEST}
MEMBER_ID_REQUIRED: Final = 79
BROKER: Final = "broker"
"""Who asks what brokers ask each other."""
UNORDERED: Final = {
    *("members", "topics", "groups", "topic_partitions", "results", "coordinators"),
    *("topic_results", "results_by_topic_v3_and_below", "results_by_partition"),
}
_NUMBER: Final = itertools.count(1)


class SpoiltStory(AssertionError):
    """An answer with which the story cannot go on; on Apache Kafka that makes it a bad story."""


class Play:
    """One performance of a story, on one broker."""

    def __init__(self, scene: Scene, number: str, key: int, version: int) -> None:
        self.scene = scene
        self.group = f"group-{number}-{scene.tag}"
        self.key = key
        self.version = version
        self.answers: list[Any] = []
        self._names: dict[str, str] = {}
        self._connections: dict[str, Connection] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.socket.close()

    def perform(self, story: Story) -> None:
        """Play it to its end."""
        try:
            story.tell(self)
        except Exception as error:
            self.answers.append(f"{type(error).__name__}: {error}")
            raise SpoiltStory(f"API {self.key} version {self.version}: {self.answers[-3:]}") from error
        finally:
            self.close()

    def send(self, by: str, key: int, body: dict[str, Any]) -> None:
        """Send a request over the connection of a member, without waiting for an answer."""
        if by not in self._connections:
            self._connections[by] = self.scene.connect_as_broker() if by == BROKER else Connection(self.scene.bootstrap)
        self._connections[by].send_frame(request(key, self._version(key), 1, body))

    def receive(self, by: str, key: int, *, noted: bool = True) -> Any:
        """The next answer to a member; None when the connection was closed instead."""
        frame = self._connections[by].receive_frame()
        if frame is None:
            self._connections.pop(by).socket.close()
        answer = None if frame is None else read_response(key, self._version(key), frame, 1)
        if noted:
            self.answers.append([by, key, "closed" if answer is None else plain(answer)])
        return answer

    def hang_up(self, by: str) -> None:
        """Close the connection of a member."""
        self._connections.pop(by).socket.close()

    def ask(self, by: str, key: int, body: dict[str, Any], *, noted: bool = True) -> Any:
        """Send and receive."""
        self.send(by, key, body)
        return self.receive(by, key, noted=noted)

    def until(self, by: str, key: int, body: dict[str, Any], good: Callable[[Any], bool]) -> Any:
        """Ask until the answer is good, and note only that one: how long brokers take is their own affair."""
        seen: list[Any] = []

        def asked() -> bool:
            seen.append(self.ask(by, key, body, noted=False))
            return good(seen[-1])

        wait_until(asked, f"an answer to {by}'s API {key}: {seen[-1:]}", every=0.05)
        self.answers.append([by, key, plain(seen[-1])])
        return seen[-1]

    def name(self, member_id: str, name: str) -> str:
        """Call a member id that the broker made up by a name in what is compared."""
        if member_id:
            self._names[member_id] = name
        return member_id

    def join(self, by: str, key: int, body: dict[str, Any]) -> Any:
        """Join with an id that the broker gives, as each version of JoinGroup has it."""
        answer = self.ask(by, key, body)
        if answer.error_code == MEMBER_ID_REQUIRED:
            self.name(answer.member_id, by)
            answer = self.ask(by, key, {**body, "member_id": answer.member_id})
        self.name(answer.member_id, by)
        return answer

    def transcript(self) -> list[Any]:
        """All answers, in a form that can be compared."""
        return [self._neutral(neutral(answer, self.scene.tag)) for answer in self.answers]

    def _neutral(self, answer: Any, field: str = "") -> Any:
        if isinstance(answer, dict):
            return {key: self._neutral(value, key) for key, value in answer.items()}
        if isinstance(answer, (list, tuple)):
            items = [self._neutral(item) for item in answer]
            return sorted(items, key=repr) if field in UNORDERED else items
        if isinstance(answer, bytes):
            return answer.replace(self.scene.tag.encode(), b"")
        return self._names.get(answer, answer) if isinstance(answer, str) else answer

    def _version(self, key: int) -> int:
        return self.version if key == self.key else NEWEST[key]


class Story(NamedTuple):
    """What happens, and the APIs all of whose versions it is played with."""

    tell: Callable[[Play], None]
    about: tuple[int, ...]
    first: dict[int, int] = {}  # noqa: RUF012  (never changed)
    """The first version of an API with which the story makes sense, where that is not the first of all."""


def play(scenes: tuple[Scene, Scene], story: Story) -> dict[str, Any]:
    """Play a story with every version on both brokers; where the answers differ, both."""
    differences: dict[str, Any] = {}
    for key in story.about:
        for version in scenes[1].versions(key):
            if version < story.first.get(key, 0):
                continue
            number = str(next(_NUMBER))
            mine, real = (Play(scene, number, key, version) for scene in scenes)
            real.perform(story)
            with contextlib.suppress(SpoiltStory):
                mine.perform(story)
            ours, theirs = mine.transcript(), real.transcript()
            for step, (we, they) in enumerate(itertools.zip_longest(ours, theirs), 1):
                if we != they:
                    differences[f"API {key} version {version}, answer {step}"] = {"Barnabas": we, "Kafka": they}
                    break
    return differences


def show(differences: dict[str, Any]) -> str:
    return pprint.pformat(differences, width=150, compact=True, sort_dicts=False)
