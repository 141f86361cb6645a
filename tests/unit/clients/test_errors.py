"""Closing a client hides no error of the program."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from barnabas.clients.errors import NotDelivered, added_to, passing_error


class Client:
    """Its end always fails."""

    def close(self) -> None:
        with added_to(passing_error()):
            raise NotDelivered(2, [ValueError("no broker answered")])


class AsyncClient:
    """Its end always fails, later."""

    async def close(self) -> None:
        with added_to(passing_error()):
            await asyncio.sleep(0)
            raise NotDelivered(2, [ValueError("no broker answered")])


def _fail() -> None:
    raise ZeroDivisionError


def _check(error: BaseException) -> None:
    assert error.__notes__ == ["2 records were not delivered: no broker answered"]
    assert error.__context__ is None


def test_the_error_that_leads_to_a_finally_is_the_one_that_is_raised() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        try:
            _fail()
        finally:
            Client().close()
    _check(caught.value)


def test_the_same_with_closing() -> None:
    with pytest.raises(ZeroDivisionError) as caught, closing(Client()):
        _fail()
    _check(caught.value)


async def test_the_same_with_await() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        try:
            _fail()
        finally:
            await AsyncClient().close()
    _check(caught.value)


def test_an_error_that_is_handled_and_closed_upon_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        try:
            _fail()
        except ZeroDivisionError:
            Client().close()
    _check(caught.value)


def test_an_error_that_is_handled_further_up_has_nothing_to_do_with_it() -> None:
    def recover() -> None:
        Client().close()

    with pytest.raises(NotDelivered):
        try:
            _fail()
        except ZeroDivisionError:
            recover()


def test_without_another_error_the_end_raises_its_own() -> None:
    with pytest.raises(NotDelivered):
        Client().close()
    with pytest.raises(NotDelivered), closing(Client()):
        pass
