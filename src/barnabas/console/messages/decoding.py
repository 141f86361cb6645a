"""Bytes of a key or value as something to read: JSON, Avro, Protobuf, text, numbers, or hexadecimal digits.

What a value is shown as is cut to a limit here, on the server: a browser never gets fifty megabytes to lay out. A value
that is too large to be parsed is shown as the text or bytes that it begins with.
"""

from __future__ import annotations

import json
import struct
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.console.messages.dead_letters import original_topics
from barnabas.console.messages.masking import HIDDEN, masks_of, masks_of_letter
from barnabas.console.messages.protobuf_schemas import ProtobufReader, read_indexes
from barnabas.console.messages.raw_protobuf import NotProtobuf, decode_raw
from barnabas.console.messages.schemas import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.console.messages.masking import MaskRule
    from barnabas.console.messages.schemas import KnownSchema, Schemas
    from barnabas.protocol.records.records import Header

FORMATS: Final = ("auto", "json", "text", "hex", "avro", "protobuf", "number")
MOST_PARSED: Final = 2 << 20
"""Bytes of a value that is parsed."""
MOST_ORIGINS: Final = 100
"""Topics of which dead letters are told apart without working out anew what is hidden in them."""
ROW_CHARACTERS: Final = 300
DETAIL_CHARACTERS: Final = 200_000
_BEGINS_JSON: Final = b"{["
_NUMBERS: Final = {1: ">b", 2: ">h", 4: ">i", 8: ">q"}
_PRINTED: Final = {ord(character) for character in "\t\n\r"}


@dataclass(frozen=True, slots=True)
class ShownContent:
    """What bytes were found to be: for people a text, for filters a value."""

    format: str
    text: str
    value: Any
    size: int
    cut: bool = False
    note: str | None = None
    named: bool = False
    """Whether a schema has named its fields."""

    def document(self) -> dict[str, Any]:
        """As the page gets it."""
        found: dict[str, Any] = {"format": self.format, "text": self.text, "size": self.size}
        if self.cut:
            found["cut"] = True
        if self.note:
            found["note"] = self.note
        return found


NOTHING: Final = ShownContent("null", "", None, 0)


class ContentDecoder:
    """Makes texts and values of bytes, in the formats that were asked for."""

    def __init__(
        self, schemas: Schemas, topic: str, rules: Sequence[MaskRule], *, key: str = "auto", value: str = "auto"
    ) -> None:
        self._schemas = schemas
        self._topic = topic
        self._rules = rules
        self.masks = masks_of(rules, topic)
        """What is hidden."""
        self._formats = {"key": key, "value": value}
        self._of_letters: dict[frozenset[str] | None, ContentDecoder] = {}

    def of(self, headers: Sequence[Header]) -> ContentDecoder:
        """The one for a record with these headers: of a dead letter, what its original topic hides is hidden, too."""
        if not headers or not self._rules:
            return self
        origins = original_topics(headers)
        if origins is not None and not origins:
            return self
        found = self._of_letters.get(origins)
        if found is None:
            found = copy(self)
            found.masks = masks_of_letter(self._rules, self._topic, origins)
            if len(self._of_letters) < MOST_ORIGINS:
                self._of_letters[origins] = found
        return found

    def hides_no_less_in(self, topic: str, headers: Sequence[Header], kept: Sequence[Header]) -> bool:
        """Whether a copy of the record with these headers shows nothing of it that is hidden here.

        The copy lies in a topic, maybe this one, and has the headers that are kept. One that is no dead letter any more
        is no longer reached by the rules of its original topic.
        """
        copied = ContentDecoder(self._schemas, topic, self._rules).of(kept)
        return copied.masks.hides_all_of(self.of(headers).masks)

    def key(self, data: bytes | None, most: int) -> ShownContent:
        """A key."""
        if self.masks.key and data is not None:
            return ShownContent("masked", HIDDEN, HIDDEN, len(data))
        return self._decode(data, "key", most)

    def value(self, data: bytes | None, most: int) -> ShownContent:
        """A value, without what is hidden."""
        if data is None:
            return NOTHING
        if self.masks.value:
            return ShownContent("masked", HIDDEN, HIDDEN, len(data))
        if not self.masks.fields:
            return self._decode(data, "value", most)
        found = self._decode(data, "value", most)
        if not (found.format == "json" or found.named) or len(data) > MOST_PARSED:
            return ShownContent("masked", HIDDEN, HIDDEN, len(data), note="fields of it are hidden, and it is not JSON")
        try:
            shown = self.masks.apply(found.value)
            return _cut("json", json.dumps(shown, ensure_ascii=False), shown, len(data), most, note="fields are hidden")
        except (RecursionError, ValueError):
            return ShownContent("masked", HIDDEN, HIDDEN, len(data), note="fields of it are hidden, and it is too deep")

    def header(self, name: str, data: bytes | None, most: int) -> ShownContent:
        """The value of a header: text, or bytes."""
        if self.masks.hides_header(name):
            return ShownContent("masked", HIDDEN, HIDDEN, len(data or b""))
        return NOTHING if data is None else _text_or_hex(data, most)

    def _decode(self, data: bytes | None, part: str, most: int) -> ShownContent:
        if data is None:
            return NOTHING
        wanted = self._formats[part]
        match wanted:
            case "hex":
                return _hex(data, most)
            case "text":
                return _cut("text", data[: most * 4].decode("utf-8", "replace"), None, len(data), most, whole=data)
            case "number":
                return _number(data, most)
            case "protobuf":
                return self._protobuf(data, part, most)
            case "avro":
                return self._by_schema(data, part, most) or _with_note(_hex(data, most), "no Avro schema fits")
            case "json":
                return _json(data, most) or _with_note(_text_or_hex(data, most), "this is not JSON")
            case _:
                return self._by_schema(data, part, most) or _json_object(data, most) or _text_or_hex(data, most)

    def _by_schema(self, data: bytes, part: str, most: int) -> ShownContent | None:
        """By the schema of a registry, or of a file; None if there is none."""
        if len(data) > MOST_PARSED:
            return None
        framed = self._schemas.framed(data)
        if framed is not None:
            found = self._schemas.by_id(framed[0])
            if found is not None:
                return self._framed(found, *framed, most)
        decoder = self._schemas.of_file(self._topic, part)
        if decoder is None:
            return None
        try:
            if isinstance(decoder, ProtobufReader):
                return _with_names("protobuf", decoder.decode(data), len(data), most)
            return _with_names("avro", plain(decoder.deserialize(data)), len(data), most)
        except Exception as error:  # whatever fastavro raises for bytes that are something else
            return _with_note(_text_or_hex(data, most), f"not of the schema of {self._topic}-{part}: {error}")

    def _framed(self, schema: KnownSchema, number: int, data: bytes, most: int) -> ShownContent | None:
        note = f"schema {number}"
        if schema.kind == "JSON":
            found = _json(data, most)
            return None if found is None else _with_note(found, note)
        try:
            if isinstance(schema.decoder, ProtobufReader):
                return _with_names("protobuf", schema.decoder.decode_framed(data), len(data), most, note)
            if schema.decoder is not None:
                return _with_names("avro", plain(schema.decoder.deserialize(data)), len(data), most, note)
            if schema.kind == "PROTOBUF":
                value = decode_raw(data[read_indexes(data)[1] :])
                return _cut("protobuf", json.dumps(value, ensure_ascii=False), value, len(data), most, note=note)
        except Exception as error:  # see above
            return _with_note(_hex(data, most), f"{note} does not fit: {error}")
        return _with_note(_text_or_hex(data, most), f"{note} is of the kind {schema.kind}, which is not known here")

    def _protobuf(self, data: bytes, part: str, most: int) -> ShownContent:
        found = self._by_schema(data, part, most)
        if found is not None and found.format == "protobuf":
            return found
        if len(data) > MOST_PARSED:
            return _with_note(_hex(data, most), "too large to be read as Protobuf")
        try:
            value = decode_raw(data)
        except NotProtobuf as error:
            return _with_note(_hex(data, most), f"this is not Protobuf: {error}")
        return _cut("protobuf", json.dumps(value, ensure_ascii=False), value, len(data), most)


def _with_names(kind: str, value: Any, size: int, most: int, note: str | None = None) -> ShownContent:
    """A value whose fields have names, by a schema."""
    found = _cut(kind, json.dumps(value, ensure_ascii=False), value, size, most, note=note)
    return replace(found, named=True)


def _with_note(found: ShownContent, note: str) -> ShownContent:
    return replace(found, note=note)


def _cut(
    kind: str, text: str, value: Any, size: int, most: int, *, note: str | None = None, whole: bytes | None = None
) -> ShownContent:
    """A text within its limit; `whole` are the bytes that it begins, if the value is their text."""
    if whole is not None:
        value = text if len(whole) <= most * 4 else whole[:MOST_PARSED].decode("utf-8", "replace")
    cut = len(text) > most or (whole is not None and len(whole) > most * 4)
    return ShownContent(kind, text[:most], value, size, cut, note)


def _hex(data: bytes, most: int) -> ShownContent:
    shown = data[: most // 2]
    return ShownContent("hex", shown.hex(), data[:MOST_PARSED].hex(), len(data), len(shown) < len(data))


def _json_object(data: bytes, most: int) -> ShownContent | None:
    """JSON, if it is an object or a list: a bare number or word is rather a text."""
    return _json(data, most) if data.lstrip()[:1] and data.lstrip()[:1] in _BEGINS_JSON else None


def _json(data: bytes, most: int) -> ShownContent | None:
    if len(data) > MOST_PARSED:
        return None
    try:
        text = data.decode()
        return _cut("json", text, json.loads(text), len(data), most)
    except (ValueError, RecursionError):
        return None


def _text_or_hex(data: bytes, most: int) -> ShownContent:
    begin = data[: most * 4]
    try:
        text = begin.decode()
    except UnicodeDecodeError as error:
        if len(begin) == len(data) or error.start < len(begin) - 4:
            return _hex(data, most)
        text = begin[: error.start].decode()
    unseen = sum(character < " " and ord(character) not in _PRINTED for character in text[:1000])
    if unseen > len(text[:1000]) // 8:
        return _hex(data, most)
    return _cut("text", text, None, len(data), most, whole=data)


def _number(data: bytes, most: int) -> ShownContent:
    code = _NUMBERS.get(len(data))
    if code is None:
        return _with_note(_hex(data, most), "a number has 1, 2, 4 or 8 bytes")
    (value,) = struct.unpack(code, data)
    return ShownContent("number", str(value), value, len(data))
