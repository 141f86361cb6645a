"""Calls in which librdkafka's callbacks run, and the one place that knows how confluent-kafka tells of a fatal error.

It raises a fatal error, after which the producer is of no more use, in the middle of `poll` and `flush`: as a
KafkaException, or, if other callbacks follow in the same call, as a SystemError or as a KafkaError. The last is no
exception, so that only a bare `except` takes it, and nothing may be raised while it is handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.clients.library import load_kafka

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

UNNAMED: Final = "a fatal error"
"""What is known of one that came without its name."""


class FatalFailure(Exception):
    """The producer is of no more use. Its records get an error, and so does who sends more."""


def serve(call: Callable[[float], T], seconds: float) -> T:
    """Poll or flush. Raises FatalFailure; what a callback of the program raises is raised as it is."""
    cause: Exception | None = None
    try:
        return call(seconds)
    except SystemError as error:
        cause = error
    except BaseException as error:
        if not isinstance(error, load_kafka().KafkaException) or not error.args[0].fatal():
            raise
        cause = error
    except:  # noqa: E722
        pass
    raise FatalFailure(UNNAMED if cause is None else str(cause)) from cause
