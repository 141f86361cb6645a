"""The text that Prometheus reads, in its own format and in that of OpenMetrics.

A page is written in Python's own formatting and not by prometheus_client, which takes 7 µs for a line where this takes
0.2: ten thousand partitions have 170,000 lines, so a scrape would hold the interpreter for more than a second. The
tests read every page with prometheus_client's parsers and with promtool.

Names, help texts and label names are ours; label values are anybody's. A group may be called anything: `labels` escapes
what the format escapes, cuts what is too long, and writes what is no Unicode in a form that is.
"""

from __future__ import annotations

import hashlib
import re
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

PART_LINES: Final = 1_000
"""Lines that are written in one step of a scrape."""
LONGEST_VALUE: Final = 256
"""Characters of a label's value. What is longer is cut, and ends with a hash of the whole."""
_SPECIAL: Final = re.compile(r'[\\"\n\r\x00\ud800-\udfff]')
_ESCAPES: Final = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class MetricKind(Enum):
    """The types of metrics that we have."""

    COUNTER = "counter"
    """Only grows; its samples end in _total."""
    GAUGE = "gauge"
    SUMMARY = "summary"
    """Quantiles, _sum and _count."""
    HISTOGRAM = "histogram"
    """_bucket, _sum and _count."""


COUNTER: Final = MetricKind.COUNTER
GAUGE: Final = MetricKind.GAUGE
SUMMARY: Final = MetricKind.SUMMARY
HISTOGRAM: Final = MetricKind.HISTOGRAM


class PageFormat(Enum):
    """The formats that a page can have, by their content types."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Family:
    """A metric with all its series, as lines."""

    __slots__ = ("help", "kind", "lines", "name", "sample")

    def __init__(self, name: str, kind: MetricKind, help: str) -> None:
        self.name = name
        self.kind = kind
        self.help = help
        self.sample = f"{name}_total" if kind is COUNTER else name
        """How its lines begin, but for those of summaries and histograms."""
        self.lines: list[str] = []

    def add(self, value: float, labels: str = "", suffix: str = "") -> None:
        """One more series, or one more sample of a summary or a histogram."""
        self.lines.append(f"{self.sample}{suffix}{labels} {number(value)}\n")

    def head(self, format: PageFormat) -> str:
        """What stands before the lines."""
        name = self.name if format is PageFormat.OPENMETRICS else self.sample
        return f"# HELP {name} {self.help}\n# TYPE {name} {self.kind.value}\n"


def gauge(name: str, help: str, value: float) -> Family:
    """A gauge with one series, without labels."""
    family = Family(name, GAUGE, help)
    family.add(value)
    return family


def counter(name: str, help: str, value: float) -> Family:
    """A counter with one series, without labels."""
    family = Family(name, COUNTER, help)
    family.add(value)
    return family


def labels(**values: object) -> str:
    """Labels as they stand behind a name; those without a value are left out."""
    inner = ",".join(f'{name}="{escape(str(value))}"' for name, value in values.items() if value is not None)
    return f"{{{inner}}}" if inner else ""


def escape(value: str) -> str:
    """A label's value between its quotes."""
    if len(value) > LONGEST_VALUE:
        digest = hashlib.blake2b(value.encode(errors="surrogatepass"), digest_size=6).hexdigest()
        value = f"{value[: LONGEST_VALUE - len(digest) - 1]}~{digest}"
    return _SPECIAL.sub(_escaped, value) if _SPECIAL.search(value) else value


def _escaped(match: re.Match[str]) -> str:
    found = match[0]
    return _ESCAPES.get(found) or f"\\\\u{ord(found):04x}"


def number(value: float) -> str:
    """A value as both formats write it."""
    if isinstance(value, int):
        return str(int(value))
    if value == value and value not in (float("inf"), float("-inf")):
        return repr(value)
    return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"


def render(families: Iterable[Family], format: PageFormat) -> Iterable[bytes]:
    """The bytes of a page in parts of PART_LINES lines: each is a short step. A family without series is left out."""
    for family in families:
        head = family.head(format)
        for at in range(0, len(family.lines), PART_LINES):
            yield "".join((head, *family.lines[at : at + PART_LINES])).encode()
            head = ""
    if format is PageFormat.OPENMETRICS:
        yield b"# EOF\n"


def accepted(accept: str) -> PageFormat:
    """The format that a client asks for."""
    return PageFormat.OPENMETRICS if "application/openmetrics-text" in accept.lower() else PageFormat.PROMETHEUS
