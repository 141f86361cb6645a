"""Schemas as people write them for Spark: `id BIGINT, name STRING, items ARRAY<STRUCT<sku: STRING, count: INT>>`.

A file may spread over lines, and have comments after `--`. Names with other characters than letters, digits and `_`
stand in backticks. Reading it needs no Spark, so a mistake is found before anything starts.
"""

from __future__ import annotations

import difflib
import re
from typing import Final, NoReturn

import pyarrow as pa

from barnabas.pipelines.decode.contract import TIMESTAMP, SchemaRefused

SIMPLE: Final = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "DECIMAL": pa.decimal128(10, 0),
}
_NAMES: Final = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.large_string(): "STRING",  # as pyiceberg tells them
    pa.large_binary(): "BINARY",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    pa.null(): "VOID",
}
_TOKEN: Final = re.compile(r"\s*(?:--[^\n]*\n?\s*)*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")


def parse_ddl(text: str) -> pa.Schema:
    """The schema that a text in Spark's words means; raises SchemaRefused with the line of the mistake."""
    reader = _Reader(text)
    fields = reader.fields(end="")
    if not fields:
        raise SchemaRefused("the schema is empty: write columns as in `id BIGINT, name STRING`")
    return pa.schema(fields)


def type_name(kind: pa.DataType) -> str:
    """A type in Spark's words."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{field.name}: {type_name(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{type_name(kind.key_type)}, {type_name(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{type_name(kind.value_type)}>"
    return str(kind)


def to_ddl(schema: pa.Schema) -> str:
    """A schema as a line that `parse_ddl` and Spark read."""
    return ", ".join(f"{_quoted(field.name)} {type_name(field.type)}" for field in schema)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


class _Reader:
    """A walk over the tokens; `_at` is where the next one begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._token = ""
        self._quoted = False
        self._step()

    def fields(self, *, end: str) -> list[pa.Field]:
        found: list[pa.Field] = []
        while self._token != end:
            name = self._name()
            if self._token == ":":
                self._step()
            if any(field.name == name for field in found):
                self._refuse(f"the column {name} is there twice")
            found.append(pa.field(name, self._type()))
            if self._token.upper() in ("NOT", "COMMENT"):
                self._refuse(f"{self._token} is not taken: a column has a name and a type, and may always be null")
            if self._token == ",":
                self._step()
            elif self._token != end:
                self._refuse(f"expected a comma after {name}, not {self._token or 'the end'}")
        return found

    def _name(self) -> str:
        name = self._token
        if not self._quoted and not re.fullmatch(r"\w+", name):
            self._refuse(f"expected the name of a column, not {name or 'the end'}")
        self._step()
        return name

    def _type(self) -> pa.DataType:
        word = self._token.upper()
        if word == "ARRAY":
            self._expect("<")
            inner = self._type()
            self._close()
            return pa.list_(inner)
        if word == "STRUCT":
            self._expect("<")
            fields = self.fields(end=">")
            self._step()
            return pa.struct(fields)
        if word == "MAP":
            self._expect("<")
            key = self._type()
            if self._token != ",":
                self._refuse(f"expected a comma after the type of MAP's keys, not {self._token or 'the end'}")
            self._step()
            value = self._type()
            self._close()
            return pa.map_(key, value)
        if word not in SIMPLE:
            near = difflib.get_close_matches(word, [*SIMPLE, "ARRAY", "STRUCT", "MAP"], n=1)
            self._refuse(f"there is no type {self._token or 'here'}" + (f": did you mean {near[0]}?" if near else ""))
        self._step()
        if word == "DECIMAL" and self._token == "(":
            return self._decimal()
        return SIMPLE[word]

    def _decimal(self) -> pa.DataType:
        digits = [0, 0]
        for index, end in ((0, (",", ")")), (1, (")",))):
            self._step()
            if not self._token.isdecimal():
                self._refuse(f"DECIMAL takes two numbers, as in DECIMAL(10,2), not {self._token or 'the end'}")
            digits[index] = int(self._token)
            self._step()
            if self._token not in end:
                self._refuse(f"expected {' or '.join(end)}, not {self._token or 'the end'}")
            if self._token == ")":
                break
        if not (1 <= digits[0] <= 38 and digits[1] <= digits[0]):
            self._refuse(
                f"DECIMAL({digits[0]},{digits[1]}) is not possible: up to 38 digits, and no more after the point"
            )
        self._step()
        return pa.decimal128(*digits)

    def _expect(self, token: str) -> None:
        self._step()
        if self._token != token:
            self._refuse(f"expected {token}, not {self._token or 'the end'}")
        self._step()

    def _close(self) -> None:
        if self._token != ">":
            self._refuse(f"expected >, not {self._token or 'the end'}")
        self._step()

    def _step(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = re.sub(r"--[^\n]*", "", self._text[self._at :]).strip()
            if rest:
                self._token = rest[0]
                self._refuse(f"{rest[0]} means nothing here")
            self._token, self._quoted = "", False
            return
        self._at = match.end()
        self._quoted = match[1] is not None
        self._token = match[1].replace("``", "`") if match[1] is not None else match[2] or match[3]

    def _refuse(self, what: str) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise SchemaRefused(f"line {line} of the schema: {what}")
