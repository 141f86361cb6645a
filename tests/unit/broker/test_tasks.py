"""Tasks that are kept until they end, waited for, or cancelled together."""

from __future__ import annotations

import asyncio

from barnabas.broker.tasks import TaskSet


async def test_waiting_includes_tasks_that_are_added_meanwhile() -> None:
    tasks, ended = TaskSet(), []

    async def second() -> None:
        ended.append("second")

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.spawn(second())
        ended.append("first")

    tasks.spawn(first())
    assert tasks
    await tasks.wait()
    assert ended == ["first", "second"]
    assert not tasks


async def test_a_task_that_failed_is_let_go() -> None:
    tasks = TaskSet()

    async def fail() -> None:
        raise ValueError("as planned")

    failed = tasks.spawn(fail(), "a task that fails")
    await tasks.wait()
    assert isinstance(failed.exception(), ValueError)
    assert failed.get_name() == "a task that fails"
    assert not tasks


async def test_what_does_not_finish_in_time_is_cancelled_and_counted() -> None:
    tasks = TaskSet()
    finished = tasks.spawn(asyncio.sleep(0))
    late = tasks.spawn(asyncio.Event().wait())  # type: ignore[arg-type]  # what it gives is never there
    assert await tasks.finish(0.01) == 1
    assert late.cancelled()
    assert not finished.cancelled()
    assert await tasks.finish(10) == 0


async def test_cancelling_waits_for_the_end_of_every_task() -> None:
    tasks, cleaned = TaskSet(), []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    own = asyncio.get_running_loop().create_task(work())
    tasks.keep(own)
    tasks.spawn(work())
    await asyncio.sleep(0)
    await tasks.cancel()
    assert cleaned == [True, True]
    assert not tasks


async def test_tasks_are_cancelled_in_the_order_in_which_they_were_added() -> None:
    """A set of tasks would be ordered by their addresses: otherwise in every process."""
    tasks, ended = TaskSet(), []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    for number in range(50):
        tasks.spawn(work(number))
    await asyncio.sleep(0)
    await tasks.cancel()
    assert ended == list(range(50))
