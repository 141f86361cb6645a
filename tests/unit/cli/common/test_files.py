from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.values.files import read_properties, read_text
from barnabas.cli.groups import reset
from barnabas.cli.reassign import plans

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes("grün".encode())
    assert read_text(file) == "grün"
    file.write_bytes("grün".encode("latin-1"))
    with pytest.raises(Failed, match=f"^{file} is not text in UTF-8: byte 2 is invalid"):
        read_text(file)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_properties_are_read_as_they_were_written(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("# für alle\nbroker.rack=Köln\n".encode(encoding))
    assert read_properties(file) == {"broker.rack": "Köln"}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "line",
    [
        "delete-records --offset-json-file FILE",
        "leader-election --election-type preferred --path-to-json-file FILE",
        "metadata import FILE --data FILE.data",
        "producer-perf --topic t --num-records 1 --throughput -1 --payload-file FILE",
        "produce --topic t --value-schema FILE.avsc",
    ],
)
def test_no_command_falls_over_a_file_of_another_kind(run: Run, tmp_path: Path, line: str) -> None:
    for file in (tmp_path / "file", tmp_path / "file.avsc"):
        file.write_bytes(b"\x1f\x8b\x08\x00\xda")
    result = run(*line.replace("FILE", str(tmp_path / "file")).split(), *no_broker(line))
    assert result.exit_code == 1
    told = "not an Avro schema" if "schema" in line else "is not text in UTF-8: byte 1 is invalid."
    assert told in result.stderr


def test_nor_does_one_that_asks_a_broker_first(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\x1f\x8b\x08\x00\xda")
    for read in (lambda: reset.read_plan(file, ("g",)), lambda: plans.read_plan(file)):
        with pytest.raises(Failed, match="is not text in UTF-8"):
            read()


def no_broker(line: str) -> tuple[str, ...]:
    return () if line.startswith("metadata") else ("--bootstrap-server", "127.0.0.1:1")
