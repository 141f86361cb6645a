"""What can go wrong on the client's side of the wire.

BarnabasError
├── LibraryMissing          a library that the client needs is not installed
├── InvalidClientConfig     a property or argument that means nothing
├── BrokerUnreachable       no broker answers: nothing was asked of it, or nobody knows what became of it
│   ├── AddressInvalid      what was given are no addresses
│   ├── AddressUnknown      no host has any of the names that were given, so far
│   ├── BrokerSilent        something takes connections there, and does not answer
│   └── LoginFailed         a broker is there, and TLS or SASL does not come about with it
├── RequestRefused          a broker answered with an error code
├── ClientFailed            librdkafka gave up by itself; `name` is its own name for it
├── ClientClosed            the client was closed before
├── SerializationFailed     a key or value could not be made into bytes
├── DeserializationFailed   bytes of a record could not be read; the record's place and bytes are in it
├── BufferFull              the producer's buffer had no room in time, or none at all
├── NotDelivered            records that were sent did not arrive
├── NotAcknowledged         a message of a queue was done with too late: its lock was lost, and others get it
└── TransactionAborted      a transaction was given up; nothing of it is visible to readers of committed data
    └── ProducerFenced      another producer with the same transactional id took over; this one has to close
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.model.base_error import BarnabasError
from barnabas.model.permissions import is_missing_permission
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from barnabas.model.errors import ErrorCode
    from barnabas.model.ids import TopicPartition
    from barnabas.model.permissions import Action

__all__ = [
    "AddressInvalid",
    "AddressUnknown",
    "BarnabasError",
    "BrokerSilent",
    "BrokerUnreachable",
    "BufferFull",
    "ClientClosed",
    "ClientFailed",
    "DeserializationFailed",
    "InvalidClientConfig",
    "LibraryMissing",
    "LoginFailed",
    "NotAcknowledged",
    "NotDelivered",
    "ProducerFenced",
    "RequestRefused",
    "SerializationFailed",
    "TransactionAborted",
    "added_to",
    "error_code",
    "noted_in",
    "passing_error",
    "translated",
]


class LibraryMissing(BarnabasError):
    """A library of an extra is not installed; the message says how to install it."""


class InvalidClientConfig(BarnabasError):
    """A client property that is not known or not taken; the message names it."""


class BrokerUnreachable(BarnabasError):
    """No broker answered in time; the message says which addresses were tried and what happened at each."""

    remedy = Remedy(RemedyKind.START_BROKER)


class AddressInvalid(BrokerUnreachable):
    """None of the addresses is one, whether or not a broker runs; the message says what is wrong with each."""


class AddressUnknown(BrokerUnreachable):
    """No host has any of the names; that of a broker in a container may come with it."""


class BrokerSilent(BrokerUnreachable):
    """Something took the connection but did not answer, or not as a broker does; the message says what it did."""

    remedy = Remedy(RemedyKind.CHECK_LISTENER)


class LoginFailed(BrokerUnreachable):
    """The broker's certificate is not trusted, or it does not take our name and password; the message says which."""

    remedy = Remedy(RemedyKind.CHECK_SECURITY)


class RequestRefused(BarnabasError):
    """A broker said no. `code` is Kafka's error code, the message is the broker's own.

    Where a permission is missing, brokers do not say which one: it is named after the `action` that was asked for.
    """

    def __init__(self, code: ErrorCode, message: str, action: Action | None = None) -> None:
        needed = None
        if is_missing_permission(code):
            needed = None if action is None else action.missing(code)
            self.remedy = Remedy(RemedyKind.ASK_FOR_PERMISSION, "" if needed is None else needed.subject)
        super().__init__(message if needed is None or action is None else f"no permission to {action.words} ({needed})")
        self.code = code


class ClientFailed(BarnabasError):
    """librdkafka failed without a broker's word; `name` is its own name, as `_MAX_POLL_EXCEEDED`."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class ClientClosed(BarnabasError):
    """The client was closed before it was asked for this."""


class SerializationFailed(BarnabasError):
    """A key or value could not be made into bytes; nothing was sent."""


class DeserializationFailed(BarnabasError):
    """A key or value of a record could not be read.

    The consumer stays at that record: `consumer.seek(error.partition, error.offset + 1)` steps over it.
    """

    def __init__(self, message: str, *, partition: TopicPartition, offset: int, data: bytes) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.data = data


class BufferFull(BarnabasError):
    """The producer's buffer has no room for this record; it was not sent."""


class NotDelivered(BarnabasError):
    """Records that were sent did not arrive. `errors` has the reasons of the first of them, `count` how many."""

    def __init__(self, count: int, errors: Sequence[Exception]) -> None:
        what = "1 record was" if count == 1 else f"{count} records were"
        reasons = list(dict.fromkeys(map(str, errors)))
        more = f" (and {len(reasons) - 3} other reasons)" if len(reasons) > 3 else ""
        super().__init__(f"{what} not delivered: {'; '.join(reasons[:3])}{more}")
        remedies = {getattr(error, "remedy", None) for error in errors}
        self.remedy = remedies.pop() if len(remedies) == 1 else None
        self.count = count
        self.errors = tuple(errors)


class NotAcknowledged(BarnabasError):
    """What a worker said of a message was not stored: its lock was lost before, so that the message comes again."""


class TransactionAborted(BarnabasError):
    """The transaction could not be committed and was given up; the message says why.

    Where giving it up failed as well, a note (`__notes__`) says so: brokers then end it, at the latest when
    `transaction.timeout.ms` is over. Nothing of it becomes visible.
    """


class ProducerFenced(TransactionAborted):
    """A newer producer has this transactional id. Close this one: it can do nothing more."""


@contextmanager
def noted_in(error: BaseException | None) -> Iterator[None]:
    """What fails in here, at the end of a block that an error has left, is noted in that error and does not hide it."""
    try:
        yield
    except (BarnabasError, TimeoutError) as failure:
        if error is None:
            raise
        error.add_note(str(failure))


@contextmanager
def added_to(error: BaseException | None) -> Iterator[None]:
    """What fails in here while an error passes by (`passing_error`) is noted in that error, which is raised again.

    So a `finally: client.close()` hides no error, and nobody who closes a client in an `except` block is left in the
    dark.
    """
    try:
        yield
    except (BarnabasError, TimeoutError) as failure:
        if error is None or error is failure:
            raise
        error.add_note(str(failure))
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context  # which is not `failure`


def passing_error() -> BaseException | None:
    """The error that came through the function which has called the caller of this, and is not done with there.

    An error that is being handled further up, where that function was called, is none.
    """
    error = sys.exception()
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":  # as in `closing(client)`
        frame = frame.f_back
    trace = None if error is None else error.__traceback__
    while trace is not None:
        if trace.tb_frame is frame:
            return error
        trace = trace.tb_next
    return None


def translated(error: Any, doing: str = "", action: Action | None = None) -> BarnabasError:
    """An error of librdkafka (KafkaError) as one of ours; `doing` says what was being done, as "commit".

    The `action` is what takes a permission.
    """
    from barnabas.model.errors import ErrorCode

    prefix = f"{doing}: " if doing else ""
    if error.code() >= 0:
        return RequestRefused(error_code(error.code()), prefix + (error.str() or error.name()), action)
    if error.code() in (error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION):
        return RequestRefused(ErrorCode.unknown_topic_or_partition, prefix + error.str())
    if error.code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN, error._RESOLVE):
        return BrokerUnreachable(prefix + error.str())
    if error.code() in (error._TIMED_OUT, error._MSG_TIMED_OUT, error._TIMED_OUT_QUEUE):
        return BrokerSilent(f"{prefix}no broker answered in time ({error.str()})")
    return ClientFailed(error.name(), prefix + error.str())


def error_code(value: int) -> ErrorCode:
    """Kafka's code of this number; numbers that are not known yet count as unknown_server_error."""
    from barnabas.model.errors import ErrorCode

    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.unknown_server_error
