"""Raises a fatal error in the ways of confluent-kafka, of which one is no exception."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable


def fatal_error() -> KafkaError:
    """The error itself."""
    return KafkaError(KafkaError._FENCED, "fenced by another", fatal=True)


def raise_an_exception() -> None:
    """As it is documented."""
    raise KafkaException(fatal_error())


def raise_a_system_error() -> None:
    """As CPython does for a call that returns a result with an error set."""
    raise SystemError("method poll returned a result with an exception set") from KafkaException(fatal_error())


def raise_what_is_no_exception() -> None:
    """As confluent-kafka does when other callbacks follow in the same call: with a KafkaError."""
    error = fatal_error()
    api = ctypes.pythonapi
    restore = api.PyErr_Restore
    restore.argtypes, restore.restype = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p], None
    for each in (KafkaError, error):  # two references that the interpreter's error takes over
        api.Py_IncRef(ctypes.py_object(each))
    restore(KafkaError, error, None)


WAYS: Final[dict[str, Callable[[], None]]] = {
    "an exception": raise_an_exception,
    "a SystemError": raise_a_system_error,
    "no exception": raise_what_is_no_exception,
}
