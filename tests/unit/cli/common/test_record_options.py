from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.records.options import check_properties
from barnabas.cli.consume import printing
from barnabas.cli.produce import lines

if TYPE_CHECKING:
    import pytest


def test_properties_that_do_nothing_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"parse.kex": "true", "parse.key": "yes", "parse.headers": " TRUE ", "key.separator": ":", "colour": "1"}
    check_properties(given, lines.PROPERTIES, lines.SWITCHES, "--reader-property")
    assert capsys.readouterr().err.splitlines() == [
        "--reader-property parse.kex has no effect: did you mean parse.key?",
        "--reader-property parse.key=yes counts as false: write true or false.",
        "--reader-property colour has no effect.",
    ]


def test_properties_of_the_printer_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    given = dict.fromkeys((f"print.{column}" for column in printing.COLUMNS), "true")
    given |= {"null.literal": "-", "key.deserializer": "org.apache.kafka.common.serialization.LongDeserializer"}
    check_properties(given, printing.PROPERTIES, printing.SWITCHES, "--formatter-property")
    assert capsys.readouterr().err == ""
