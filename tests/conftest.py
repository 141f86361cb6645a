"""What all tests share: a failing test shows what the processes around it last said, and none outlives the tests."""

from __future__ import annotations

import asyncio
import gc
import inspect
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support import processes

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.remote import Producer

ONE_WORKER = ("tests/console/",)  # one cluster, one console and one browser for all of them
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("barnabas", settings.get_profile("search"), derandomize=True)
settings.load_profile("barnabas")
"""No deadline and no pace, because a busy machine is not a failure. The same examples in every run, as simulations and
fuzz have the same seeds: a change is judged by what it changes. `make properties` searches among others."""


def pytest_configure() -> None:
    """End like after Ctrl-C when the run is terminated, so that fixtures still end their processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Load all tests without a look for garbage: what is loaded stays, and each look would go through all of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of each running process's output to the report of a failed test."""
    report = yield
    if report.failed:
        report.sections.extend((f"{child.name}, {child.log}", child.tail()) for child in processes.running)
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> object | None:
    """With `--dist loadfile`, folders whose tests share what is slow to start go to one worker as a whole."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadFolderScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((folder for folder in ONE_WORKER if file.startswith(folder)), file)

    return LoadFolderScheduling(config, log)
