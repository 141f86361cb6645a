"""What is stored of SCRAM's users, and challenges for users that are not there, which look like those of the others.

The iterations and the salt of a credential are those that its maker chose: Kafka's tools, another client, an operator
who wants more iterations. If all challenges for unknown names had the same shape, every other one would be of a user.
So a decoy has the shape of a stored credential. Names lie on a ring, users among them, and an unknown name has the
shape of the user who comes next: shapes are as frequent among decoys as among users, and the decoy of a name changes
only if a user comes or goes right after it. The ring is laid with the cluster's secret, so nobody outside knows it.

Credentials are read when they are stored, and not when somebody asks for them: a login reads none, whether there is a
user of its name or not, so its time does not tell either, nor who has logged in before.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.security.scram import BY_TITLE, InvalidCredential, ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.machines.security.scram import CredentialShape

    Point = tuple[bytes, str]
    """A user's place on a ring, and its name."""


class _Stored(NamedTuple):
    """What is stored of a user, read once."""

    text: str | None
    credential: ScramCredential | None
    """None for a text that cannot be read."""
    shape: CredentialShape | None

    @staticmethod
    def of(text: str, mechanism: ScramMechanism) -> _Stored:
        try:
            credential = ScramCredential.decode(text, mechanism)
        except InvalidCredential:
            return _Stored(text, None, None)
        return _Stored(text, credential, credential.shape)


_NOTHING: Final = _Stored(None, None, None)


class ScramDecoys:
    """Reads the credentials of users that it is told of, and makes decoys that look like them."""

    def __init__(self) -> None:
        self._pending: dict[str, Collection[str]] = {}
        """Users that came, went or changed, each with the names of its mechanisms."""
        self._stored: dict[ScramMechanism, dict[str, _Stored]] = {mechanism: {} for mechanism in ScramMechanism}
        self._points: dict[ScramMechanism, dict[str, Point]] = {mechanism: {} for mechanism in ScramMechanism}
        self._rings: dict[ScramMechanism, list[Point]] = {mechanism: [] for mechanism in ScramMechanism}

    def note(self, name: str, texts: Mapping[str, str]) -> None:
        """This is stored of a user from now on, by the titles of mechanisms; nothing if it is gone."""
        for title, mechanism in BY_TITLE.items():
            stored, text = self._stored[mechanism], texts.get(title)
            if text is None:
                stored.pop(name, None)
            elif name not in stored or stored[name].text != text:
                stored[name] = _Stored.of(text, mechanism)
        self._pending[name] = texts.keys()

    def read(self, mechanism: ScramMechanism, name: str, text: str | None) -> ScramCredential | None:
        """The credential of which this text is stored; None for no text. Raises InvalidCredential."""
        stored = self._stored[mechanism].get(name, _NOTHING)
        credential = stored.credential if stored.text == text else None
        if credential is None and text is not None:
            return ScramCredential.decode(text, mechanism)
        return credential

    def make(self, mechanism: ScramMechanism, name: str, secret: bytes) -> ScramCredential:
        """The decoy for a name; for a user's it has the user's own shape, and takes as long as that shape does."""
        if self._pending:
            self._lay_rings(secret)
        ring = self._rings[mechanism]
        if not ring:
            return ScramCredential.decoy(mechanism, name, secret)
        _, user = ring[bisect_left(ring, _point(mechanism, name, secret)) % len(ring)]
        return ScramCredential.decoy(mechanism, name, secret, self._stored[mechanism][user].shape)

    def _lay_rings(self, secret: bytes) -> None:
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
