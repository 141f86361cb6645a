"""A message of one version made from the message of another, field by field, by name.

Handlers know each message in one version, the newest. A request of an older version is brought up to it: fields that
the older version lacks get their defaults. A response is brought down: fields that the older version lacks are left
out, and fields that the newest version dropped get theirs; so do nulls in fields that could not be null yet. Where
names do not tell how (a shape changed), the module `shapes` has a pair of functions for that API.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from barnabas.model.errors import ErrorCode

Converter = Callable[[Any], Any]

ZEROS: Final[dict[str, object]] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "bool": False,
    "float64": 0.0,
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
}


def convert(message: Any, target: type) -> Any:
    """The message as an instance of `target`, another version of its class."""
    source: type = type(message)
    return message if isinstance(message, target) else _converter(source, target)(message)


def zero(message_class: type, **values: object) -> Any:
    """A message with these values, and defaults for everything else."""
    return message_class(**{field.name: values.get(field.name, _default(field)) for field in fields(message_class)})


@cache
def _converter(source: type, target: type) -> Converter:
    present = {field.name: field for field in fields(source)}
    copied: list[tuple[str, Converter | None, object]] = []
    defaults: dict[str, object] = {}
    for field in fields(target):
        if field.name in present:
            null = None if _is_nullable(field.type) else _default(field)
            copied.append((field.name, _value_converter(present[field.name].type, field.type), null))
        else:
            defaults[field.name] = _default(field)

    def convert_message(message: Any) -> Any:
        values = dict(defaults)
        for name, value_converter, null in copied:
            value = getattr(message, name)
            if value is None:
                values[name] = null
            else:
                values[name] = value if value_converter is None else value_converter(value)
        return target(**values)

    return convert_message


def _value_converter(source: Any, target: Any) -> Converter | None:
    """How a value of the field type `source` becomes one of `target`; None if it can stay as it is."""
    source, target = _not_null(source), _not_null(target)
    if get_origin(target) is tuple:
        one = _value_converter(get_args(source)[0], get_args(target)[0])
        return None if one is None else lambda values: tuple(map(one, values))
    if is_dataclass(target) and isinstance(target, type):
        return _converter(source, target)
    return None


def _is_nullable(annotation: Any) -> bool:
    return get_origin(annotation) is UnionType and NoneType in get_args(annotation)


def _not_null(annotation: Any) -> Any:
    if get_origin(annotation) is UnionType:
        (annotation,) = (arm for arm in get_args(annotation) if arm is not NoneType)
    return annotation


def _default(field: Field[Any]) -> object:
    if field.default is not MISSING:
        return field.default
    if _is_nullable(field.type):
        return None
    if get_origin(field.type) is tuple:
        return ()
    if is_dataclass(field.type) and isinstance(field.type, type):
        return zero(field.type)
    return ZEROS.get(field.metadata["kafka_type"], 0)
