"""`python -m bench.counts [TREE ...]`: what requests cost a broker, in bytecodes and system calls instead of seconds.

A clock on a shared machine lies; these counts do not. A client makes the same request again and again, one at a time,
so that the broker does the same each time. Bytecodes are those of the event loop, exact for a minor version of Python;
system calls are those of the whole process, as strace sees them, without the ones by which threads wait for each other.

With `--where` the bytecodes are told by function. With `--acls 1000` the broker has an authorizer and so many rules:
produce and fetch must not cost more than without. With `--metrics` it has a metrics listener, which watches every
request: that may cost 4 %.

The counts of this tree are written down in `bench/counts.json`. A test holds the tree against them: what grew by more
than 3 % has to be written down anew (`--write`), in the change that made it grow. With trees, their counts stand side
by side, as ratios to those of the first.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from bench.brokers import SETTINGS, Barnabas
from bench.clients import hot, rdkafka, rules
from bench.clients.hot import CROWDED, REPLICATED, STORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from typing import TextIO

    from bench.clients.hot import Story

FILE: Final = Path(__file__).with_name("counts.json")
HERE: Final = Path(__file__).resolve().parents[1]
GROWTH: Final = 0.03
"""By how much a count may grow without being written down."""
WATCHED: Final = 0.04
"""By how much a request may cost more because it is watched."""
IN_PIECES: Final = frozenset({"fetch-megabyte"})
"""Where the kernel decides in how many pieces a response goes into a socket, and each is a call with its bytecodes.

Both are counted together there: the bytecodes are held against those of as many pieces.
"""
JITTER: Final = 0.15
"""By how much the system calls of such a request may grow."""
PIECE: Final = 78
"""Bytecodes that come with each of these calls."""
PIECE_NOISE: Final = 0.02
"""By how much the bytecodes of such a request differ from run to run, with as many calls: 2,550 to 2,680 were seen."""
STRAY_CALLS: Final = 0.2
"""System calls in the time of a request that are not its own. One more that is its own is a whole one."""
WARM_UP: Final = 30
BLOCK: Final = 50
"""Requests that are counted together."""
CROWD_BLOCK: Final = 2
"""The same, of those that are many requests themselves."""
CROWD_NOISE: Final = 0.04
"""By how much these differ from run to run: whether a member has to wait depends on who is served in the same turn."""
BLOCKS: Final = 5
"""The least of so many counts: now and then the broker looks after something else meanwhile."""
PARTITIONS: Final = 6
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_WAITING: Final = frozenset({"futex", "epoll_wait", "epoll_pwait", "restart_syscall", "sched_yield", "rt_sigreturn"})
_CALLS: Final = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", re.MULTILINE)
_DEADLINE: Final = 60.0


class Cost(NamedTuple):
    """What one request costs."""

    bytecodes: int
    calls: float


class CountedBroker(Barnabas):
    """The broker of a source tree, which can be asked to count."""

    def __init__(self, folder: Path, tree: Path, settings: Mapping[str, str]) -> None:
        self.settings = {
            **SETTINGS,
            # What is done now and then is not to fall into a count.
            "log.retention.check.interval.ms": "3600000",
            "log.flush.offset.checkpoint.interval.ms": "3600000",
            "replica.high.watermark.checkpoint.interval.ms": "3600000",
            **settings,
        }
        self._tree = tree
        super().__init__(folder)

    def command(self) -> list[str]:
        """As `barnabas start`, of that tree, with a counter."""
        _, *words = super().command()
        program = str(Path(__file__).with_name("counted_broker.py"))
        source = f"PYTHONPATH={self._tree / 'src'}"
        return ["env", source, sys.executable, program, str(self._socket), *words]

    @property
    def _socket(self) -> Path:
        return self.folder / "count"

    def bytecodes(self, load: Callable[[], object]) -> int:
        """Those that the event loop runs while something is asked of it, and until it has come to rest."""
        with socket.socket(socket.AF_UNIX) as counter, counter.makefile("rw") as told:
            counter.connect(str(self._socket))
            _say(told, "+")
            load()
            return int(_say(told, "-"))

    def by_function(self) -> dict[str, int]:
        """The last count, by file, line and name of functions."""
        with socket.socket(socket.AF_UNIX) as counter, counter.makefile("rw") as told:
            counter.connect(str(self._socket))
            found: dict[str, int] = json.loads(_say(told, "?"))
            return found

    def calls(self, load: Callable[[], object]) -> int:
        """System calls of the process meanwhile."""
        with _strace(self.pid, self.folder / "strace") as summary:
            load()
        return sum(int(count) for count, name in _CALLS.findall(summary()) if name not in {*_WAITING, "total"})


def _say(told: TextIO, word: str) -> str:
    told.write(word)
    told.flush()
    return told.readline()


@contextmanager
def _strace(pid: int, file: Path) -> Iterator[Callable[[], str]]:
    """Follow a process and its threads; afterwards, the summary of what they called."""
    try:
        tracer = subprocess.Popen(
            ["strace", "-f", "-c", "-o", str(file), "-p", str(pid)], stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError:
        raise RuntimeError("strace is not installed: apt-get install strace") from None
    assert tracer.stderr is not None
    try:
        said = tracer.stderr.readline()
        if "attached" not in said:
            raise RuntimeError(f"strace cannot follow the broker: {said.strip() or 'it ended'}")
        yield file.read_text
    finally:
        with suppress(ProcessLookupError):
            tracer.send_signal(signal.SIGINT)
        tracer.wait(_DEADLINE)
        tracer.stderr.close()


def measure(
    tree: Path = HERE,
    only: Collection[str] | None = None,
    acls: int = 0,
    *,
    metrics: bool = False,
    where: bool = False,
) -> dict[str, Cost]:
    """The costs of requests to the broker of a tree, by name; with so many ACLs, if any, and with metrics or not.

    With `where` it is printed which functions the bytecodes are of.
    """
    wanted = {name: story for name, story in {**STORIES, **REPLICATED}.items() if only is None or name in only}
    with tempfile.TemporaryDirectory(prefix="barnabas-counts-") as scratch, ExitStack() as stack:
        more = {**(AUTHORIZER if acls else {}), **({"metrics.listener": "0"} if metrics else {})}
        leader, brokers = _cluster(Path(scratch), tree, stack, wanted.keys(), more)
        if acls:
            rules.create(leader.port, acls)
        found = {}
        for number, (name, story) in enumerate(wanted.items()):
            topic = f"counts-{number:02}"
            replicas = len(brokers) if name in REPLICATED else 1
            _make_topic(leader, topic, replicas)
            if name in IN_PIECES:
                found[name] = _cost_in_pieces(leader, story, topic)
            else:
                found[name] = _cost(leader, story, topic, _block(name))
            if where:
                _print_functions(name, leader, tree)
        return found


def _cluster(
    scratch: Path, tree: Path, stack: ExitStack, wanted: Collection[str], more: Mapping[str, str]
) -> tuple[CountedBroker, list[CountedBroker]]:
    """Brokers over one metadata file, as many as these requests need; the first leads."""
    brokers = []
    for number in range(2 if any(name in REPLICATED for name in wanted) else 1):
        settings = {
            "broker.id": str(number),
            "metadata.store": str(scratch / "metadata"),
            "auto.leader.rebalance.enable": "false",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "min.insync.replicas": "1",
            **more,
        }
        broker = CountedBroker(scratch / str(number), tree, settings)
        stack.callback(broker.kill)
        brokers.append(broker)
    leader = brokers[0]
    leader.start()
    _make_internal_topics(leader, shares=any("share" in name for name in wanted))
    for broker in brokers[1:]:
        broker.start()
    return leader, brokers


def _make_internal_topics(leader: CountedBroker, *, shares: bool) -> None:
    """While the leader is alone, so that it coordinates everything; older trees have no `shares`."""
    from bench.clients import groups

    groups.wait_for_coordinator(leader.port, "counts")
    hot.wait_for_transactions(leader.port)
    if shares:
        hot.wait_for_shares(leader.port)


def _make_topic(leader: CountedBroker, topic: str, replicas: int) -> None:
    """Partitions that the first broker leads, each written to once."""
    rdkafka.create_assigned(leader.port, topic, [list(range(replicas))] * PARTITIONS)
    rdkafka.produce_one_each(leader.port, [topic], PARTITIONS)


def _block(name: str) -> int:
    return CROWD_BLOCK if name in CROWDED else BLOCK


def _cost(broker: CountedBroker, story: Story, topic: str, size: int) -> Cost:
    """Bytecodes and system calls of one request, counted in blocks of this size."""
    with story(broker.port, topic) as once:

        def block() -> None:
            for _ in range(size):
                once()

        for _ in range(min(WARM_UP, size)):
            once()
        bytecodes = [broker.bytecodes(block) for _ in range(BLOCKS)]
        calls = [broker.calls(block) for _ in range(BLOCKS)]
    return Cost(round(min(bytecodes) / size), round(min(calls) / size, 1))


def _cost_in_pieces(broker: CountedBroker, story: Story, topic: str) -> Cost:
    """Bytecodes and system calls of the same requests, which a stray call would set apart: those in the middle."""
    costs = []
    with story(broker.port, topic) as once:

        def block() -> None:
            for _ in range(BLOCK):
                once()

        for _ in range(WARM_UP):
            once()
        for _ in range(BLOCKS):
            bytecodes: list[int] = []
            calls = broker.calls(partial(_count_into, bytecodes, broker, block))
            costs.append(Cost(round(bytecodes[0] / BLOCK), round(calls / BLOCK, 1)))
    return sorted(costs, key=lambda cost: cost.bytecodes - PIECE * cost.calls)[BLOCKS // 2]


def _count_into(found: list[int], broker: CountedBroker, load: Callable[[], object]) -> None:
    found.append(broker.bytecodes(load))


def _print_functions(name: str, broker: CountedBroker, tree: Path) -> None:
    """The functions of the last count of a story, those with most bytecodes first."""
    size = _block(name)
    counts = {function: count / size for function, count in broker.by_function().items() if count >= size}
    print(f"\n{name}: {sum(counts.values()):.0f} bytecodes")
    for function, count in sorted(counts.items(), key=lambda found: -found[1]):
        print(f"{count:8.0f}  {function.removeprefix(f'{tree}/src/barnabas/')}")


def version() -> str:
    """The minor version of Python that counts are for."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def written() -> dict[str, Cost] | None:
    """What is written down for this Python; None if nothing is."""
    found = json.loads(FILE.read_text(encoding="utf-8")).get(version())
    return None if found is None else {name: Cost(**costs) for name, costs in found.items()}


def write(costs: Mapping[str, Cost]) -> None:
    """Write counts down for this Python; what was not counted stays."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    known[version()] = {**known.get(version(), {}), **{name: cost._asdict() for name, cost in costs.items()}}
    FILE.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def grown(known: Mapping[str, Cost], now: Mapping[str, Cost], by: float = GROWTH) -> dict[str, str]:
    """What costs more than is written down, in words; a request that is not written down counts as grown."""
    found = {}
    for name, cost in now.items():
        before = known.get(name)
        if before is None:
            found[name] = f"{cost.bytecodes} bytecodes, {cost.calls} system calls; nothing is written down"
        elif _is_more(before, cost, by + CROWD_NOISE * (name in CROWDED), in_pieces=name in IN_PIECES):
            found[name] = (
                f"{cost.bytecodes} bytecodes and {cost.calls} system calls; {before.bytecodes} and {before.calls} are "
                "written down"
            )
    return found


def _is_more(before: Cost, now: Cost, growth: float, *, in_pieces: bool) -> bool:
    expected = before.bytecodes + (PIECE * (now.calls - before.calls) if in_pieces else 0)
    more = growth + (PIECE_NOISE if in_pieces else 0)
    more_calls = JITTER if in_pieces else growth
    return now.bytecodes > expected * (1 + more) or now.calls > before.calls * (1 + more_calls) + STRAY_CALLS


def main() -> None:
    """Count, and print or write down."""
    parser = argparse.ArgumentParser(prog="python -m bench.counts", description="Work of requests, counted.")
    parser.add_argument("trees", nargs="*", metavar="TREE", type=Path, help="checkouts, the old one first")
    parser.add_argument("--only", nargs="+", choices=[*STORIES, *REPLICATED], metavar="NAME", help="these requests")
    parser.add_argument("--acls", type=int, default=0, metavar="N", help="with an authorizer and so many ACLs")
    parser.add_argument("--where", action="store_true", help="tell which functions the bytecodes are of")
    parser.add_argument("--metrics", action="store_true", help="with a metrics listener")
    parser.add_argument("--write", action="store_true", help="write the counts of this tree down")
    options = parser.parse_args()
    if options.write and (options.trees or options.acls or options.metrics):
        parser.error("--write is for this tree, without ACLs and metrics")
    started = time.monotonic()
    trees = [tree.resolve() for tree in options.trees] or [HERE]
    counts = [measure(tree, options.only, options.acls, metrics=options.metrics, where=options.where) for tree in trees]
    print(f"{'':22}", *(f"{'bytecodes':>12} {'calls':>8}" for _ in counts))
    for name, first in counts[0].items():
        cells = []
        for each in counts:
            cost = each[name]
            ratio = "" if each is counts[0] else f" ({cost.bytecodes / first.bytecodes:.3f}x)"
            cells.append(f"{cost.bytecodes:>12,} {cost.calls:>8}{ratio}")
        print(f"{name:22}", *cells)
    print(f"Python {version()}, {time.monotonic() - started:.0f} s")
    if options.write:
        write(counts[0])


if __name__ == "__main__":
    main()
