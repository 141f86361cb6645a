"""The records that `barnabas consume` shows: which of them, how each is printed, and how many there were."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import remark
from barnabas.cli.common.records.formats import STRING, choose, of_class
from barnabas.cli.common.records.options import check_properties
from barnabas.cli.consume import printing
from barnabas.cli.consume.filters import Filter
from barnabas.cli.consume.printing import JsonPrinter, LinePrinter, NoPrinter, as_json

if TYPE_CHECKING:
    from barnabas.cli.common.records.formats import Format
    from barnabas.cli.consume.options import Options
    from barnabas.clients.records import ConsumerRecord


class Printer(Protocol):
    """Makes a line of a record."""

    def line(self, record: ConsumerRecord[bytes, bytes]) -> bytes:
        """The line, with its end."""
        ...


@dataclass(slots=True)
class ShownRecords:
    """Prints records, and counts those that it printed."""

    key: Format
    value: Format
    printer: Printer
    matches: Filter | None
    skip_errors: bool
    skipping: str
    """The option that lets it go on after what cannot be read."""
    count: int = 0

    @classmethod
    def of(cls, options: Options) -> ShownRecords:
        """What the options ask for."""
        properties = options.formatter_properties()
        key = _format("key", options.key_format, options.key_schema, options.key_deserializer, properties)
        value = _format("value", options.value_format, options.value_schema, options.value_deserializer, properties)
        check_properties(properties, printing.PROPERTIES, printing.SWITCHES, "--formatter-property")
        return cls(
            key,
            value,
            _printer(options, properties, key, value),
            Filter(options.expression) if options.expression else None,
            skip_errors=options.skip_message_on_error or options.reject_message_on_error,
            skipping="--reject-message-on-error" if options.share else "--skip-message-on-error",
        )

    def show(self, record: ConsumerRecord[bytes, bytes]) -> bool:
        """Print a record, if it is one of those that are wanted.

        Returns whether it could be read. Raises Failed if it could not, and errors are not to be skipped.
        """
        try:
            if self.matches is not None and not self.matches(self._fields(record)):
                return True
            line = self.printer.line(record)
        except Exception as error:
            what = (
                f"{record.topic_partition} at offset {record.offset} is not of the format that was asked for: {error}"
            )
            if not self.skip_errors:
                raise Failed(f"{what}. {self.skipping} goes on after it.") from error
            remark(f"Skipped: {what}")
            self.count += 1
            return False
        self.count += 1
        sys.stdout.buffer.write(line)
        return True

    def _fields(self, record: ConsumerRecord[bytes, bytes]) -> dict[str, Any]:
        fields = as_json(record, self.key, self.value)
        fields["headers"] = {name: None if text is None else STRING.decode(text) for name, text in record.headers}
        return fields


def _format(
    part: str, name: str | None, schema: str | None, deserializer: str | None, properties: dict[str, str]
) -> Format:
    """The format of keys or values: by its name, by its schema, or by the name of Java's deserializer."""
    java = deserializer or properties.get(f"{part}.deserializer")
    return choose(name or (of_class(java) if java else None), schema)


def _printer(options: Options, properties: dict[str, str], key: Format, value: Format) -> Printer:
    if options.as_json_lines:
        return JsonPrinter(key, value)
    match (options.formatter or "DefaultMessageFormatter").rpartition(".")[2]:
        case "DefaultMessageFormatter":
            return LinePrinter(properties, key, value)
        case "NoOpMessageFormatter":
            return NoPrinter()
    raise click.UsageError(f"--formatter {options.formatter}: a Java class cannot be loaded here; see --json.")
