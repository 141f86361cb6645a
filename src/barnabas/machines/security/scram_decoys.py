"""Challenges of SCRAM for users that are not there, which look like those of users that are.

The iterations and the salt of a credential are those that its maker chose: Kafka's tools, another client, an operator
who wants more iterations. If all challenges for unknown names had the same shape, every other one would be of a user.
So a decoy has the shape of a stored credential. Names lie on a ring, users among them, and an unknown name has the
shape of the user who comes next: shapes are as frequent among decoys as among users, and the decoy of a name changes
only if a user comes or goes right after it. The ring is laid with the cluster's secret, so nobody outside knows it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from barnabas.machines.security.scram import InvalidCredential, ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Point = tuple[bytes, str]
    """A user's place on a ring, and its name."""


class ScramDecoys:
    """Makes decoys; it has to be told of users."""

    def __init__(self) -> None:
        self._pending: dict[str, Collection[str]] = {}
        """Users that came, went or changed, each with the names of its mechanisms."""
        self._points: dict[ScramMechanism, dict[str, Point]] = {mechanism: {} for mechanism in ScramMechanism}
        self._rings: dict[ScramMechanism, list[Point]] = {mechanism: [] for mechanism in ScramMechanism}

    def note(self, name: str, mechanisms: Collection[str]) -> None:
        """A user can log in by these mechanisms from now on; by none if it is gone."""
        self._pending[name] = mechanisms

    def make(
        self, mechanism: ScramMechanism, name: str, secret: bytes, text_of: Callable[[str], str | None]
    ) -> ScramCredential:
        """The decoy for a name; `text_of` gives what is stored of a user's credential for this mechanism."""
        self._apply(secret)
        ring = self._rings[mechanism]
        model: ScramCredential | None = None
        if ring:
            _, user = ring[bisect_right(ring, _point(mechanism, name, secret)) % len(ring)]
            model = _decode(mechanism, text_of(user))
        return ScramCredential.decoy(mechanism, name, secret, model)

    def _apply(self, secret: bytes) -> None:
        if not self._pending:
            return
        for mechanism, points in self._points.items():
            for name, titles in self._pending.items():
                if mechanism.title not in titles:
                    points.pop(name, None)
                elif name not in points:
                    points[name] = _point(mechanism, name, secret)
            self._rings[mechanism] = sorted(points.values())
        self._pending.clear()


def _point(mechanism: ScramMechanism, name: str, secret: bytes) -> Point:
    text = f"ring\0{mechanism.title}\0{name}"
    return mechanism.sign(secret, text.encode(errors="surrogatepass")), name


def _decode(mechanism: ScramMechanism, text: str | None) -> ScramCredential | None:
    if text is None:
        return None
    try:
        return ScramCredential.decode(text, mechanism)
    except InvalidCredential:
        return None
