"""Messages to bytes and back, in any version that a client may speak.

`decoder` gives what reads requests of one version as the newest one, which handlers know; `encoder` gives what writes
a response of the newest version as the version that the client asked in. Both are made once per API and version, of
what `protocol/wire/api_table` says: importing a schema costs a millisecond, and a broker that nobody asks for ACLs
never imports them.
"""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from functools import cache, partial
from io import BytesIO
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args, get_origin

from barnabas.protocol.wire import bounds
from barnabas.protocol.wire.api_table import API_FORMATS, load
from barnabas.protocol.wire.conversion import convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.apis import ApiKey

    Decoder: TypeAlias = Callable[[memoryview, int], Any]
    """Takes a frame and the position of its body; gives the request. Raises InvalidFrame."""
    Encoder: TypeAlias = Callable[[int, Any], bytes]
    """Takes a correlation id and a response; gives the whole frame: size, header, body."""

HEADER_V0: Final = struct.Struct(">ii")
HEADER_V1: Final = struct.Struct(">iib")


def request_class(key: ApiKey, version: int) -> type:
    """The class of one version of a request: kio's, or our own for messages between brokers."""
    if API_FORMATS[key].inter_broker:
        from barnabas.protocol.messages import inter_broker

        return inter_broker.REQUESTS[key.value]
    from kio.index import load_request_schema  # here: it is large, and the first request needs it

    message_class: type = load_request_schema(key, version)
    return message_class


def response_class(key: ApiKey, version: int) -> type:
    """The class of one version of a response."""
    if API_FORMATS[key].inter_broker:
        from barnabas.protocol.messages import inter_broker

        return inter_broker.RESPONSES[key.value]
    from kio.index import load_response_schema

    message_class: type = load_response_schema(key, version)
    return message_class


def handled_request_class(key: ApiKey, newest: int) -> type:
    """The class that an API's handler is given."""
    own = API_FORMATS[key].request
    message_class: type = load(own) if own else request_class(key, newest)
    return message_class


def handled_response_class(key: ApiKey, newest: int) -> type:
    """The class that an API's handler answers with."""
    own = API_FORMATS[key].response
    message_class: type = load(own) if own else response_class(key, newest)
    return message_class


def has_flexible_header(key: ApiKey, version: int) -> bool:
    """Whether a response has a header with tagged fields. ApiVersions never does: its client knows nothing yet."""
    form = API_FORMATS[key]
    return version >= form.flexible_from and not form.plain_response_header


@cache
def decoder(key: ApiKey, version: int, newest: int) -> Decoder:
    """What reads requests of this version, as the class of the newest one."""
    form = API_FORMATS[key]
    if form.unpack:
        return partial(load(form.unpack), version=version)
    message_class, target = request_class(key, version), handled_request_class(key, newest)
    most = bounds.MAX_INTERNAL_ELEMENTS if form.inter_broker else bounds.MAX_ELEMENTS
    read = bounds.reader(message_class)
    up = load(form.up) if form.up else None

    def decode_message(data: memoryview, position: int) -> Any:
        message = read(data, position, most)
        if up is not None:
            message = up(message, version)
        return convert(message, target)

    if not form.unpack_usual:
        return decode_message
    unpack_usual = load(form.unpack_usual)

    def decode_usual(data: memoryview, position: int) -> Any:
        request = unpack_usual(data, position, version)
        return decode_message(data, position) if request is None else request

    return decode_usual


@cache
def encoder(key: ApiKey, version: int) -> Encoder:
    """What writes responses of the newest version as this one."""
    form = API_FORMATS[key]
    down = load(form.down) if form.down else None
    if form.pack:
        pack = load(form.pack)
        if down is None:
            return lambda correlation_id, response: pack(correlation_id, version, response)
        return lambda correlation_id, response: pack(correlation_id, version, down(response, version))
    from kio.serial import entity_writer  # here, as in `bounds.reader`

    message_class, flexible_header = response_class(key, version), has_flexible_header(key, version)
    write: Callable[[BytesIO, Any], None] = entity_writer(message_class)

    def encode_message(correlation_id: int, response: Any) -> bytes:
        message = convert(response if down is None else down(response, version), message_class)
        buffer = BytesIO()
        if flexible_header:
            buffer.write(HEADER_V1.pack(0, correlation_id, 0))
        else:
            buffer.write(HEADER_V0.pack(0, correlation_id))
        write(buffer, message)
        size = buffer.tell() - 4
        with buffer.getbuffer() as view:
            view[:4] = size.to_bytes(4, "big")
        return buffer.getvalue()

    return _keeping(encode_message) if form.repeated else encode_message


def _keeping(encode_message: Encoder) -> Encoder:
    """What writes an object that was written last with the bytes of that time, and another correlation id.

    Object and bytes are one tuple, since answers may be written in several threads.
    """
    last: tuple[Any, bytes, bytes] = None, b"", b""

    def encode_kept(correlation_id: int, response: Any) -> bytes:
        nonlocal last
        kept = last
        if kept[0] is not response:
            frame = encode_message(correlation_id, response)
            last = kept = response, frame[:4], frame[8:]
        return kept[1] + correlation_id.to_bytes(4, "big", signed=True) + kept[2]

    return encode_kept


def decode(key: ApiKey, version: int, newest: int, data: memoryview, position: int) -> Any:
    """The request that starts at `position`, as the newest version's class; raises InvalidFrame."""
    return decoder(key, version, newest)(data, position)


def encode(key: ApiKey, version: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame of a response: size, header, body."""
    return encoder(key, version)(correlation_id, response)


def is_longer(message: Any, elements: int) -> bool:
    """Whether the arrays of a message, nested ones too, have more elements than this."""
    return _count(message, elements + 1) > elements


def _count(message: Any, enough: int) -> int:
    """How many elements the arrays of a message have; not counted on when there are enough."""
    count = 0
    message_class: type = type(message)
    for name, has_arrays in _arrays(message_class):
        found = getattr(message, name) or ()
        count += len(found)
        if has_arrays:
            for element in found:
                if count >= enough:
                    break
                count += _count(element, enough - count)
    return count


@cache
def _arrays(message_class: type) -> tuple[tuple[str, bool], ...]:
    """The arrays of a message, and whether their elements have arrays themselves."""
    if not is_dataclass(message_class):
        return ()
    return tuple(
        (field.name, bool(_arrays(get_args(arm)[0])))
        for field in fields(message_class)
        for arm in (get_args(field.type) if get_origin(field.type) is UnionType else (field.type,))
        if get_origin(arm) is tuple
    )
