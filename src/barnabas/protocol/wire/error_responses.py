"""Any request answered with one error, in the place where its API tells errors.

Most responses have one place for an error, at the top. The others tell it for each thing that the request named: each
partition, topic, group or resource. `protocol/wire/api_table` says for each API which, and what is repeated from the
request.

Produce and Fetch are packed by hand (`protocol/messages/produce`, `protocol/messages/fetch_response`) and not here.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from barnabas.protocol.wire import codec
from barnabas.protocol.wire.api_table import API_FORMATS, AtTop, Each
from barnabas.protocol.wire.conversion import zero

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.model.errors import ErrorCode
    from barnabas.protocol.apis import ApiKey

IDENTITY: Final = frozenset(
    {
        "entity",
        "group_id",
        "name",
        "partition",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "transactional_id",
    }
)
"""Fields that say which thing is meant; they are what a response repeats of a request."""


def error_response(key: ApiKey, version: int, newest: int, request: Any, code: ErrorCode, message: str) -> Any:
    """The response, of the newest version, that answers everything in `request` with this error."""
    form = API_FORMATS[key]
    errors = form.errors
    if form.errors_before is not None and version < form.errors_before[0]:
        errors = form.errors_before[1]
    if isinstance(errors, Each):
        response = codec.handled_response_class(key, newest)
        error = {"error_code": code, "partition_error_code": code, "error_message": message}
        return zero(response, **{errors.response_field: tuple(_repeated(response, errors, request, error))})
    values = errors.values if isinstance(errors, AtTop) else {}
    return replace(top_level_error(key, newest, code, message), **values)  # type: ignore[type-var]  # a message of any API


def top_level_error(key: ApiKey, newest: int, code: ErrorCode, message: str) -> Any | None:
    """A response that says nothing but this error; None if responses of this API have no place for one at the top."""
    message_class = codec.handled_response_class(key, newest)
    names = {field.name for field in fields(message_class)}
    if "error_code" not in names:
        return None
    values: dict[str, object] = {"error_code": code}
    if "error_message" in names:
        values["error_message"] = message
    return zero(message_class, **values)


def _repeated(response: type, each: Each, asked: Any, error: Mapping[str, object]) -> Iterator[Any]:
    element_class = _element_class(response, each.response_field)
    parents = getattr(asked, each.within) if each.within else (asked,)
    names = (each.request_field, each.also) if each.also else (each.request_field,)
    for one in (one for parent in parents for name in names for one in getattr(parent, name) or ()):
        values: dict[str, Any] = {each.name: one}
        if is_dataclass(one):
            values = {part.name: getattr(one, part.name) for part in fields(one) if part.name in IDENTITY}
            values |= {each.name: values["name"]} if each.name else {}
        if each.inside is None:
            values |= error
        else:
            values[each.inside.response_field] = tuple(_repeated(element_class, each.inside, one, error))
        yield zero(element_class, **values, **each.values)


def _element_class(parent: type, name: str) -> type:
    """The class of the elements of a field that is a tuple, or null."""
    (annotation,) = (part.type for part in fields(parent) if part.name == name)
    if get_origin(annotation) is not tuple:
        (annotation,) = (arm for arm in get_args(annotation) if arm is not NoneType)
    element_class: type = get_args(annotation)[0]
    return element_class
