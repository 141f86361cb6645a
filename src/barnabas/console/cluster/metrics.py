"""Bytes through the brokers, and what their cleaners do, from their metrics by HTTP where they have some.

A broker tells in its settings where its metrics are (`metrics.listener`); otherwise addresses are given to the console.
Only a few series are read, so the text is gone over line by line; what else is in it is Prometheus's.
"""

from __future__ import annotations

import asyncio
import re
import time
from http import HTTPStatus
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from barnabas.clients.admin.configs import EntityType
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.console.cluster.cached_answer import begun
from barnabas.console.cluster.lines import PATIENCE_SECONDS
from barnabas.console.settings import is_loopback, without_words
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.clients.admin.configs import Setting
    from barnabas.clients.scraping import MetricsAccess
    from barnabas.console.cluster.observer import Observer
    from barnabas.console.cluster.snapshot import ClusterSnapshot
    from barnabas.console.settings import WithRemedy

LISTENER_KEY: Final = "metrics.listener"
PROTOCOL_KEY: Final = "metrics.security.protocol"
SCRAPE_SECONDS: Final = 8.0
"""How long a page may take: a broker makes it whole before it sends the first byte, and rests while it does."""
KEPT_SECONDS: Final = 3.0
"""How long a rate is told of a broker whose next page is late."""
LOOK_AGAIN_SECONDS: Final = 300.0
"""How often brokers are asked again where their metrics are."""
ASK_AGAIN_SECONDS: Final = 5.0
"""How soon a broker is asked again that could not be reached."""
_FIGURE: Final = r"([-+]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][-+]?[0-9]{1,2})?)(?!\S)"
"""A number that is neither infinite nor a word."""
_LINE: Final = re.compile(
    rf"^kafka_server_brokertopicmetrics_bytes(in|out)_total(\{{[^}}]*\}})? {_FIGURE}", re.MULTILINE
)
_OF_ONE_TOPIC: Final = re.compile(r'topic="[^"]')


class ByteRates(NamedTuple):
    """Bytes a second."""

    bytes_in: float
    bytes_out: float


class Totals(NamedTuple):
    """Bytes since a broker's start."""

    at: float
    bytes_in: float
    bytes_out: float


def read_totals(text: str, at: float) -> Totals | None:
    """The two counters of a broker; None if they are not there. Where there is no sum, topics are added up."""
    sums: dict[str, float] = {}
    topics: dict[str, float] = {}
    for way, labels, value in _LINE.findall(text):
        kind = topics if _OF_ONE_TOPIC.search(labels) else sums
        kind[way] = kind.get(way, 0.0) + float(value)
    found = sums or topics
    return Totals(at, found.get("in", 0.0), found.get("out", 0.0)) if found else None


CLEANER_SERIES: Final = {
    "barnabas_cleaner_cleanings_total": "cleanings",
    "barnabas_cleaner_seconds_total": "seconds",
    "barnabas_cleaner_read_bytes_total": "read",
    "barnabas_cleaner_kept_bytes_total": "kept",
    "kafka_log_logcleaner_max_clean_time_secs": "last_seconds",
    "kafka_log_logcleanermanager_time_since_last_run_ms": "since_ms",
    "kafka_log_logcleanermanager_uncleanable_partitions_count": "uncleanable",
    "kafka_log_logcleaner_deadthreadcount": "dead_threads",
}
_CLEANER_LINE: Final = re.compile(rf"^({'|'.join(CLEANER_SERIES)})(?:\{{.*\}})? {_FIGURE}", re.MULTILINE)


def read_cleaner(text: str) -> dict[str, float]:
    """What a broker's cleaner has done, by short names; nothing of a broker that does not tell."""
    found: dict[str, float] = {}
    for series, value in _CLEANER_LINE.findall(text):
        name = CLEANER_SERIES[series]
        found[name] = found.get(name, 0.0) + float(value)
    return found


_BUILD_LINE: Final = re.compile(r"""^barnabas_build_info\{[^}]*node_id="([0-9]{1,10})""" "", re.MULTILINE)


def read_broker(text: str) -> int | None:
    """Which broker tells this; None if it does not say."""
    found = _BUILD_LINE.search(text)
    return None if found is None else int(found[1])


class CleanerFigures(NamedTuple):
    """What a broker's cleaner has done, by short names; `figures` is None while the broker does not answer."""

    address: str
    """Of the broker's metrics."""
    broker: int | None
    """None of a broker that does not tell its id there."""
    figures: Mapping[str, float] | None


class TrafficReader:
    """Reads the counters of all brokers, and knows what they were."""

    def __init__(
        self,
        observer: Observer,
        addresses: tuple[str, ...],
        access: MetricsAccess,
        with_remedy: WithRemedy = without_words,
    ) -> None:
        self._with_remedy = with_remedy
        self._observer = observer
        self._access = access
        self.failure: str | None = None
        """Why a broker did not let the console read its metrics, if that is so."""
        self._given = addresses
        self._found: dict[int, str | None] = {}
        """Addresses by broker; None of one that has none."""
        self._ask_again: dict[int, float] = {}
        """When brokers are asked where their metrics are that were asked before."""
        self.is_whole = True
        """Whether the last time no broker hung, and all that are up have told."""
        self._pages: dict[str, _MetricsPage] = {}

    @property
    def cleaners(self) -> list[CleanerFigures]:
        """What cleaners have done, of all brokers that have ever told."""
        return [each.cleaner for each in self._pages.values() if each.cleaner is not None]

    async def traffic(self, snapshot: ClusterSnapshot) -> ByteRates | None:
        """Bytes a second since the last time; None where no broker tells.

        All pages are read at the same time. One that is late is not waited for again until it has come.
        """
        addresses = self._given or await self._addresses(snapshot)
        self._pages = {each: self._pages.get(each) or _MetricsPage(each) for each in addresses}
        pages = list(self._pages.values())
        down = {broker.id for broker in snapshot.brokers.values() if not broker.up}
        away = {*down, *snapshot.silent}
        for page in pages:
            page.begin(self._fetch)
        began = time.monotonic()
        for page in pages:
            if not page.is_late and page.broker not in away:
                await page.wait(PATIENCE_SECONDS - (time.monotonic() - began))
        await asyncio.sleep(0)  # for those that were late before
        rates = [rate for page in pages if (rate := page.take()) is not None]
        up = [page for page in pages if page.broker not in down]
        self.is_whole = not snapshot.silent and not any(page.is_under_way for page in up)
        self.failure = next((page.failure for page in up if page.failure is not None), None)
        if not rates:
            return None
        return ByteRates(
            round(sum(each.bytes_in for each in rates), 1), round(sum(each.bytes_out for each in rates), 1)
        )

    def _fetch(self, address: str) -> tuple[str | None, str | None]:
        """The page, or why it cannot be read; neither of a broker that is down, which is shown elsewhere.

        Raises TimeoutError. Runs in a thread.
        """
        try:
            return self._access.get(address, SCRAPE_SECONDS).decode(errors="replace"), None
        except HTTPError as error:
            if error.code == HTTPStatus.UNAUTHORIZED:
                remedy = Remedy(RemedyKind.GIVE_METRICS_TOKEN)
                return None, self._with_remedy(f"{address} asks for a token.", remedy)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise reason from error
            if isinstance(reason, SSLCertVerificationError):
                remedy = Remedy(RemedyKind.TRUST_METRICS_CERTIFICATE)
                return None, self._with_remedy(f"{address}: {reason.verify_message}.", remedy)
        return None, None

    async def _addresses(self, snapshot: ClusterSnapshot) -> tuple[str, ...]:
        """Of all brokers; of those that do not answer now, what they told before."""
        now, known = time.monotonic(), snapshot.brokers
        self._found = {number: address for number, address in self._found.items() if number in known}
        self._ask_again = {  # one that was down may be back with other settings
            number: when for number, when in self._ask_again.items() if number in known and known[number].up
        }
        hosts = {
            number: broker.host
            for number, broker in known.items()
            if broker.up and number not in snapshot.silent and self._ask_again.get(number, now) <= now
        }
        if hosts:
            told = await self._observer.connections.ask(
                lambda cluster: _find_addresses(hosts, cluster.configs.describe)
            )
            self._found |= told
            self._ask_again |= {
                number: now + (LOOK_AGAIN_SECONDS if number in told else ASK_AGAIN_SECONDS) for number in hosts
            }
        return tuple(address for _, address in sorted(self._found.items()) if address is not None)


class _MetricsPage:
    """The page of one broker, which is read once at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._task: asyncio.Task[_Read] | None = None
        self._before: Totals | None = None
        self.cleaner: CleanerFigures | None = None
        self.failure: str | None = None
        self.broker: int | None = None
        """Whose page it is; None before it has come, and of a broker that does not say."""
        self.is_late = False
        self._took = 0.0
        self._rate: ByteRates | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether it is being read."""
        return self._task is not None

    def begin(self, fetch: Callable[[str], tuple[str | None, str | None]]) -> None:
        """Read it, unless it is being read."""
        if self._task is None:
            self._task = begun(self._read(fetch))

    async def wait(self, seconds: float) -> None:
        """Wait for it, for so long at most."""
        if self._task is not None and seconds > 0:
            await asyncio.wait((self._task,), timeout=seconds)

    def take(self) -> ByteRates | None:
        """Bytes a second between the last two pages; None if there are none, or they are too old.

        A page may take seconds: a broker asks others for it, of which one may hang.
        """
        if self._task is None or not self._task.done():
            self.is_late = True
            is_old = self._before is None or time.monotonic() - self._before.at > max(KEPT_SECONDS, 2 * self._took)
            return None if is_old else self._rate
        read, self._task = self._task.result(), None
        self.is_late = self._took > PATIENCE_SECONDS
        self.failure = read.failure
        if read.text is None:
            self.cleaner = None if self.cleaner is None else self.cleaner._replace(figures=None)
            self._before = self._rate = None
            return None
        self.broker = read_broker(read.text)
        if figures := read_cleaner(read.text):
            self.cleaner = CleanerFigures(urlsplit(self._address).netloc, self.broker, figures)
        before, self._before = self._before, read_totals(read.text, read.at)
        if before is None or self._before is None:
            self._rate = None
            return None
        seconds = self._before.at - before.at
        self._rate = ByteRates(
            _rate(before.bytes_in, self._before.bytes_in, seconds),
            _rate(before.bytes_out, self._before.bytes_out, seconds),
        )
        return self._rate

    async def _read(self, fetch: Callable[[str], tuple[str | None, str | None]]) -> _Read:
        began = time.monotonic()
        try:
            with anyio.fail_after(SCRAPE_SECONDS):
                text, failure = await anyio.to_thread.run_sync(fetch, self._address, abandon_on_cancel=True)
        except TimeoutError:
            text, failure = None, f"{self._address} did not answer within {SCRAPE_SECONDS:g} s."
        now = time.monotonic()
        self._took = now - began
        return _Read(now, text, failure)


class _Read(NamedTuple):
    """A page and when it came, or why it did not, where that is not shown elsewhere."""

    at: float
    text: str | None
    failure: str | None


def _find_addresses(
    hosts: Mapping[int, str], describe: Callable[[EntityType, list[str]], dict[str, list[Setting]]]
) -> dict[int, str | None]:
    """Where the metrics are of brokers that can be reached; None of one that has none, or does not say."""
    found: dict[int, str | None] = {}
    for broker, host in hosts.items():
        try:
            settings = describe(EntityType.BROKERS, [str(broker)])[str(broker)]
        except BrokerUnreachable:
            continue
        except (RequestRefused, KeyError):
            found[broker] = None
            continue
        told = {each.name: each.value for each in settings if each.name in (LISTENER_KEY, PROTOCOL_KEY)}
        listener, scheme = told.get(LISTENER_KEY), "https" if told.get(PROTOCOL_KEY) == "SSL" else "http"
        found[broker] = metrics_address(listener, host, scheme) if listener else None
    return found


def metrics_address(listener: str, host: str, scheme: str = "http") -> str | None:
    """Where the metrics of a broker on `host` are; None if only programs on its own machine reach them."""
    where, _, port = listener.rpartition(":")
    if not port.isdecimal() or port == "0":
        return None
    if not where or is_loopback(where):
        return f"{scheme}://{where or 'localhost'}:{port}/metrics" if is_loopback(host) else None
    return f"{scheme}://{host if where in ('0.0.0.0', '[::]') else where}:{port}/metrics"


def _rate(before: float, after: float, seconds: float) -> float:
    """Of a counter that begins anew when its broker does."""
    return max(0.0, after - before) / max(seconds, 0.001)
