"""How tests wait: a condition may look for what is not there yet, and a deadline says what was missing."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import until, wait_until


def test_what_is_not_there_yet_is_waited_for() -> None:
    answers = iter([KeyError("t"), None, "there"])

    def look() -> str | None:
        found = next(answers)
        if isinstance(found, KeyError):
            raise found
        return found

    assert wait_until(look, "it", every=0) == "there"


async def test_on_the_event_loop_too() -> None:
    image: dict[str, int] = {}
    asyncio.get_running_loop().call_soon(image.update, {"t": 1})
    await until(lambda: image["t"] == 1, every=0)


async def test_a_deadline_names_what_was_missing() -> None:
    image: dict[str, int] = {}
    with pytest.raises(AssertionError, match="in vain: the topic") as failed:
        wait_until(lambda: image["t"], "the topic", seconds=0)
    assert isinstance(failed.value.__cause__, KeyError)
    with pytest.raises(AssertionError):
        await until(lambda: False, seconds=0)


def test_other_errors_are_not_waited_out() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, "nothing")
