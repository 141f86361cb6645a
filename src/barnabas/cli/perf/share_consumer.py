"""`barnabas share-consumer-perf`: kafka-share-consumer-perf-test, over `Queue`.

What differs, on purpose: a message counts when its acknowledgement is stored, and a share group that is new begins with
the first message, so that there is something to measure. --socket-buffer-size and --print-metrics have no effect.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.common.combinations import renamed
from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import json_option, print_json
from barnabas.cli.common.values.numbers import POSITIVE32, POSITIVE64
from barnabas.cli.perf.dates import JavaDate
from barnabas.cli.perf.properties import PerfOptions, consumer_config_option, perf_options, report_options
from barnabas.cli.perf.stats import MB, line_printer

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from barnabas.clients.queue.queue import Queue

HEADER: Final = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
PREFETCH: Final = 500
"""As many as Java's share consumer takes with a poll."""
WAIT_SECONDS: Final = 0.1
CLOSE_SECONDS: Final = 10.0
"""How long Ctrl-C waits for acknowledgements that are on their way."""


@dataclass(frozen=True, kw_only=True)
class Options(PerfOptions):
    """The options of `barnabas share-consumer-perf`."""

    topic: str
    num_records: int | None
    messages: int | None
    group: str
    threads: int
    fetch_size: int
    socket_buffer_size: int
    timeout: int
    show_detailed_stats: bool
    show_consumer_stats: bool
    reporting_interval: int
    date_format: str
    hide_header: bool
    print_metrics: bool
    command_property: tuple[str, ...]
    consumer_config: Path | None

    def check(self) -> None:
        """Refuse options that do not go together, by Kafka's rules."""
        renamed(self, "num_records", "messages")
        if not self.count:
            raise click.UsageError("Say how many messages to take: --num-records N.")
        if not self.group:
            raise click.UsageError("--group is empty: workers share messages by the name of their group.")

    @property
    def count(self) -> int:
        """The number of messages to take."""
        return self.num_records or self.messages or 0

    def queue(self) -> Queue[bytes, bytes]:
        """A worker."""
        from barnabas.clients.queue.queue import Queue

        found = self.client_properties(["command_config", "consumer_config"], ["command_property"])
        found.pop("group.id", None)
        properties: dict[str, Any] = {"fetch.max.bytes": self.fetch_size} | found
        return Queue(properties.pop("bootstrap.servers"), self.topic, self.group, prefetch=PREFETCH, config=properties)


@dataclass(slots=True)
class Taken:
    """What a worker, or all of them, took."""

    messages: int = 0
    bytes: int = 0

    def document(self, seconds: float) -> dict[str, object]:
        """Kafka's columns under names."""
        return {
            "megabytes": self.bytes / MB,
            "megabytesPerSec": self.bytes / MB / seconds,
            "messagesPerSec": self.messages / seconds,
            "messages": self.messages,
            "fetchMs": round(seconds * 1000),
        }


class ShareConsumerRun:
    """One measurement."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._dates = JavaDate(options.date_format)
        self._print = line_printer(as_json=options.as_json)
        self._taken = [Taken() for _ in range(options.threads)]
        self._begun = 0
        """Messages that were taken, without those whose acknowledgement could not be stored."""
        self._counting = threading.Condition()
        """Notified when it is known what became of an acknowledgement."""
        self._ending = threading.Event()
        self._error: Exception | None = None

    @property
    def _total(self) -> Taken:
        return Taken(sum(one.messages for one in self._taken), sum(one.bytes for one in self._taken))

    def run(self) -> None:
        """Let all workers take messages, and print what came of it."""
        options = self._options
        started, started_at = time.monotonic(), time.time()
        self._run_threads()
        if self._error is not None:
            raise self._error
        seconds = max(time.monotonic() - started, 0.001)
        if self._total.messages < options.count:
            self._print(
                "WARNING: Exiting before consuming the expected number of records: "
                f"timeout ({options.timeout} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        self._report(started_at, seconds)

    def _run_threads(self) -> None:
        """Run all workers to their end, or tell them to end when somebody types Ctrl-C."""
        threads = [
            threading.Thread(target=self._work, args=(index,), daemon=True) for index in range(self._options.threads)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            self._ending.set()
            deadline = time.monotonic() + CLOSE_SECONDS
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            raise

    def _report(self, started_at: float, seconds: float) -> None:
        options = self._options
        if options.as_json:
            document = self._total.document(seconds)
            if options.show_consumer_stats:
                document["consumers"] = [taken.document(seconds) for taken in self._taken]
            print_json(document)
            return
        for index, taken in enumerate(self._taken if options.show_consumer_stats else (), 1):
            line = self._line(started_at, seconds, taken, taken)
            click.echo(f"Share consumer {index} consumption metrics- {line}")
        click.echo(self._line(started_at, seconds, self._total, self._total))

    def _line(self, since: float, seconds: float, total: Taken, window: Taken) -> str:
        """Kafka's columns: what was taken in all, and how fast within the last so many seconds."""
        begin, end = map(self._dates.of, (since, since + seconds))
        return (
            f"{begin}, {end}, {total.bytes / MB:.4f}, {window.bytes / MB / seconds:.4f}, "
            f"{window.messages / seconds:.4f}, {total.messages}, {round(seconds * 1000)}"
        )

    def _work(self, index: int) -> None:
        """One worker: a thread and a queue of its own."""
        try:
            with self._options.queue() as queue:
                self._take_messages(queue, index)
        except Exception as error:
            self._error = error

    def _take_messages(self, queue: Queue[bytes, bytes], index: int) -> None:
        options, taken = self._options, self._taken[index]
        last_message = window_began = time.monotonic()
        before = Taken()
        while self._has_more():
            message = queue.get(WAIT_SECONDS)
            now = time.monotonic()
            if message is not None:
                last_message = now
                record = message.record
                with self._counting:
                    self._begun += 1
                size = len(record.key or b"") + len(record.value or b"")
                message.done().add_done_callback(partial(self._count, taken, size))
            elif (now - last_message) * 1000 > options.timeout:
                return
            if (now - window_began) * 1000 >= options.reporting_interval:
                if options.show_detailed_stats:
                    seconds = now - window_began
                    window = Taken(taken.messages - before.messages, taken.bytes - before.bytes)
                    line = self._line(time.time() - seconds, seconds, taken, window)
                    self._print(f"{line} for share consumer {index + 1}")
                window_began, before = now, Taken(taken.messages, taken.bytes)

    def _has_more(self) -> bool:
        """Whether to take another message. The last acknowledgements are waited for: one may be refused."""
        count = self._options.count
        with self._counting:
            while self._begun >= count > self._total.messages and not self._is_over:
                self._counting.wait(WAIT_SECONDS)
            return self._begun < count and not self._is_over

    @property
    def _is_over(self) -> bool:
        return self._error is not None or self._ending.is_set()

    def _count(self, taken: Taken, size: int, stored: Future[None]) -> None:
        """An acknowledgement was stored, or not; in the thread that heard of it."""
        with self._counting:
            if stored.exception() is None:
                taken.messages += 1
                taken.bytes += size
            else:
                self._begun -= 1
            self._counting.notify_all()


@click.command(
    "share-consumer-perf",
    cls=Command,
    examples=[
        ("take 100,000 messages", "barnabas share-consumer-perf --topic perf --num-records 100000"),
        (
            "take them by ten workers, and show what each has done",
            "barnabas share-consumer-perf --topic perf --num-records 100000 --threads 10 --show-consumer-stats",
        ),
    ],
)
@option("--topic", metavar="TOPIC", required=True, help="The topic to take messages from.", section="Load")
@option("--num-records", type=POSITIVE64, metavar="N", help="The number of messages to take.", section="Load")
@option("--messages", type=POSITIVE64, metavar="N", help="Older name of --num-records.", section="Load")
@option(
    "--group",
    metavar="GROUP",
    default="perf-share-consumer",
    help="The share group.  [default: perf-share-consumer]",
    section="Load",
)
@option(
    "--threads", type=POSITIVE32, default=1, metavar="N", help="The number of workers.  [default: 1]", section="Load"
)
@option(
    "--fetch-size",
    type=POSITIVE32,
    default=1 << 20,
    metavar="BYTES",
    help="The most bytes of one response.  [default: 1048576]",
    section="Load",
)
@option(
    "--socket-buffer-size",
    type=POSITIVE32,
    default=2 << 20,
    metavar="BYTES",
    help="Has no effect; accepted for compatibility with Kafka.",
    section="Load",
)
@option(
    "--timeout",
    type=POSITIVE64,
    default=10_000,
    metavar="MS",
    help="Stop a worker if no message arrives for this time.  [default: 10000]",
    section="Load",
)
@option("--show-detailed-stats", is_flag=True, help="Print a line for each interval and worker.", section="Report")
@option("--show-consumer-stats", is_flag=True, help="Print a line for each worker at the end.", section="Report")
@report_options
@option("--print-metrics", is_flag=True, help="Has no effect; accepted for compatibility with Kafka.", section="Report")
@json_option
@perf_options
@option(
    "--command-property", multiple=True, metavar="NAME=VALUE", help="A property of the worker.", section="Connection"
)
@consumer_config_option
@takes(Options)
def command(options: Options) -> None:
    """Measure how fast messages of a queue are taken. Flags and lines are those of kafka-share-consumer-perf-test."""
    if not options.hide_header and not options.as_json:
        click.echo(HEADER)
    ShareConsumerRun(options).run()
