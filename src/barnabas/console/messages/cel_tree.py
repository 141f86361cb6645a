"""What a compiled filter does, read from the bytes that its engine writes of it: a CheckedExpr in Protobuf's Any.

The engine bounds how deep an expression is and how often its loops run, and not how much it makes: each `+` may double
a text, and twenty of them in a row make gigabytes of sixteen bytes. So it has to be known which `+` add numbers.

Nor does it count what a comparison takes. `.map(x, [x, x])` makes one list that is there twice, which takes no memory,
but `==` goes over it twice: twenty of them in a row, each of ten, are work for years. So it has to be known whether
loops may have something several times.

    checked expression   2 references (1 id, 2 reference: 3 overloads), 4 expression
    expression           2 id, and one of: 4 name (1), 5 field (1 of), 6 call (1 target, 2 function, 3 arguments),
                         7 list (1), 8 map (2 entries: 3 key, 4 value),
                         9 loop (1 variable, 2 over, 4 begin, 5 while, 6 step, 7 result)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.console.messages.raw_protobuf import NotProtobuf, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND: Final = b"type.googleapis.com/cel.expr.CheckedExpr"
ADD: Final = b"_+_"
NUMERIC: Final = frozenset(
    {
        b"add_int64",
        b"add_uint64",
        b"add_double",
        b"add_duration_duration",
        b"add_duration_timestamp",
        b"add_timestamp_duration",
    }
)
"""Meanings of `+` whose results are as small as what they are made of."""
ACCUMULATOR: Final = b"@result"
"""What the engine's own loops collect in; no expression can name it."""
QUICK: Final = frozenset(
    {b"_&&_", b"_||_", b"!_", b"_?_:_", b"@not_strictly_false", b"_+_", b"_-_", b"-_", b"_*_", b"_/_", b"_%_", b"_[_]"}
)
"""Calls that take the same time whatever they are given; a comparison goes over all of two lists."""
CONSTANT: Final = 3
LIST: Final = 7
MAP: Final = 8
LOOP: Final = 9
_PARTS: Final = {5: (1,), 6: (1, 3), LIST: (1,)}
"""Where expressions lie in one, by its kind."""


class FilterShape(NamedTuple):
    """What has to be known of an expression before it is run."""

    has_loop: bool
    """Whether it goes over lists or maps: then its work is not bounded by its length."""
    may_grow: bool
    """Whether it joins texts, bytes or lists, or adds what may turn out to be such."""
    may_multiply: bool
    """Whether in a loop something may be put several times into what the next loop goes over, or what is compared."""
    slow_in_loops: int
    """Calls in loops whose time depends on what they are given: the engine counts rounds, and not what each takes."""


class _Part(NamedTuple):
    """An expression, and where it stands."""

    expression: bytes
    loops: int = 0
    """How many loops run it again and again."""
    variable: bytes = b""
    """That of the innermost of them."""


def shape_of(compiled: bytes) -> FilterShape:
    """What a compiled expression does; raises NotProtobuf for what is no such expression."""
    kind_and_value = dict(_fields(compiled))
    if kind_and_value.get(1) != KIND:
        raise NotProtobuf("it is no checked expression")
    meanings: dict[int, set[bytes]] = {}
    root = b""
    for number, value in _fields(_message(kind_and_value.get(2, b""))):
        if number == 2:
            entry = dict(_fields(_message(value)))
            reference = _fields(_message(entry.get(2, b"")))
            meanings[_number(entry.get(1, 0))] = {_message(each) for kind, each in reference if kind == 3}
        elif number == 4:
            root = _message(value)
    if not root:
        raise NotProtobuf("a checked expression has none")
    has_loop = may_grow = may_multiply = False
    slow_in_loops = 0
    left = [_Part(root)]
    while left:
        part = left.pop()
        fields = list(_fields(part.expression))
        expression_id = next((_number(value) for number, value in fields if number == 2), 0)
        for number, value in fields:
            has_loop = has_loop or number == LOOP
            if number == 6 and _joins(_message(value), meanings.get(expression_id, set())):
                may_grow = True
            if part.loops and number == 6 and dict(_fields(_message(value))).get(2) not in QUICK:
                slow_in_loops += 1
            if part.loops and _multiplies(part, number, value):
                may_multiply = True
            left += _parts(part, number, value)
    return FilterShape(has_loop, may_grow, may_multiply, slow_in_loops)


def _joins(call: bytes, meanings: set[bytes]) -> bool:
    """Whether a call may join two values into a longer one."""
    if (2, ADD) not in _fields(call) or (meanings and meanings <= NUMERIC):
        return False
    return not _is_name(_arguments(call)[0], ACCUMULATOR)


def _multiplies(part: _Part, kind: int, value: int | bytes) -> bool:
    """Whether something may be several times in what this makes, in a loop.

    A list of several values does so, unless they are written out. A loop in a loop does, unless it only picks from what
    it goes over: `[1, 2].map(y, x)` has x twice.
    """
    if kind in (LIST, MAP):
        return sum(not _has(CONSTANT, each.expression) for each in _parts(part, kind, value)) > 1
    if kind != 6 or part.loops < 2 or (2, ADD) not in _fields(_message(value)):
        return False
    first, second = _arguments(_message(value))
    if not _is_name(first, ACCUMULATOR) or not _has(LIST, second):
        return False
    items = dict(_fields(second))[LIST]
    return not all(_picks(_message(each), part.variable) for number, each in _fields(_message(items)) if number == 1)


def _picks(expression: bytes, variable: bytes) -> bool:
    """Whether this is a variable, or a field of it."""
    while _has(5, expression):
        expression = _message(dict(_fields(_message(dict(_fields(expression))[5]))).get(1, b""))
    return _is_name(expression, variable)


def _arguments(call: bytes) -> list[bytes]:
    return [_message(value) for number, value in _fields(call) if number == 3]


def _has(kind: int, expression: bytes) -> bool:
    return any(number == kind for number, _ in _fields(expression))


def _is_name(expression: bytes, name: bytes) -> bool:
    return dict(_fields(_message(dict(_fields(expression)).get(4, b"")))).get(1) == name


def _parts(part: _Part, kind: int, value: int | bytes) -> Iterator[_Part]:
    """The expressions in one of this kind."""
    if kind == MAP:
        entries = (_fields(_message(each)) for number, each in _fields(_message(value)) if number == 2)
        yield from (part._replace(expression=_message(each)) for entry in entries for n, each in entry if n in (3, 4))
    elif kind == LOOP:
        fields = list(_fields(_message(value)))
        variable = next((_message(each) for number, each in fields if number == 1), b"")
        for number, each in fields:
            if number in (2, 4):
                yield part._replace(expression=_message(each))
            elif number in (5, 6, 7):
                yield _Part(_message(each), part.loops + 1, variable)
    elif kind in _PARTS:
        inner = (each for number, each in _fields(_message(value)) if number in _PARTS[kind])
        yield from (part._replace(expression=_message(each)) for each in inner)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value."""
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        value: int | bytes
        match tag & 7:
            case 0:
                value, position = read_varint(data, position)
            case 1 | 5 as kind:
                size = 8 if kind == 1 else 4
                value, position = data[position : position + size], position + size
            case 2:
                size, position = read_varint(data, position)
                value, position = data[position : position + size], position + size
            case kind:
                raise NotProtobuf(f"a field has wire type {kind}")
        if position > len(data):
            raise NotProtobuf("a field is cut off")
        yield tag >> 3, value


def _message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise NotProtobuf("a message is a number")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise NotProtobuf("a number is something else")
    return value
