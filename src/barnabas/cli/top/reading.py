"""Reading the metrics listeners of brokers: pages for Prometheus, and slow requests.

What a page says of topics and groups was named by anybody. It is shown in a terminal, so `printable` leaves nothing in
it that a terminal would act on.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.clients.scraping import MetricsAccess

SECONDS: Final = 5.0
"""How long a broker may take to answer."""
LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
ESCAPED: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one broker said at one time."""

    target: str
    at: float
    samples: Mapping[str, Sequence[tuple[Labels, float]]] = field(default_factory=dict)
    slow: Sequence[Mapping[str, Any]] = ()
    failure: str | None = None
    """Why it said nothing."""

    def of(self, name: str, **wanted: str) -> Iterator[tuple[Labels, float]]:
        """The samples of a name that have these labels; an empty one has to be missing."""
        for labels, value in self.samples.get(name, ()):
            if all(labels.get(key, "") == each for key, each in wanted.items()):
                yield labels, value

    def total(self, name: str, **wanted: str) -> float:
        """All of these together."""
        return sum(value for _, value in self.of(name, **wanted))


def read_all(targets: Sequence[str], access: MetricsAccess) -> list[Snapshot]:
    """What all brokers say, asked at the same time."""
    with ThreadPoolExecutor(len(targets)) as threads:
        return list(threads.map(lambda target: read(target, access), targets))


def read(target: str, access: MetricsAccess) -> Snapshot:
    """What a broker says, or why it does not."""
    at = time.monotonic()
    base = target if "://" in target else f"http://{target}"
    try:
        page = access.get(f"{base}/metrics", SECONDS).decode(errors="replace")
        slow = json.loads(access.get(f"{base}/v1/slow-requests", SECONDS))["slowRequests"]
    except urllib.error.HTTPError as error:
        wrong = "it wants another token: --token-file" if error.code == 401 else f"it answers {error.code}"
        return Snapshot(target, at, failure=wrong)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Snapshot(target, at, failure=str(getattr(error, "reason", error)))
    return Snapshot(target, at, parse(page), slow)


def parse(page: str) -> dict[str, list[tuple[Labels, float]]]:
    """The samples of a page by their names; lines that cannot be read are left out."""
    found: dict[str, list[tuple[Labels, float]]] = {}
    for line in page.split("\n"):
        match = None if line.startswith("#") else LINE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = {name: _unescape(text) for name, text in LABEL.findall(match[2] or "")}
        found.setdefault(match[1], []).append((labels, value))
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\.", lambda match: ESCAPED.get(match[0], match[0]), text)


def printable(text: object, most: int = 60) -> str:
    """Text that a terminal can be given: anything that is no plain character is replaced."""
    plain = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in str(text))
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"
