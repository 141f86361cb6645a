"""Runs worlds, each in a process of its own.

A world leaves behind tasks that never end and files that nobody closes; a process that ends takes all of it along. It
also begins every world in the same state: imports done, no caches of an earlier world.

What the operating system decides by chance is part of the world, too, and comes from the seed: `os.urandom`, from which
ids and secrets are made, and the hash of text (PYTHONHASHSEED, which `__main__` and the tests set).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import pickle
import random
import secrets
import shutil
import sys
import tempfile
import time
import traceback
import uuid
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.broker.controller import broker_updaters
from barnabas.broker.replication import fetcher, fetcher_manager, log_changes, replicas
from tests.simulation.whole.plan import plan_of
from tests.simulation.whole.planted import BUGS
from tests.simulation.whole.world import Result, World
from tests.support.memory import parent_in_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.whole.plan import Plan

FOLDER: Final = "barnabas-simulation"


def run_plans(plans: Iterable[Plan], jobs: int = 1, *, tell: bool = False, bug: str | None = None) -> Iterator[Result]:
    """Run worlds, so many at a time; the results come in the order of the plans."""
    running: deque[_Running] = deque()
    try:
        for plan in plans:
            running.append(_Running(plan, tell=tell, bug=bug))
            if len(running) >= jobs:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        for each in running:
            each.result()


def run_plan(plan: Plan, *, tell: bool = False, bug: str | None = None) -> Result:
    """Run a world in a process of its own, with a bug that is planted there."""
    return _Running(plan, tell=tell, bug=bug).result()


class _Running:
    """A world in a process of its own."""

    def __init__(self, plan: Plan, *, tell: bool, bug: str | None) -> None:
        self._seed = plan.seed
        self._reading, writing = os.pipe()
        sys.stdout.flush()
        self._child = os.fork()
        if not self._child:
            try:
                os.close(self._reading)
                with os.fdopen(writing, "wb") as out:
                    pickle.dump(_run(plan, tell=tell, bug=bug), out)
            finally:  # nothing of the parent's may go on here, whatever happens
                os._exit(0)
        os.close(writing)

    def result(self) -> Result:
        """What became of it, when it has ended."""
        with os.fdopen(self._reading, "rb") as results:
            data = results.read()
        _, status = os.waitpid(self._child, 0)
        if not data:
            return Result(self._seed, (f"the process of the world ended with status {status}",), "", 0, 0, 0.0)
        result: Result = pickle.loads(data)
        return result


def processor_seconds() -> float:
    """What this process and the worlds that have ended have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


_WARM: list[object] = []


def warm_up() -> None:
    """Run a quiet world in this process: what it imports and compiles is there for all that come after it."""
    plan = replace(plan_of(0), seconds=9.0, producers=1, transactors=2, committers=1, members=2, admins=1, faults=())
    plan = replace(plan, classics=2, keyed=1, loose=1, small_internal=True, packed=0)
    chance = (os.urandom, uuid.uuid4, secrets.token_bytes, secrets.randbelow)
    _seed_chance(0)
    folder = _folder()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        world = World(plan, folder, tell=False)
        _WARM.append(world)  # its tasks must not be collected
        result = world.run()
        assert not result.violations, result.violations
    finally:
        logging.disable(level)
        shutil.rmtree(folder, ignore_errors=True)
        os.urandom, uuid.uuid4, secrets.token_bytes, secrets.randbelow = chance
    gc.collect()
    gc.freeze()


def _run(plan: Plan, *, tell: bool, bug: str | None) -> Result:
    """In the child: the world, with chance that comes from its seed."""
    gc.disable()
    _seed_chance(plan.seed)
    time.sleep = lambda seconds: None  # there are no other threads to wait for, and no time passes
    for module in (log_changes, replicas):
        vars(module)["HANDED_OVER_TOGETHER"] = plan.handed_over
    vars(fetcher)["APPENDED_TOGETHER"] = plan.appended
    vars(fetcher_manager)["MOST_PARTITIONS"] = plan.fetched
    vars(broker_updaters)["LARGE"] = plan.packed
    if bug is not None:
        BUGS[bug]()
    folder = _folder()
    try:
        world = World(plan, folder, tell=True)  # always: who only now and then keeps lines has other addresses
        _log_into(world)
        result = world.run()
        return result if tell else replace(result, story=())
    except BaseException:
        return Result(plan.seed, (f"the simulation itself failed: {traceback.format_exc()}",), "", 0, 0, 0.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _log_into(world: World) -> None:
    """Make the brokers' log lines part of the story."""
    from tests.simulation.whole.loop import PROCESS

    class IntoStory(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            process = PROCESS.get()
            where = "-" if process is None else process.machine
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + "".join(traceback.format_exception(*record.exc_info))
            world.log.story.append(f"{world.loop.time():9.3f}      {where} {record.name[9:]}: {text}")

    root = logging.getLogger()
    root.handlers[:] = [IntoStory()]
    root.setLevel(logging.INFO)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def _folder() -> Path:
    """A folder in memory; its name is always as long, since paths are bytes on disk, too."""
    parent = parent_in_memory() or Path(tempfile.gettempdir())
    folder = parent / f"{FOLDER}-{os.getpid():010d}"
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir()
    return folder


def _seed_chance(seed: int) -> None:
    chance = random.Random(f"system {seed}")
    random.seed(f"module {seed}")
    os.urandom = chance.randbytes
    uuid.uuid4 = lambda: uuid.UUID(bytes=chance.randbytes(16), version=4)
    secrets.token_bytes = lambda nbytes=None: chance.randbytes(nbytes or 32)
    secrets.randbelow = lambda exclusive_upper_bound: chance.randrange(exclusive_upper_bound)
