"""Calls in which librdkafka's callbacks run, and the one place that knows how confluent-kafka tells of a fatal error.

It raises a fatal error, after which the producer is of no more use, in the middle of `poll` and `flush`: as a
KafkaException, or, if other callbacks follow in the same call, as a SystemError or as a KafkaError. The last is no
exception, so that only a bare `except` takes it, and nothing may be raised while it is handled.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.clients.library import load_kafka

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

UNNAMED: Final = "a fatal error"
"""What is known of one that came without its name."""


class FatalFailure(Exception):
    """The producer is of no more use. Its records get an error, and so does who sends more.

    `error` is librdkafka's KafkaError, or None if it came without its name.
    """

    def __init__(self, error: Any) -> None:
        super().__init__(UNNAMED if error is None else error.str())
        self.error = error


def serve(call: Callable[[float], T], seconds: float) -> T:
    """Poll or flush. Raises FatalFailure; what a callback of the program raises is raised as it is."""
    cause: Exception | None = None
    told: Any
    try:
        return call(seconds)
    except SystemError as error:
        cause = error
        told = error.__cause__
    except BaseException as error:
        if not isinstance(error, load_kafka().KafkaException) or not error.args[0].fatal():
            raise
        told = cause = error
    except:  # noqa: E722
        told = sys.exc_info()[1]
    raise FatalFailure(_kafka_error(told)) from cause


def _kafka_error(told: Any) -> Any:
    """The KafkaError that came in one of these ways."""
    kafka = load_kafka()
    error = told.args[0] if isinstance(told, kafka.KafkaException) else told
    return error if isinstance(error, kafka.KafkaError) else None
