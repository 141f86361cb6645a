"""A TOML file as a pipeline; `EXAMPLE` in the command line's `init` has one of everything.

name, trigger, checkpoints, metrics        of the pipeline
[kafka]                                    properties of Kafka's clients
[sources.NAME]                             topic or pattern; or path, for files and tables
[steps.NAME]                               sql, or python = "file.py:function" with reads
[sinks.NAME]                               from, and table or topic
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.pipelines.spec.model import (
    FileSource,
    FunctionStep,
    Pipeline,
    SqlStep,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
)
from barnabas.pipelines.spec.places import Place, Problem, SpecError, suggestion
from barnabas.pipelines.spec.toml_lines import lines_of

if TYPE_CHECKING:
    from pathlib import Path

_AT_LINE: Final = re.compile(r" \(at line (\d+)")


class _WrongValue(ValueError):
    """A value is not what its key takes; it says what would be."""


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _WrongValue("text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(map(_text, values))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _WrongValue("true or false")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _WrongValue("a whole number")
    return value


def _options(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or any(isinstance(each, dict | list) for each in value.values()):
        raise _WrongValue("a table of options; a name with dots needs quotes")
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


def _watermark(value: object) -> Watermark:
    if not isinstance(value, Mapping) or set(value) != {"column", "delay"}:
        raise _WrongValue('{ column = "at", delay = "1 minute" }')
    return Watermark(column=_text(value["column"]), delay=_text(value["delay"]))


_Keys = Mapping[str, tuple[str, Callable[[object], Any]]]
"""The field of each key, and how its value is read."""

_PIPELINE: Final[_Keys] = {
    "name": ("name", _text),
    "trigger": ("trigger", _text),
    "checkpoints": ("checkpoints", _text),
    "metrics": ("metrics", _text),
    "kafka": ("kafka", _options),
}
_TOPIC_SOURCE: Final[_Keys] = {
    "topic": ("topics", _texts),
    "pattern": ("pattern", _text),
    "decode": ("decode", _text),
    "schema": ("schema", _text),
    "framing": ("framing", _text),
    "mark_tombstones": ("mark_tombstones", _flag),
    "bad": ("bad", _text),
    "start": ("start", _text),
    "watermark": ("watermark", _watermark),
    "options": ("options", _options),
}
_FILE_SOURCE: Final[_Keys] = {
    "path": ("path", _text),
    "format": ("format", _text),
    "schema": ("schema", _text),
    "options": ("options", _options),
}
_SQL_STEP: Final[_Keys] = {
    "sql": ("sql", _text),
    "reads": ("reads", _texts),
    "watermark": ("watermark", _watermark),
}
_FUNCTION_STEP: Final[_Keys] = {
    "python": ("function", _text),
    "reads": ("reads", _texts),
    "stateless": ("stateless", _flag),
    "watermark": ("watermark", _watermark),
}
_TOPIC_SINK: Final[_Keys] = {
    "from": ("reads", _text),
    "topic": ("topic", _text),
    "encode": ("encode", _text),
    "key": ("key", _text),
    "mode": ("mode", _text),
    "checkpoint": ("checkpoint", _text),
}
_TABLE_SINK: Final[_Keys] = {
    "from": ("reads", _text),
    "table": ("table", _text),
    "format": ("format", _text),
    "partition_by": ("partition_by", _texts),
    "catalog": ("catalog", _text),
    "options": ("options", _options),
    "keep_snapshots": ("keep_snapshots", _count),
    "checkpoint": ("checkpoint", _text),
}

_Kind = tuple[type, _Keys, tuple[str, ...]]
"""What is made, of which keys, and which of them have to be there."""

_SECTIONS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    "sources": {
        "topic": (TopicSource, _TOPIC_SOURCE, ()),
        "pattern": (TopicSource, _TOPIC_SOURCE, ()),
        "path": (FileSource, _FILE_SOURCE, ()),
    },
    "steps": {
        "sql": (SqlStep, _SQL_STEP, ()),
        "python": (FunctionStep, _FUNCTION_STEP, ("reads",)),
    },
    "sinks": {
        "topic": (TopicSink, _TOPIC_SINK, ("from",)),
        "table": (TableSink, _TABLE_SINK, ("from",)),
    },
}
"""The elements of a section, by the key that says which one it is."""


def read_toml(path: Path) -> Pipeline:
    """The pipeline of a TOML file. Raises SpecError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SpecError([Problem(Place(path, 1), f"this is no TOML: {error}")]) from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = _AT_LINE.search(str(error))
        place = Place(path, int(line[1]) if line else max(1, len(text.splitlines())))
        raise SpecError([Problem(place, f"this is no TOML: {error}")]) from error
    return _Reader(path, lines_of(text)).pipeline(values)


class _Reader:
    """Makes the objects and collects what is wrong on the way."""

    def __init__(self, file: Path, lines: Mapping[tuple[str, ...], int]) -> None:
        self._file = file
        self._lines = lines
        self._problems: list[Problem] = []

    def pipeline(self, values: Mapping[str, Any]) -> Pipeline:
        """The pipeline of a whole file."""
        place = self._place(())
        elements: dict[str, Any] = {
            section: tuple(self._elements(section, values.get(section, {}))) for section in _SECTIONS
        }
        own = {key: value for key, value in values.items() if key not in _SECTIONS}
        fields = self._fields(own, _PIPELINE, place, "a pipeline", (*_PIPELINE, *_SECTIONS))
        if "name" not in values:
            self._problems.append(Problem(place, 'the pipeline has no name; add `name = "..."` at the top'))
        if self._problems:
            raise SpecError(self._problems)
        return Pipeline(**fields, **elements, place=place)

    def _elements(self, section: str, values: object) -> list[Any]:
        if not isinstance(values, Mapping) or not all(isinstance(each, Mapping) for each in values.values()):
            self._problems.append(
                Problem(self._place((section,)), f"[{section}] is made of tables with names, as [{section}.orders]")
            )
            return []
        found = [self._element(section, name, value) for name, value in values.items()]
        return [each for each in found if each is not None]

    def _element(self, section: str, name: str, values: Mapping[str, Any]) -> Any:
        place = self._place((section, name))
        kinds = _SECTIONS[section]
        what = f'{section[:-1]} "{name}"'
        telling = [key for key in kinds if key in values]
        if len({kinds[key][0] for key in telling}) != 1:
            known = {key for _, keys, _ in kinds.values() for key in keys}
            unknown = [key for key in values if key not in known]
            hints = "".join(f' "{key}" is not known.{suggestion(key, known)}' for key in unknown)
            self._problems.append(Problem(place, f"{what} needs exactly one of {', '.join(kinds)}.{hints}"))
            return None
        kind, keys, needed = kinds[telling[0]]
        before = len(self._problems)
        fields = self._fields(values, keys, place, what, keys)
        for key in needed:
            if key not in values:
                self._problems.append(Problem(place, f"{what} needs `{key}`"))
        return kind(name=name, **fields, place=place) if len(self._problems) == before else None

    def _fields(
        self,
        values: Mapping[str, Any],
        keys: _Keys,
        place: Place,
        what: str,
        known: Mapping[str, Any] | tuple[str, ...],
    ) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in values.items():
            if key not in keys:
                self._problems.append(Problem(place.at(key), f'{what} has no "{key}".{suggestion(key, known)}'))
                continue
            field, read = keys[key]
            try:
                fields[field] = read(value)
            except _WrongValue as error:
                shown = repr(sorted(value) if read is _options and isinstance(value, Mapping) else value)  # no secrets
                self._problems.append(Problem(place.at(key), f"{key} of {what} takes {error}, not {shown}"))
        return fields

    def _place(self, path: tuple[str, ...]) -> Place:
        depth = len(path)
        keys = {each[-1]: line for each, line in self._lines.items() if len(each) == depth + 1 and each[:depth] == path}
        return Place(self._file, self._lines.get(path, 1), keys)
